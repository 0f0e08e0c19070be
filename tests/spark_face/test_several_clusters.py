"""Several clusters share the stages of a run: the answer of one alone, whoever is slow, stops or dies."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from skewless.errors import RunDirectoryError
from skewless.run_directory import RunDirectory, stage_step
from skewless.shared_stage import STAGE_SHARES, SharedTask, StageShares
from skewless.sharing_spec import Sharing
from skewless.spec import JobSpec
from skewless.stage_report import StageReport
from skewless_spark.columns import JobColumns
from skewless_spark.merge import merge_states
from skewless_spark.prepare import prepare
from skewless_spark.sharing import share_stage
from skewless_spark.sharing.participation import ROUTING, lease_address
from skewless_spark.stage import outcome
from tests.spark_face.clusters import ClusterProcess, await_that, install_paced, leases, shares
from tests.spark_face.scenario import DATE, as_rows, reduce_job, result_of, spec_of, write_input
from tests.spark_face.test_forwarding import ORDERED, events, expected

ROWS = 6_000
#: Several stages, each but the last with a backlog.
STAGES = {
    "policy": "adaptive",
    "reducers": 5,
    "stage_overhead": 0,
    "budget": 1.0,
    "waves": [1, 2, 4],
    "warm_start": False,
}
NO_BUDGET = {"policy": "static", "reducers": 4, "waves": [1, 2], "warm_start": False}
NATIVE = {
    "n": "count",
    "total": {"function": "sum", "column": "at"},
    "mean": {"function": "avg", "column": "at"},
    "last_word": {"function": "max", "column": "word"},
    "different": {"function": "approx_count_distinct", "column": "at"},
}
SCENARIOS: dict[str, dict[str, Any]] = {
    "native": {"aggregates": NATIVE, "routing": STAGES},
    "native, no budget": {"aggregates": NATIVE, "routing": NO_BUDGET},
    "python": {"aggregates": {"n": "count", "words": {"function": "value_counts", "column": "at"}}, "routing": STAGES},
    "python alone, no budget": {
        "aggregates": {"histogram": {"function": "streaming_histogram", "column": "at", "bins": 8}},
        "routing": NO_BUDGET,
    },
    "carried states": {"aggregates": ORDERED, "routing": STAGES},
    "carried states alone, no budget": {
        "aggregates": {name: ORDERED[name] for name in ("middle", "last_word")},
        "routing": NO_BUDGET,
    },
    "mapped": {
        "aggregates": NATIVE,
        "map": {"select": ["explode(sequence(0, at % 3)) AS part", "key", "at", "word"], "where": "at % 5 > 0"},
        "routing": STAGES,
    },
}


@contextmanager
def clusters(run: RunDirectory, *names: str, **how: Any) -> Iterator[list[ClusterProcess]]:
    found: list[ClusterProcess] = []
    try:
        # One by one, so that those that have been started end if the next one cannot be.
        for name in names:
            found.append(ClusterProcess(run, name, **how))  # noqa: PERF401
        yield found
    finally:
        for one in found:
            one.end()


def shared_run(folder: Path, scenario: str) -> tuple[RunDirectory, JobSpec]:
    fields = dict(SCENARIOS[scenario])
    path = write_input(folder / "input", events(ROWS), files=12)
    spec = spec_of(path, "key", fields.pop("aggregates"), sharing={"lease_seconds": 1}, **fields)
    run = RunDirectory(str(folder / "shared"))
    prepare(run, spec, DATE, str(folder))
    return run, spec


def stages_done(run: RunDirectory) -> bool:
    stage = run.committed_stages()
    return stage > 0 and run.exists(f"decisions/{stage:04d}.json") and run.decision(stage).next_plan is None


def without_times(report: StageReport) -> StageReport:
    tasks = tuple(load.model_copy(update={"busy_seconds": None, "slowness": None}) for load in report.tasks)
    histogram = report.histogram.model_copy(update={"head_seconds": {}, "tail_seconds": None})
    return report.model_copy(update={"stage_seconds": 0.0, "tasks": tasks, "histogram": histogram})


def require_the_answer_of_one_alone(spark: SparkSession, run: RunDirectory, spec: JobSpec, folder: Path) -> None:
    """The same plans, the same counts of each task and key, the same result; and that is what plain counting says."""
    merge_states(spark, run)
    alone, reports = reduce_job(spark, spec, folder / "alone")
    assert [without_times(report) for report in run.reports()] == [without_times(report) for report in reports]
    assert [run.plan(report.stage) for report in reports] == [alone.plan(report.stage) for report in reports]
    assert as_rows(result_of(run)) == as_rows(result_of(alone))
    result = {row["key"]: row for row in result_of(run).to_pylist()}
    counted = counts(events(ROWS), mapped=spec.map is not None)
    assert result.keys() == counted.keys()
    assert run.committed("result").counts["rows"] == counted.total()
    if "n" in spec.aggregates:
        assert {key: row["n"] for key, row in result.items()} == counted
    if "middle" in spec.aggregates:
        reference = expected(events(ROWS))
        assert {key: row["middle"] for key, row in result.items()} == {
            key: one["middle"] for key, one in reference.items()
        }


def counts(table: pa.Table, *, mapped: bool) -> Counter[str | None]:
    found: Counter[str | None] = Counter()
    for row in table.to_pylist():
        found[row["key"]] += (row["at"] % 3 + 1 if row["at"] % 5 else 0) if mapped else 1
    return +found


#: Those in which one is killed, too; each of the others is a stage of its own kind.
DISTURBED = ("native", "python", "carried states", "mapped")


@pytest.mark.parametrize("scenario", ["native", *(name for name in SCENARIOS if name not in DISTURBED)])
def test_two_clusters_share_a_run_and_say_what_one_alone_says(
    spark: SparkSession, tmp_path: Path, scenario: str
) -> None:
    run, spec = shared_run(tmp_path, scenario)
    with clusters(run, "east", "west") as both:
        assert all(one.ended_well() for one in both), [one.log.read_text() for one in both]
    assert stages_done(run)
    assert set(shares(run)) == {"east", "west"}
    if scenario in DISTURBED:
        assert any(report.backlog_rows for report in run.reports())
    require_the_answer_of_one_alone(spark, run, spec, tmp_path)


@pytest.mark.parametrize("scenario", DISTURBED)
def test_one_that_is_killed_in_the_middle_of_a_task_is_replaced(
    spark: SparkSession, tmp_path: Path, scenario: str
) -> None:
    run, spec = shared_run(tmp_path, scenario)
    with clusters(run, "east", "west") as (east, west):

        def at_work() -> bool:
            stage = run.committed_stages()
            if stage == 0 or not run.exists(f"plans/{stage:04d}.json"):
                return False
            assert not stages_done(run)
            return any(name.startswith("task-") for name in east.holds(leases(run, stage)))

        await_that(at_work, east, west)
        east.kill_driver()
        assert west.ended_well(), west.log.read_text()
    assert stages_done(run)
    require_the_answer_of_one_alone(spark, run, spec, tmp_path)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose aggregate and mapper take their time, where this process and the clusters find it."""
    folder = install_paced(tmp_path / "packages")
    monkeypatch.syspath_prepend(str(folder))
    return folder


def paced_run(folder: Path, **fields: Any) -> RunDirectory:
    path = write_input(folder / "input", events(ROWS), files=12)
    routing = {"policy": "static", "reducers": 16, "waves": [1], "tokens": 64, "warm_start": False}
    spec = spec_of(path, "key", sharing={"lease_seconds": 1}, routing=routing, **fields)
    run = RunDirectory(str(folder / "shared"))
    prepare(run, spec, DATE, str(folder))
    return run


PACED_SUM = {"total": {"function": "paced_sum", "column": "at"}}


def sums_in_the_states(run: RunDirectory) -> Counter[str | None]:
    """What the committed states add up to, read without any code of ours."""
    files = [file for stage in range(run.committed_stages()) for file in run.committed(stage_step(stage)).files]
    found: Counter[str | None] = Counter()
    for file in files:
        if file.kind == "python":
            for row in pq.ParquetFile(run.path(file.path)).read(["c0", "s0_0"]).to_pylist():
                found[row["c0"]] += row["s0_0"]
    return found


def plain_sums() -> Counter[str | None]:
    found: Counter[str | None] = Counter()
    for row in events(ROWS).to_pylist():
        found[row["key"]] += row["at"]
    return found


def test_the_faster_one_does_more(packages: Path, tmp_path: Path) -> None:
    run = paced_run(tmp_path, aggregates=PACED_SUM)
    with (
        clusters(run, "slow", packages=packages, row_seconds=0.006) as (slow,),
        clusters(run, "fast", packages=packages) as (fast,),
    ):
        assert fast.ended_well(), fast.log.read_text()
        assert slow.ended_well(), slow.log.read_text()
    done = shares(run)
    assert done["fast"] > 2 * done["slow"] >= 2
    assert sums_in_the_states(run) == plain_sums()


def test_one_that_is_stopped_beyond_its_leases_is_fenced_out_when_it_wakes(packages: Path, tmp_path: Path) -> None:
    run = paced_run(tmp_path, aggregates=PACED_SUM)
    with (
        clusters(run, "sleeper", packages=packages, row_seconds=0.006) as (sleeper,),
        clusters(run, "other", packages=packages) as (other,),
    ):
        await_that(lambda: any(name.startswith("task-") for name in sleeper.holds(leases(run, 0))), sleeper, other)
        sleeper.signal(signal.SIGSTOP)
        before = leases(run, 0)
        (held,) = sleeper.holds(before)
        assert other.ended_well(), other.log.read_text()
        committed = run.committed(stage_step(0)).to_json()
        after = leases(run, 0)
        assert after.fence(held) > before.fence(held)
        assert SharedTask.from_sealed(after.committed()[held].encode()).cluster == "other"
        sleeper.signal(signal.SIGCONT)
        assert sleeper.ended_well(), sleeper.log.read_text()
    assert "to be the last one granted" in sleeper.log.read_text()
    assert run.committed(stage_step(0)).to_json() == committed
    assert leases(run, 0).allocations[held] == after.allocations[held]
    assert sums_in_the_states(run) == plain_sums()


def test_one_that_dies_with_its_machine_while_it_routes_is_replaced(
    spark: SparkSession, packages: Path, tmp_path: Path
) -> None:
    run = paced_run(tmp_path, aggregates={"n": "count"}, map={"mapper": "up_to_twice"})
    with clusters(run, "router", packages=packages, row_seconds=0.01) as (router,):
        await_that(lambda: ROUTING in router.holds(leases(run, 0)), router)
        with clusters(run, "other", packages=packages) as (other,):
            router.signal(signal.SIGKILL)  # its heartbeat, too: nobody can say that it has gone
            assert other.ended_well(), other.log.read_text()
    commit = run.committed(stage_step(0))
    assert run.committed_document(commit, STAGE_SHARES, StageShares).routed_by == "other"
    merge_states(spark, run)
    counted: Counter[str | None] = Counter()
    for row in events(ROWS).to_pylist():
        counted[row["key"]] += row["at"] % 3
    assert {row["key"]: row["n"] for row in result_of(run).to_pylist()} == +counted


def test_a_stage_that_nobody_shares_has_no_trace_of_others(spark: SparkSession, tmp_path: Path) -> None:
    _, spec = shared_run(tmp_path, "python")
    run, reports = reduce_job(spark, spec, tmp_path / "alone")
    for report in reports:
        folder = Path(run.path(stage_step(report.stage)))
        assert {path.name for path in folder.iterdir()} == {"COMMIT.json", "attempts"}
        (attempt,) = (folder / "attempts").iterdir()
        visible = {path.name for path in attempt.iterdir() if not path.name.startswith((".", "_"))}
        assert visible - {"kind=backlog"} == {"kind=native", "kind=python", "report.json"}
    plan, columns = run.plan(1), JobColumns.of(run.job())
    executed = outcome(spark, run, columns, plan)._jdf.queryExecution().executedPlan().toString()
    assert len([line for line in executed.splitlines() if "Exchange shufflepartitionid" in line]) >= 1
    assert "Coalesce" not in executed


def test_a_stage_that_combines_rows_where_they_are_read_is_run_by_one_of_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = write_input(tmp_path / "input", events(ROWS), files=4)
    spec = spec_of(path, "key", NATIVE, engine="combine", sharing={"lease_seconds": 1})
    run = RunDirectory(str(tmp_path / "shared"))
    prepare(run, spec, DATE, str(tmp_path))
    share_stage(spark, run, 0, "east")
    assert share_stage(spark, run, 0, "west") == run.report(0)
    require_the_answer_of_one_alone(spark, run, spec, tmp_path)


COMMAND = [sys.executable, "-m", "skewless_spark.cli"]


def command(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, words)], cwd=cwd, capture_output=True, text=True, check=False)


def test_the_command_runs_a_job_on_those_clusters_that_are_there(tmp_path: Path) -> None:
    write_input(tmp_path / "data" / "input", events(ROWS), files=4)
    (tmp_path / "spec.yaml").write_text(
        "{name: words, input: {path: input}, key: key, aggregates: {n: count}, engine: staged, output: {path: out}, "
        "sharing: {lease_seconds: 1}, routing: {reducers: 3, waves: [1, 3], key_sample: false, stage_overhead: 0}}"
    )
    given = ["--cluster", "nowhere=spork://nowhere", "--cluster", "here=local[1]", "--run-dir", "run", "--json"]
    done = command("run", "spec.yaml", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["ledger"]["balanced"]
    assert all(set(stage["clusters"]) == {"here"} for stage in told["stages"])
    assert "virtual tasks of stage 0: 3 by here" in command("show", "run", cwd=tmp_path).stdout
    run = RunDirectory(str(tmp_path / "run"))
    assert set(shares(run)) == {"here"}
    assert {row["key"]: row["n"] for row in result_of(run).to_pylist()} == counts(events(ROWS), mapped=False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(["--cluster", "east"], r"NAME=MASTER, like .*'east'", id="no master"),
        pytest.param(["--cluster", "a=x", "--cluster", "a=y"], r"a name of its own .*'a' twice", id="a name twice"),
        pytest.param(["--cluster", "a/b=x"], r"at most 50 letters.*'a/b'", id="no name"),
        pytest.param(["--cluster", "a=x", "--master", "y"], r"none beside --cluster.*'y'", id="beside a master"),
        pytest.param(["--cluster", "a=spork://x"], r"a cluster that runs its stages.*none any more", id="all gone"),
    ],
)
def test_the_command_says_in_one_sentence_what_is_wrong_with_its_clusters(
    tmp_path: Path, given: list[str], said: str
) -> None:
    write_input(tmp_path / "data" / "input", events(100), files=1)
    (tmp_path / "spec.yaml").write_text(
        "{name: words, input: {path: input}, key: key, aggregates: {n: count}, output: {path: out}}"
    )
    done = command("run", "spec.yaml", *given, cwd=tmp_path)
    assert done.returncode in {1, 2}
    assert re.search(said, done.stderr.splitlines()[-1]), done.stderr


def test_a_stage_without_rows_is_shared_too(spark: SparkSession, tmp_path: Path) -> None:
    path = write_input(tmp_path / "input", events(100).slice(0, 0), files=1)
    run = RunDirectory(str(tmp_path / "shared"))
    prepare(run, spec_of(path, "key", NATIVE, sharing={"lease_seconds": 0.5}), DATE, str(tmp_path))
    share_stage(spark, run, 0, "east")
    assert run.report(0).processed_rows == 0
    assert share_stage(spark, run, 0, "west") == run.report(0)
    assert run.decide(1).next_plan is None
    merge_states(spark, run)
    assert result_of(run).num_rows == 0


def test_leases_are_where_every_cluster_finds_them_or_there_are_none() -> None:
    near, far = RunDirectory("/lake/runs/r"), RunDirectory("memory://runs/r")
    redis = Sharing(store="redis://leases:6379/1")
    assert lease_address(near, 3, Sharing()) == "/lake/runs/r/stages/0003/leases"
    addresses = {lease_address(run, stage, redis) for run in (near, far) for stage in (0, 1)}
    assert len(addresses) == 4
    assert all(address.startswith("redis://leases:6379/1#") for address in addresses)
    with pytest.raises(RunDirectoryError, match=r"for leases in files.*name a Redis"):
        lease_address(far, 0, Sharing())
