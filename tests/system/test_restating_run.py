"""Days whose window covers a late file, computed again by ``NAME_restate``, and what waits for them: whole Airflow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from skewless.documents.ledger import balance
from skewless.publication.records import VersionManifest, manifest_of
from skewless.run.directory import RESULT_STEP, RunDirectory
from tests.served_airflow import ServedAirflow, await_that, served_airflow

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

JOB = "late_words"
RESTATE = f"{JOB}_restate"
DAYS = ("2026-03-01", "2026-03-02", "2026-03-03")
LATE = DAYS[1]
SPEC = {
    "name": JOB,
    "input": {"path": f"{JOB}/in/date={{date}}"},
    "window": 2,
    "key": "word",
    "aggregates": {"n": "count", "total": {"function": "sum", "column": "size"}},
    "routing": {"waves": [1], "reducers": 2, "first_plan": ["sample"]},
    "output": {"path": f"{JOB}/published", "files": 1},
}
#: A job that computes each day that is published.
WAITING = "after_late_words"
AFTER = {
    "name": WAITING,
    "input": {"path": f"{JOB}/published/date={{date}}"},
    "key": "word",
    "aggregates": {"n": {"function": "sum", "column": "n"}},
    "schedule": {"asset": f"skewless:{JOB}", "partitioned": True},
    "routing": {"waves": [1], "reducers": 2, "first_plan": ["sample"]},
    "output": {"path": f"{JOB}/after", "files": 1},
}
#: DAGs of users: one waits for any publication, and one for each day.
PLAIN, BY_DAY = "users_plain", "users_by_day"
_USERS = f"""from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, PartitionedAssetTimetable
with DAG("{PLAIN}", schedule=[Asset("skewless:{JOB}")]):
    EmptyOperator(task_id="read")
with DAG("{BY_DAY}", schedule=PartitionedAssetTimetable(assets=Asset("skewless:{JOB}/parts"))):
    EmptyOperator(task_id="read")
"""
#: The DAG file of a catalog: it finds the DAG of restating as an installation does.
_CATALOG = """# airflow
from skewless_airflow import catalog_dags
catalog_dags({folder!r})
"""


class Restated(NamedTuple):
    """What is published before and after, by day, and what ran in between."""

    root: Path
    before: dict[str, VersionManifest]
    after: dict[str, VersionManifest]
    states: dict[str, str]
    runs: list[str]
    again: tuple[str, list[str]]
    events: list[dict[str, Any]]
    waiting: dict[str, list[tuple[str | None, str]]]


@pytest.fixture(scope="module")
def restated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restated]:
    """In an Airflow of its own: with schedules on, as events start nothing without them."""
    with served_airflow(tmp_path_factory.mktemp("served"), {"AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "True"}) as served:
        yield _restated(served)


def _restated(served: ServedAirflow) -> Restated:
    for day in DAYS:
        _write(served.root, day, "0", [f"word-{number % 7}" for number in range(200)] + [f"only-{day}"] * 3)
    _add_catalog(served)
    for day in DAYS:
        served.rest.trigger(JOB, f"night-{day}", conf={"date": day})
    assert [served.await_end(JOB, f"night-{day}") for day in DAYS] == ["success"] * 3
    before = _published(served.root)
    _write(served.root, LATE, "late", ["word-0"] * 40 + ["late"] * 2)
    waiting = (WAITING, PLAIN, BY_DAY)
    for dag_id in waiting:
        served.rest.set_paused(dag_id, paused=False)

    states = {"first": _restate(served, "first")}
    runs = _restating_runs(served)
    states |= {run: served.await_end(JOB, run) for run in runs}
    after = _published(served.root)
    again = _restate(served, "again"), _restating_runs(served)
    events = served.rest.call("GET", "/assets/events?limit=100")["asset_events"]
    mine = [event for event in events if event["source_dag_id"] == JOB]
    await_that(lambda: _ended(served, WAITING) >= 2, "both days computed by the job that waits for them")
    ran = {dag_id: [(run["partition_key"], run["state"]) for run in _runs(served, dag_id)] for dag_id in waiting}
    return Restated(served.root, before, after, states, runs, again, mine, ran)


def test_each_result_whose_window_covers_the_late_file_is_published_again_once(restated: Restated) -> None:
    assert set(restated.states.values()) == {"success"}
    assert [run.split("__")[:2] for run in restated.runs] == [["restate", day] for day in DAYS[1:]]
    changed = [day for day in DAYS if restated.after[day].name != restated.before[day].name]
    assert changed == list(DAYS[1:])
    told = Counter((event["name"], event["partition_key"], event["extra"]["date"]) for event in restated.events)
    times = {DAYS[0]: 1, DAYS[1]: 2, DAYS[2]: 2}
    plain = {(f"skewless:{JOB}", None, day): count for day, count in times.items()}
    assert told == plain | {(f"skewless:{JOB}/parts", day, day): count for day, count in times.items()}


def test_what_waits_for_the_days_runs_again_for_just_those_days(restated: Restated) -> None:
    """The job is still at work on the first day when the second one is published."""
    for dag_id in (WAITING, BY_DAY):
        assert restated.waiting[dag_id] == [(day, "success") for day in DAYS[1:]], dag_id
    assert set(restated.waiting[PLAIN]) == {(None, "success")}
    assert [path.name for path in sorted((restated.root / JOB / "after").glob("date=*"))] == [
        f"date={day}" for day in DAYS[1:]
    ]
    for day in DAYS[1:]:
        made, of = (
            {row["word"]: row["n"] for row in pq.read_table(folder, partitioning=None).to_pylist()}
            for folder in (restated.root / JOB / "after" / f"date={day}", _folder(restated.root, day))
        )
        assert made == of, day


def test_every_day_is_what_a_counter_says_of_all_rows_of_its_window(restated: Restated) -> None:
    for number, day in enumerate(DAYS):
        rows = pq.read_table(_folder(restated.root, day), partitioning=None).to_pylist()
        words = [word for one in DAYS[max(0, number - 1) : number + 1] for word in _words(restated.root, one)]
        assert {row["word"]: row["n"] for row in rows} == Counter(words), day
        assert all(row["total"] == row["n"] * len(row["word"]) for row in rows), day
        run = RunDirectory(restated.after[day].by.run)
        found = run.committed(RESULT_STEP).counts["rows"]
        assert balance(run.job(), run.reports(), found, run.part_lines()).problems == ()


def test_the_late_rows_are_read_once_and_no_others(restated: Restated) -> None:
    read = [RunDirectory(restated.after[day].by.run).job().rows for day in DAYS[1:]]
    assert read == [42, 0]


def test_triggered_again_it_finds_nothing_to_do(restated: Restated) -> None:
    assert restated.again == ("success", restated.runs)


def _add_catalog(served: ServedAirflow) -> None:
    """Add the job to Airflow as a catalog of one spec, whose DAG file has both DAGs."""
    folder = served.root / JOB / "catalog"
    folder.mkdir()
    for spec in (SPEC, AFTER):
        (folder / f"{spec['name']}.yaml").write_text(yaml.safe_dump(spec))
    served.add_dags({JOB: _CATALOG.format(folder=str(folder)), PLAIN: _USERS})
    served.rest.set_paused(PLAIN, paused=True)
    for dag_id in (RESTATE, WAITING, BY_DAY):
        served.rest.wait_for_dag(dag_id, 60)
    served.rest.set_paused(RESTATE, paused=False)


def _restate(served: ServedAirflow, run_id: str) -> str:
    served.rest.trigger(RESTATE, run_id, conf={"from": DAYS[0], "to": DAYS[-1]})
    return served.await_end(RESTATE, run_id)


def _restating_runs(served: ServedAirflow) -> list[str]:
    """The runs of the job that were triggered by its DAG of restating, in the order of their triggers."""
    return [run["dag_run_id"] for run in _runs(served, JOB) if run["dag_run_id"].startswith("restate__")]


def _runs(served: ServedAirflow, dag_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = served.rest.call("GET", f"/dags/{dag_id}/dagRuns?order_by=run_after&limit=100")[
        "dag_runs"
    ]
    return found


def _ended(served: ServedAirflow, dag_id: str) -> int:
    return sum(run["state"] in {"success", "failed"} for run in _runs(served, dag_id))


def _write(root: Path, day: str, name: str, words: list[str]) -> None:
    folder = root / JOB / "in" / f"date={day}"
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table({"word": words, "size": pa.array([len(word) for word in words], pa.int64())})
    pq.write_table(table, folder.parent / f"{name}.draft")
    (folder.parent / f"{name}.draft").rename(folder / f"{name}.parquet")


def _words(root: Path, day: str) -> list[str]:
    words: list[str] = pq.read_table(root / JOB / "in" / f"date={day}", partitioning=None)["word"].to_pylist()
    return words


def _folder(root: Path, day: str) -> Path:
    return root / JOB / "published" / f"date={day}"


def _published(root: Path) -> dict[str, VersionManifest]:
    found = {day: manifest_of(_folder(root, day)) for day in DAYS}
    return {day: manifest for day, manifest in found.items() if manifest is not None}
