"""A backfill of three dates, a re-run of one of them and two manual runs at once: six results, nothing mixed.

Airflow is whole and Spark is real. Each date's folder has keys and counts of its own, so that a row of
another date would show in any of them.
"""

from __future__ import annotations

import collections
import datetime as dt
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from skewless.documents.ledger import balance
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless_airflow.run_store import safe_run_id
from tests.airflow_rest import FINISHED_RUN
from tests.listening import LOOPBACK
from tests.served_airflow import ServedAirflow, await_that, dag_of, served_airflow

pytestmark = [pytest.mark.long, pytest.mark.timeout(2000)]

JOB = "visits"
BACKFILLED = ("2026-03-01", "2026-03-02", "2026-03-03")
ALONE = "2026-03-04"
DATES = (*BACKFILLED, ALONE)
#: Manual runs: one of a day that nobody else computes, one of a day of the backfill.
MANUAL = {"by_hand_alone": ALONE, "by_hand_again": BACKFILLED[2]}
SPEC = {
    "name": JOB,
    "schedule": {"cron": "0 2 * * *"},
    "input": {"path": "lake/{date:%Y/%m/%d}"},
    "key": "page",
    "aggregates": {"visits": "count", "seconds": {"function": "sum", "column": "seconds"}},
    # One stage: what is tried here is that runs keep apart, and each step costs the start of a JVM.
    "routing": {"waves": [1], "reducers": 2},
    "output": {"path": "published", "files": 2},
}


#: Lines that Airflow puts before a log.
_HEAD = 5


class Nights(NamedTuple):
    """What all runs left, by run id, and what the one that was run again had left before."""

    root: Path
    dates: dict[str, str]
    states: dict[str, str]
    cleared: str
    before: list[str]
    events: list[dict[str, Any]]
    #: Where its processes listened while tasks ran, and what the log of a task said while it ran.
    listening: set[str]
    running_log: list[str]

    def run(self, run_id: str) -> RunDirectory:
        return RunDirectory(f"{self.root}/runs/{JOB}/{safe_run_id(run_id)}")

    @property
    def backfilled(self) -> list[str]:
        return [run_id for run_id in self.dates if run_id not in MANUAL]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a folder for each date."""
    folder = tmp_path_factory.mktemp("root")
    for date in DATES:
        place = folder / "lake" / date.replace("-", "/")
        place.mkdir(parents=True)
        pages = _pages(date)
        for number in range(3):
            mine = pages[number::3]
            seconds = pa.array([len(page) for page in mine], pa.int32())
            pq.write_table(pa.table({"page": mine, "seconds": seconds}), place / f"{number}.parquet")
    return folder


@pytest.fixture(scope="module")
def nights(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nights]:
    """All runs at once: the re-run begins as soon as there is something to run again."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    backfill = f"backfill create --dag-id {JOB} --from-date {BACKFILLED[0]} --to-date {BACKFILLED[-1]}"
    with served_airflow(
        folder, {"SKEWLESS_ROOT": str(root)}, [backfill.split()], {JOB: dag_of(folder / "spec.yaml")}
    ) as airflow:
        for run_id, date in MANUAL.items():
            airflow.rest.trigger(JOB, run_id, conf={"date": date})
        dates = _dates(airflow)
        listening, running_log = set[str](), list[str]()
        first = _first_ended(airflow, dates, lambda: _look_around(airflow, root, dates, listening, running_log))
        before = _left(root, first, dates[first])
        airflow.rest.of_run("POST", JOB, first, "/clear", {"dry_run": False})
        states = {run_id: airflow.await_end(JOB, run_id) for run_id in dates}
        told = airflow.rest.call("GET", "/assets/events?limit=100")["asset_events"]
        events = [event for event in told if event["partition_key"] is None]
        yield Nights(root, dates, states, first, before, events, listening, running_log)


def test_the_backfill_has_a_run_for_each_date_and_all_runs_end_well(nights: Nights) -> None:
    assert sorted(nights.dates[run_id] for run_id in nights.backfilled) == list(BACKFILLED)
    assert {run_id: date for run_id, date in nights.dates.items() if run_id in MANUAL} == MANUAL
    assert set(nights.states.values()) == {"success"}


def test_each_run_has_a_directory_of_its_own_and_read_its_own_folder(nights: Nights) -> None:
    assert len({str(nights.run(run_id)) for run_id in nights.dates}) == len(nights.dates) == 5
    for run_id, date in nights.dates.items():
        job, folder = nights.run(run_id).job(), nights.root / "lake" / date.replace("-", "/")
        assert job.date.isoformat() == date
        assert {Path(unit.path.removeprefix("file:")).parent for unit in job.units} == {folder}


def test_each_ledger_balances_over_the_rows_of_its_date(nights: Nights) -> None:
    for run_id, date in nights.dates.items():
        run = nights.run(run_id)
        ledger = balance(run.job(), run.reports(), run.committed(RESULT_STEP).counts["rows"])
        assert (ledger.problems, ledger.input_rows) == ((), len(_pages(date))), run_id


def test_each_partition_holds_its_date_and_there_is_no_other(nights: Nights) -> None:
    assert sorted(path.name for path in (nights.root / "published").iterdir()) == [f"date={date}" for date in DATES]
    for date in DATES:
        assert _counts(pq.read_table(_partition(nights.root, date), partitioning=None)) == _expected(date), date


def test_the_run_that_was_cleared_was_run_again_and_left_the_same_bytes(nights: Nights) -> None:
    assert len(nights.before) == 2, "one file of the result, for so few rows, and one that was published"
    assert _left(nights.root, nights.cleared, nights.dates[nights.cleared]) == nights.before
    tries = nights.run(nights.cleared).fs.glob(f"{nights.run(nights.cleared).root}/stages/0000/attempts/*")
    assert len(tries) == 1, "a stage that is committed is not reduced again"


def test_five_events_tell_of_five_publications_each_with_its_date_and_rows(nights: Nights) -> None:
    """The run that was cleared found its day as it had published it: there is nothing new to tell."""
    told = [(event["source_run_id"], event["extra"]["date"], event["extra"]["rows"]) for event in nights.events]
    assert sorted(told) == sorted((run_id, date, len(_pages(date))) for run_id, date in nights.dates.items())
    assert len(told) == 5


def test_everything_that_was_started_listens_on_the_loopback_only(nights: Nights) -> None:
    assert len(nights.listening) > 2, "the API server, and drivers of Spark with their block managers"
    assert not [address for address in nights.listening if not address.startswith(LOOPBACK)]


def test_the_log_of_a_running_task_is_read_from_its_file(nights: Nights) -> None:
    assert any("A running task's log is read from its file" in line for line in nights.running_log)
    assert not any("Could not read served logs" in line for line in nights.running_log)
    assert len(nights.running_log) > _HEAD


def _pages(date: str) -> list[str]:
    """The page of each row of a date: one is hot, and each date has one that no other has."""
    day = int(date[-2:])
    pages = ["/"] * (500 * day) + [f"/only/{date}"] * (10 + day)
    pages += [f"/page/{number}" for number in range(40) for _ in range(1 + (number * day) % 17)]
    return sorted(pages, key=lambda page: hashlib.sha256(page.encode()).digest()[1])


def _expected(date: str) -> dict[str, tuple[int, int]]:
    return {page: (rows, rows * len(page)) for page, rows in collections.Counter(_pages(date)).items()}


def _counts(table: pa.Table) -> dict[str, tuple[int, int]]:
    rows = table.to_pylist()
    counted = {row["page"]: (row["visits"], row["seconds"]) for row in rows}
    assert len(counted) == len(rows), "a key came twice"
    return counted


def _partition(root: Path, date: str) -> Path:
    return root / "published" / f"date={date}"


def _left(root: Path, run_id: str, date: str) -> list[str]:
    """The digest of each file that a run committed as its result, and of each that is published of its date."""
    run = RunDirectory(f"{root}/runs/{JOB}/{safe_run_id(run_id)}")
    files = [Path(f"{run.root}/{file.path}") for file in run.committed(RESULT_STEP).of_kind("result")]
    published = sorted(_partition(root, date).glob("part-*"))
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in [*files, *published]]


def _dates(airflow: ServedAirflow) -> dict[str, str]:
    """The date that each run computes: a night's, the day before."""
    found = airflow.rest.call("GET", f"/dags/{JOB}/dagRuns?limit=100")["dag_runs"]
    return {run["dag_run_id"]: MANUAL.get(run["dag_run_id"]) or _day_before(run["logical_date"]) for run in found}


def _day_before(moment: str) -> str:
    return (dt.date.fromisoformat(moment[:10]) - dt.timedelta(days=1)).isoformat()


def _look_around(
    airflow: ServedAirflow, root: Path, dates: dict[str, str], listening: set[str], log: list[str]
) -> None:
    """Note where somebody listens, and once what the log of a running task says."""
    listening |= airflow.listening(root)
    for run_id in dates if len(log) <= _HEAD else ():
        for one in airflow.rest.tasks(JOB, run_id):
            if one.state == "running":
                log[:] = airflow.rest.log_lines(JOB, run_id, one.task, one.tries)


def _first_ended(airflow: ServedAirflow, dates: dict[str, str], meanwhile: Callable[[], None]) -> str:
    """The first run of the backfill to be over whose date nobody else computes, while others still go on."""
    candidates = [run_id for run_id, date in dates.items() if list(dates.values()).count(date) == 1]
    candidates = [run_id for run_id in candidates if run_id not in MANUAL]
    ended: list[str] = []

    def over() -> bool:
        meanwhile()
        ended[:] = [run_id for run_id in candidates if airflow.rest.run_state(JOB, run_id) in FINISHED_RUN]
        return bool(ended)

    await_that(over, "one run of the backfill to be over")
    assert airflow.rest.active_runs(JOB), "all are over: there is nothing beside which one could run again"
    return ended[0]
