"""Several clusters share the stages of a run: the answer of one alone, whoever is slow, sleeps or dies."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from skewless.documents.commit import STAGE_SHARES, SharedTask, StageShares
from skewless.errors import RunDirectoryError
from skewless.run.directory import RunDirectory, stage_step
from skewless_leases import Grant
from skewless_spark.result.merge import merge_states
from skewless_spark.sharing import share_stage
from skewless_spark.sharing.participation import ROUTING, Claims, lease_address
from tests.spark.clusters import await_that, leases, shares
from tests.spark.scenario import prepared, result_of, spec_of, write_input
from tests.spark.shared_runs import (
    DISTURBED,
    NATIVE,
    PACED_SUM,
    ROWS,
    clusters,
    counts,
    paced_run,
    plain_sums,
    require_the_answer_of_one_alone,
    shared_run,
    stages_done,
    sums_in_the_states,
)
from tests.spark.test_command import command
from tests.spark.test_forwarding import events
from tests.tiers import mostly_long


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
    assert after.fence(held) > before.fence(held)
    assert SharedTask.from_sealed(after.committed()[held].encode()).cluster == "other"
    assert f"partition {held}: expected fencing number {before.fence(held)} of sleeper-" in sleeper.log.read_text()
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


@pytest.mark.long
def test_the_command_runs_a_job_on_those_clusters_that_are_there(tmp_path: Path) -> None:
    write_input(tmp_path / "data" / "input", events(ROWS), files=4)
    (tmp_path / "spec.yaml").write_text(
        "{name: words, input: {path: input}, key: key, aggregates: {n: count}, engine: staged, output: {path: out}, "
        "sharing: {lease_seconds: 1}, routing: {reducers: 3, waves: [1, 3], first_plan: [last_run], stage_overhead: 0}}"
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


WRONG = {
    "a name twice": (["--cluster", "a=x", "--cluster", "a=y"], r"a name of its own .*'a' twice"),
    "beside a master": (["--cluster", "a=x", "--master", "y"], r"none beside --cluster.*'y'"),
    "all gone": (["--cluster", "a=spork://x"], r"a cluster that runs its stages.*none any more"),
}


@pytest.mark.parametrize("what", mostly_long(WRONG, "a name twice"))
def test_the_command_says_in_one_sentence_what_is_wrong_with_its_clusters(tmp_path: Path, what: str) -> None:
    given, said = WRONG[what]
    write_input(tmp_path / "data" / "input", events(100), files=1)
    (tmp_path / "spec.yaml").write_text(
        "{name: words, input: {path: input}, key: key, aggregates: {n: count}, output: {path: out}}"
    )
    done = command("run", "spec.yaml", *given, cwd=tmp_path)
    assert done.returncode in {1, 2}
    assert re.search(said, done.stderr.splitlines()[-1]), done.stderr


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
