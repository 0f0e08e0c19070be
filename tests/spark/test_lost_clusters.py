"""A cluster that dies while it shares a run is replaced: the answer is that of one alone."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from skewless.documents.shared_stage import STAGE_SHARES, StageShares
from skewless.run.directory import stage_step
from skewless_spark.result.merge import merge_states
from skewless_spark.sharing.participation import ROUTING
from tests.spark.clusters import await_that, leases
from tests.spark.scenario import result_of
from tests.spark.shared_runs import (
    DISTURBED,
    ROWS,
    clusters,
    paced_run,
    require_the_answer_of_one_alone,
    shared_run,
    stages_done,
)
from tests.spark.test_forwarding import events

pytestmark = pytest.mark.long


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
