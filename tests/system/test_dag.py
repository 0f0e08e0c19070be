"""A spec's DAG, run by Airflow, with the steps of a run in its warm driver; nothing is fake.

Starting Spark costs about ten seconds, so there are two runs, and the tests look at them:
the first night, undisturbed; and a second run of the same night whose driver is killed half-way and
whose quality cannot hold.
"""

import collections
import datetime as dt
import hashlib
import os
import re
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.models.dagrun import DagRun
from airflow.sdk import DAG
from airflow.utils.types import DagRunType

from skewless.documents.ledger import balance
from skewless.documents.quality import QualityReport
from skewless.documents.step_documents import Failure
from skewless.run.directory import QUALITY_STEP, RESULT_STEP, RunDirectory
from skewless_airflow.run_store import run_location
from tests import airflow_setting
from tests.listening import drivers_of

pytestmark = [airflow_setting.IN_PROCESS, pytest.mark.timeout(900), pytest.mark.usefixtures("first_night")]

NIGHT = dt.datetime(2026, 11, 20, 2, tzinfo=dt.UTC)
TASKS = [
    "prepare", "stage_00.run", "stage_01.plan", "stage_01.run", "stage_02.plan", "stage_02.run",
    "merge", "validate", "publish",
]  # fmt: skip
#: Rows of each key: one holds more than a third of them.
COUNTS = {"self": 8_000, "if": 3_000, "": 700, 'naïve\n"key"': 500, **{f"word-{n}": 1 + n % 40 for n in range(500)}}

SPEC = {
    "name": "words",
    "input": {"path": "words"},
    "key": "word",
    "aggregates": {"occurrences": "count", "total": {"function": "sum", "column": "size"}},
    # Wave by wave and routed, whatever that costs: so few rows would be combined where they are read.
    "engine": "staged",
    "routing": {"waves": [1, 3], "reducers": 4, "stage_overhead": 0},
    "quality": {
        "expectations": [
            {"type": "expect_column_values_to_be_between", "kwargs": {"column": "occurrences", "min_value": 1}}
        ]
    },
    "output": {"path": "published/words", "files": 2},
}
HOPELESS = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "occurrences", "max_value": 5_000}}


class Night(NamedTuple):
    dag: DAG
    run: RunDirectory
    states: dict[str, str]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("root")
    (folder / "words").mkdir()
    words = [word for word, rows in COUNTS.items() for _ in range(rows)]
    words.sort(key=lambda word: hashlib.sha256(word.encode()).digest()[0])
    for number in range(8):
        mine = words[number::8]
        table = pa.table({"word": mine, "size": pa.array([len(word) for word in mine], pa.int32())})
        pq.write_table(table, folder / "words" / f"{number}.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKEWLESS_ROOT", str(folder))
        patch.setenv("SKEWLESS_DRIVER_MEMORY", "1g")
        yield folder


@pytest.fixture(scope="module")
def first_night(root: Path, dags_folder: Path, airflow_database: None) -> Night:  # noqa: ARG001  # it must be there first
    return run_dag(_dag(SPEC, root, dags_folder))


@pytest.fixture(scope="module")
def disturbed(root: Path, dags_folder: Path, first_night: Night) -> Night:  # noqa: ARG001  # it is what was before
    """The same night again as another job with the same output: a driver is killed, and quality cannot hold."""
    spec = {**SPEC, "name": "disturbed", "quality": {"expectations": [HOPELESS]}}
    dag = _dag(spec, root, dags_folder)
    with _killing("disturbed", 1) as killed:
        night = run_dag(dag)
    assert killed, "the driver of stage 1 was not caught"
    return night


def test_a_run_ends_well_and_skips_only_what_is_not_needed(first_night: Night) -> None:
    done = {task for task, state in first_night.states.items() if state == "success"}
    assert done | _skipped(first_night) == set(TASKS)
    assert _skipped(first_night) <= {"stage_02.plan", "stage_02.run"}


def test_the_published_counts_are_those_of_a_counter(root: Path) -> None:
    words = [word for file in sorted((root / "words").glob("*.parquet")) for word in _column(file, "word")]
    expected = collections.Counter(words)
    table = pq.read_table(_published(root))
    assert dict(zip(table["word"].to_pylist(), table["occurrences"].to_pylist(), strict=True)) == expected
    totals = {word: len(word) * rows for word, rows in expected.items()}
    assert dict(zip(table["word"].to_pylist(), table["total"].to_pylist(), strict=True)) == totals


def test_the_ledger_balances(first_night: Night) -> None:
    run = first_night.run
    ledger = balance(run.job(), run.reports(), run.committed(RESULT_STEP).counts["rows"])
    assert (ledger.problems, ledger.input_rows) == ((), sum(COUNTS.values()))


@pytest.mark.long
@pytest.mark.parametrize("task", ["stage_01.run", "merge", "publish"])
def test_clearing_any_one_task_and_letting_it_run_leaves_the_same_result(
    first_night: Night, root: Path, task: str
) -> None:
    before = _contents(first_night.run, root)
    again = run_dag(first_night.dag, only={task, *_skipped(first_night)})
    assert again.states[task] == first_night.states[task]
    assert _contents(first_night.run, root) == before


@pytest.mark.long
def test_a_killed_driver_is_tried_again_and_the_result_is_the_same(first_night: Night, disturbed: Night) -> None:
    assert disturbed.states["stage_01.run"] == "success"
    attempts = disturbed.run.fs.ls(f"{disturbed.run.root}/stages/0001/attempts", detail=False)
    assert len(attempts) == 2
    assert _tables(disturbed.run) == _tables(first_night.run), "the same rows in the same order in the same files"


@pytest.mark.long
def test_failed_quality_is_told_leaves_its_report_and_the_day_that_was_published_before(
    root: Path, first_night: Night, disturbed: Night
) -> None:
    run = disturbed.run
    assert (disturbed.states["validate"], disturbed.states["publish"]) == ("failed", "upstream_failed")
    assert not run.exists("publish/published.json")
    assert run.job().output_path == first_night.run.job().output_path
    assert _folder(_published(root)) == sorted(_digests(first_night.run))
    (name,) = run.fs.glob(f"{run.root}/failures/validate-*.json")
    failure = run.read(str(name).removeprefix(f"{run.root}/"), Failure)
    assert failure.exit_code == 3
    assert failure.sentence.startswith("1 of ")
    assert "checks failed: occurrences: values between, max_value=5000 (1 of " in failure.sentence, (
        "one key is above the limit"
    )
    assert "; in self: 8,000); nothing of this run is published" in failure.sentence
    commit = run.committed(QUALITY_STEP)
    report = run.read(f"{commit.step}/attempts/{commit.attempt}/result.json", QualityReport)
    assert not report.success
    assert report.ledger.balanced


def _dag(spec: Mapping[str, object], root: Path, dags_folder: Path) -> DAG:
    """Write a spec and the DAG file that a catalog would have, and load it as Airflow does."""
    name = str(spec["name"])
    path = root / f"{name}.yaml"
    path.write_text(yaml.safe_dump(spec))
    file = dags_folder / f"{name}.py"
    file.write_text(f"# airflow\nfrom skewless_airflow.dags import build_dag\ndag = build_dag({str(path)!r})\n")
    return DagBag(file).dags[name]


def run_dag(dag: DAG, only: Collection[str] = ()) -> Night:
    """Run a DAG in this process; with ``only``, clear those tasks and let all others be done."""
    others = re.compile(f"(?!({'|'.join(map(re.escape, only))})$).*") if only else None
    done = dag.test(logical_date=NIGHT, run_after=NIGHT, mark_success_pattern=others)
    run_id = DagRun.generate_run_id(run_type=DagRunType.MANUAL, logical_date=NIGHT, run_after=NIGHT)
    states = {ti.task_id: str(ti.state) for ti in done.get_task_instances()}
    return Night(dag, RunDirectory(run_location(dag.dag_id, run_id)), states)


@contextmanager
def _killing(job: str, stage: int) -> Iterator[list[int]]:
    """Kill the JVM of a stage's driver once, as soon as its attempt has begun to write; yields the pids killed."""
    killed: list[int] = []
    over = threading.Event()
    attempts = Path(os.environ["SKEWLESS_ROOT"]) / "runs" / job

    def watch() -> None:
        while not killed and not over.wait(0.05):
            if not any(attempts.glob(f"*/stages/{stage:04d}/attempts/*")):
                continue
            for one in drivers_of(f"/runs/{job}/"):
                if one.name() == "java":
                    one.kill()
                    killed.append(one.pid)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield killed
    finally:
        over.set()
        watcher.join()


def _skipped(night: Night) -> set[str]:
    """The tasks that were not needed: cleared or not, they stay skipped, and must not count as done."""
    return {task for task, state in night.states.items() if state == "skipped"}


def _published(root: Path) -> Path:
    return root / "published" / "words" / "date=2026-11-20"


def _column(file: Path, name: str) -> list[str]:
    values: list[str] = pq.read_table(file, columns=[name])[name].to_pylist()
    return values


def _digests(run: RunDirectory) -> list[str]:
    files = run.committed(RESULT_STEP).of_kind("result")
    return [hashlib.sha256(run.fs.cat_file(f"{run.root}/{file.path}")).hexdigest() for file in files]


def _tables(run: RunDirectory) -> list[pa.Table]:
    files = run.committed(RESULT_STEP).of_kind("result")
    return [pq.read_table(f"{run.root}/{file.path}", partitioning=None) for file in files]


def _folder(folder: Path) -> list[str]:
    return sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("part-*"))


def _contents(run: RunDirectory, root: Path) -> tuple[list[str], list[str]]:
    return _digests(run), _folder(_published(root))
