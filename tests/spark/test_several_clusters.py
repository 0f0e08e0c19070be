"""Several clusters share the stages of a run: the answer of one alone, whoever is slow, sleeps or dies."""

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from skewless.documents.commit import STAGE_SHARES, SharedTask, StageShares
from skewless.errors import RunDirectoryError
from skewless.run.directory import RunDirectory, stage_step
from skewless.spec.spec import JobSpec
from skewless_leases import Grant
from skewless_spark.result.merge import merge_states
from skewless_spark.sharing import ROUTING, Claims, lease_address, share_stage
from tests.spark.clusters import ClusterProcess, await_that, leases, shares
from tests.spark.scenario import as_rows, prepared, reduce_job, result_of, spec_of, without_times, write_input
from tests.spark.test_forwarding import ORDERED, events, expected

ROWS = 6_000
#: Several stages, each but the last with a backlog.
STAGES = {"policy": "adaptive", "reducers": 5, "stage_overhead": 0, "budget": 1.0, "waves": [1, 2, 4], "first_plan": []}
NO_BUDGET = {"policy": "static", "reducers": 4, "waves": [1, 2], "first_plan": []}
NATIVE = {
    "n": "count",
    "total": {"function": "sum", "column": "at"},
    "mean": {"function": "avg", "column": "at"},
    "last_word": {"function": "max", "column": "word"},
    "different": {"function": "approx_count_distinct", "column": "at"},
}
SCENARIOS: dict[str, dict[str, Any]] = {
    "native": {"aggregates": NATIVE, "routing": STAGES},
    "python alone, no budget": {
        "aggregates": {"histogram": {"function": "streaming_histogram", "column": "at", "bins": 8}},
        "routing": NO_BUDGET,
    },
    "carried states": {"aggregates": ORDERED, "routing": STAGES},
    "carried states alone, no budget": {
        "aggregates": {name: ORDERED[name] for name in ("middle", "visits")},
        "routing": NO_BUDGET,
    },
    "mapped": {
        "aggregates": NATIVE,
        "map": {"select": ["explode(sequence(0, at % 3)) AS part", "key", "at", "word"], "where": "at % 5 > 0"},
        "routing": STAGES,
    },
}

#: Those in which one is killed, too; each of the others is a stage of its own kind.
DISTURBED = ("native", "carried states", "mapped")


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


def shared_run(folder: Path, scenario: str, **sharing: Any) -> tuple[RunDirectory, JobSpec]:
    fields = dict(SCENARIOS[scenario])
    path = write_input(folder / "input", events(ROWS), files=12)
    spec = spec_of(path, "key", fields.pop("aggregates"), sharing={"lease_seconds": 1, **sharing}, **fields)
    run = prepared(folder, spec, "shared")
    return run, spec


def stages_done(run: RunDirectory) -> bool:
    stage = run.committed_stages()
    return stage > 0 and run.exists(f"decisions/{stage:04d}.json") and run.decision(stage).next_plan is None


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


def paced_run(folder: Path, **fields: Any) -> RunDirectory:
    path = write_input(folder / "input", events(ROWS), files=12)
    routing = {"policy": "static", "reducers": 16, "waves": [1], "tokens": 64, "first_plan": []}
    spec = spec_of(path, "key", sharing={"lease_seconds": 1}, routing=routing, **fields)
    return prepared(folder, spec, "shared")


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


@pytest.mark.long
@pytest.mark.parametrize("scenario", ["native", "python alone, no budget", "carried states alone, no budget"])
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


@pytest.mark.long
def test_one_that_is_stopped_beyond_its_leases_is_fenced_out_when_it_wakes(packages: Path, tmp_path: Path) -> None:
    run = paced_run(tmp_path, aggregates=PACED_SUM)
    with (
        clusters(run, "sleeper", packages=packages, row_seconds=0.006) as (sleeper,),
        clusters(run, "other", packages=packages, row_seconds=0.003) as (other,),
    ):
        await_that(lambda: any(name.startswith("task-") for name in sleeper.holds(leases(run, 0))), sleeper, other)
        sleeper.signal(signal.SIGSTOP)
        before = leases(run, 0)
        (held,) = sleeper.holds(before)
        # Somebody else has done its task, and there are others left: the stage has not ended when it wakes.
        await_that(lambda: held in leases(run, 0).committed(), other)
        after = leases(run, 0)
        assert not run.committed_stages()
        sleeper.signal(signal.SIGCONT)
        assert sleeper.ended_well(), sleeper.log.read_text()
        assert other.ended_well(), other.log.read_text()
    assert after.of(held).fence > before.of(held).fence
    assert SharedTask.from_sealed(after.committed()[held].encode()).cluster == "other"
    assert f"partition {held}: expected fencing number {before.of(held).fence} of sleeper-" in sleeper.log.read_text()
    assert leases(run, 0).committed()[held] == after.committed()[held]
    assert sums_in_the_states(run) == plain_sums()


@pytest.mark.long
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


@pytest.mark.long
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


def test_a_stage_that_combines_rows_where_they_are_read_is_run_by_one_of_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = write_input(tmp_path / "input", events(ROWS), files=4)
    spec = spec_of(path, "key", NATIVE, engine="combine", sharing={"lease_seconds": 1})
    run = prepared(tmp_path, spec, "shared")
    share_stage(spark, run, 0, "east")
    assert share_stage(spark, run, 0, "west") == run.report(0)
    require_the_answer_of_one_alone(spark, run, spec, tmp_path)


def test_leases_are_where_every_cluster_finds_them_or_there_are_none() -> None:
    near, far = RunDirectory("/lake/runs/r"), RunDirectory("memory://runs/r")
    assert lease_address(near, 3) == "/lake/runs/r/stages/0003/leases"
    with pytest.raises(RunDirectoryError, match="an object store, for the leases"):
        lease_address(far, 0)


def test_grants_are_begun_in_the_order_of_their_names() -> None:
    claims = Claims()
    for name in ("task-2", "task-0", "task-1"):
        claims.granted(Grant(name, 1, "a"))
    assert [one.partition for _ in range(3) if (one := claims.next(0))] == ["task-0", "task-1", "task-2"]
    assert claims.next(0) is None


def test_what_waits_or_is_prepared_is_given_back_and_what_was_begun_is_not() -> None:
    claims = Claims()
    begun, prepared, waiting = (Grant(f"task-{number}", 1, "a") for number in range(3))
    for grant in (begun, prepared, waiting):
        claims.granted(grant)
    assert claims.next(0) == begun
    assert claims.begin(begun)
    assert not claims.asked_back(begun)
    assert claims.next(0) == prepared
    assert claims.asked_back(prepared)
    assert not claims.begin(prepared)
    assert claims.asked_back(waiting)
    assert claims.next(0) is None


def test_what_was_lost_is_not_begun_but_a_later_grant_of_it_is() -> None:
    claims = Claims()
    first, second = Grant("task-0", 1, "a"), Grant("task-0", 3, "a")
    claims.granted(first)
    claims.lost(first)
    assert claims.next(0) is None
    claims.granted(second)
    claims.lost(first)
    assert claims.next(0) == second
    claims.lost(first)
    assert not claims.begin(first)
    assert claims.begin(second)
