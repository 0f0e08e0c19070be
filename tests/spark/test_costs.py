"""The bill of a run, beside the event log that Spark itself writes of the same jobs."""

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from skewless.errors import LedgerError
from skewless.planner.planner import plan_next_stage
from skewless.run.directory import RunDirectory, stage_step
from skewless.run.step_times import bill_of
from skewless_spark.engines import stage
from skewless_spark.engines.stage import run_stage
from skewless_spark.entries.pipeline import run_pipeline, run_stages
from skewless_spark.result.merge import merge_states
from skewless_spark.session.versions import here
from skewless_spark.stage.routes import Stage, drawn_queue, routed_queue, unrouted_queue
from skewless_spark.states.committed_files import BACKLOG
from skewless_spark.states.job_columns import JobColumns
from tests.spark.scenario import as_rows, prepared, reduce_job, result_of, spec_of, write_input
from tests.spark.test_pipeline import skewed
from tests.tiers import mostly_long

SLOTS = 2
ROW_SECONDS = 0.0004
#: Of a bill beside the log.
NEAR = 0.05


@contextmanager
def event_log(spark: SparkSession, folder: Path) -> Iterator[list[dict[str, Any]]]:
    """The events of the block, as Spark's listener (``spark.eventLog.enabled``) writes them: lines of JSON."""
    folder.mkdir()
    context: Any = spark.sparkContext._jsc.sc()
    jvm: Any = spark.sparkContext._jvm
    settings = context.getConf().set("spark.eventLog.compress", "false").set("spark.eventLog.rolling.enabled", "false")
    ident, none, place = spark.sparkContext.applicationId, jvm.scala.Option.empty(), jvm.java.net.URI(folder.as_uri())
    log = jvm.org.apache.spark.scheduler.EventLoggingListener(ident, none, place, settings)
    events: list[dict[str, Any]] = []
    log.start()
    context.addSparkListener(log)
    try:
        yield events
        context.listenerBus().waitUntilEmpty()
    finally:
        context.removeSparkListener(log)
        log.stop()
    events += [json.loads(line) for path in folder.iterdir() for line in path.read_text().splitlines()]


def ended_tasks(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in events if one["Event"] == "SparkListenerTaskEnd"]


def used(tasks: list[dict[str, Any]]) -> float:
    metrics = [one["Task Metrics"] for one in tasks]
    return sum(one["Executor Run Time"] + one["Executor Deserialize Time"] for one in metrics) / 1000


def waited(tasks: list[dict[str, Any]]) -> float:
    """Core-seconds without a task once the last one was launched, by sweeping over the moments at which tasks end.

    Of the tasks of a Spark stage, or of several that ran at the same time.
    """
    stages = defaultdict(list)
    for one in tasks:
        stages[one["Stage ID"]].append((one["Task Info"]["Launch Time"], one["Task Info"]["Finish Time"]))
    together: list[list[tuple[int, int]]] = []
    for spans in sorted(stages.values(), key=min):
        if together and min(spans)[0] < max(end for _, end in together[-1]):
            together[-1] += spans
        else:
            together.append(spans)
    total = 0
    for spans in together:
        last = max(begin for begin, _ in spans)
        moments = sorted({last, *(end for _, end in spans if end > last)})
        for begin, end in pairwise(moments):
            running = sum(start <= begin < stop for start, stop in spans)
            # Spark frees a core before it stamps the end of its task: more may seem to run than there are cores.
            total += max(0, min(SLOTS, len(spans)) - running) * (end - begin)
    return total / 1000


def skewed_input(folder: Path) -> Path:
    weights = np.arange(1, 301) ** -1.5
    drawn = np.random.default_rng(5).choice(300, 3_000, p=weights / weights.sum())
    table = pa.table({"key": [f"key-{number}" for number in drawn], "at": pa.array([1] * len(drawn), pa.int64())})
    return write_input(folder / "input", table, files=3)


@pytest.mark.parametrize(
    ("function", "engine"), mostly_long(product(("sum", "paced_sum"), ("staged", "combine")), ("sum", "staged"))
)
def test_the_bill_is_that_of_the_event_log(
    spark: SparkSession, tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch, engine: str, function: str
) -> None:
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(packages))
    monkeypatch.setitem(spark.sparkContext.environment, "PACE_ROW_SECONDS", str(ROW_SECONDS))
    aggregates = {"total": {"function": function, "column": "at"}}
    routing = {"policy": "static", "reducers": SLOTS}
    spec = spec_of(skewed_input(tmp_path), "key", aggregates, engine=engine, routing=routing)
    run = prepared(tmp_path, spec)
    with event_log(spark, tmp_path / "events") as events:
        run_pipeline(spark, run)
    tasks, bill = ended_tasks(events), bill_of(run)
    found = bill.counted
    assert found.used == pytest.approx(used(tasks), rel=NEAR)
    assert found.skew == pytest.approx(waited(tasks), rel=NEAR, abs=0.01)
    assert found.shuffle_bytes == sum(
        one["Task Metrics"]["Shuffle Write Metrics"]["Shuffle Bytes Written"] for one in tasks
    )
    assert found.spilled_bytes == sum(one["Task Metrics"]["Disk Bytes Spilled"] for one in tasks)
    assert sum(one.tasks for _, one in bill.steps) == len(tasks)
    assert found.held == pytest.approx(found.used + found.idle + found.skew)
    assert [name for name, _ in bill.steps] == [
        *(f"stage {number}" for number in range(run.committed_stages())),
        "merge",
        "validate",
    ]
    assert (bill.lost, bill.unknown) == ((), 0)


def test_a_stage_tried_again_counts_once_and_the_lost_try_apart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(tmp_path, spec_of(skewed_input(tmp_path), "key", {"n": "count"}))

    def unbalanced(*_: object) -> None:
        raise LedgerError("stage 0", "3,000 rows", "2,999", "nothing was committed")

    with event_log(spark, tmp_path / "events") as events:
        with monkeypatch.context() as once:
            once.setattr(stage, "require_kept", unbalanced)
            with pytest.raises(LedgerError):
                run_stages(spark, run)
        run_stages(spark, RunDirectory(str(run)))
    bill = bill_of(run)
    (name, lost), (again, counted) = bill.lost[0], bill.steps[0]
    assert (name, again, len(bill.lost), bill.unknown) == ("stage 0", "stage 0", 1, 0)
    assert counted.attempts == (run.committed("stages/0000").attempt,) != lost.attempts
    assert lost.used_seconds + bill.counted.used == pytest.approx(used(ended_tasks(events)), rel=NEAR)
    assert lost.tasks == counted.tasks
    assert bill.lost_seconds > lost.used_seconds > 0


# What a stage costs in Spark whatever its rows: counts, which do not depend on the machine as seconds do.

NATIVE = {"n": "count", "most": {"function": "max", "column": "value"}}
PYTHON = {"histogram": {"function": "streaming_histogram", "column": "value"}}
BOTH = {**NATIVE, **PYTHON}
BUDGET = {"reducers": 4, "waves": [1, 2], "stage_overhead": 0, "first_plan": [], "budget": 1.0}
NO_BUDGET = {"policy": "static", "reducers": 4, "waves": [1, 2], "first_plan": []}

Aggregates = dict[str, Any]


#: The write, and a job for each of two tables that are broadcast: the input's files, and the slots of the ring.
MOST_JOBS = 3


@pytest.mark.parametrize(
    ("aggregates", "routing", "reads"),
    mostly_long(
        [
            (NATIVE, BUDGET, 2),
            (NATIVE, NO_BUDGET, 1),
            (PYTHON, BUDGET, 3),
            (PYTHON, NO_BUDGET, 1),
            (BOTH, BUDGET, 3),
            (BOTH, NO_BUDGET, 2),
        ],
        (BOTH, BUDGET, 3),
    ),
    ids=["native, budget", "native", "python, budget", "python", "both, budget", "both"],
)
def test_a_routed_stage_is_one_query_of_few_jobs(
    spark: SparkSession, few_skewed: Path, tmp_path: Path, aggregates: Aggregates, routing: dict[str, Any], reads: int
) -> None:
    _, reports = reduce_job(spark, spec_of(few_skewed, "key", aggregates, routing=routing), tmp_path / "run")
    for report in reports:
        work = report.work
        assert work
        assert work.executions == (here() >= (4, 0))
        assert work.jobs <= MOST_JOBS
        # Rows take a partition for each of their tasks; a few states in place of rows do not.
        assert work.tasks > len(report.tasks) or (aggregates, routing) == (NATIVE, NO_BUDGET)
        assert 0 < work.shuffle_bytes_read <= (reads + 0.1) * work.shuffle_bytes_written


@pytest.mark.long
def test_a_stage_without_a_wave_reads_what_was_left_over_and_nothing_else(
    spark: SparkSession, few_skewed: Path, tmp_path: Path
) -> None:
    routing = {**BUDGET, "waves": [1]}
    run = prepared(tmp_path, spec_of(few_skewed, "key", NATIVE, routing=routing))
    run_stage(spark, run, 0)
    plan = run.decide(1, plan_next_stage).next_plan
    assert plan is not None
    assert not run.job().admitted_units(plan.waves)
    columns = JobColumns.of(run.job())
    left_over = [file.rows for file in run.committed(stage_step(0)).of_kind(BACKLOG)]
    for queue in (routed_queue, drawn_queue, unrouted_queue):
        rows = queue(Stage(spark, run, columns, plan))
        assert rows.count() == sum(left_over) > 0
        assert "LogicalRDD" not in str(rows._jdf.queryExecution().logical()), "a frame without rows"


@pytest.mark.parametrize("aggregates", mostly_long([NATIVE, PYTHON, BOTH], BOTH), ids=["native", "python", "both"])
def test_a_stage_that_combines_is_one_query_and_reads_what_it_shuffles_once(
    spark: SparkSession, few_skewed: Path, tmp_path: Path, aggregates: Aggregates
) -> None:
    _, (report,) = reduce_job(spark, spec_of(few_skewed, "key", aggregates, engine="combine"), tmp_path / "run")
    assert report.work
    assert (report.work.executions, report.work.jobs) == (here() >= (4, 0), 1)
    assert report.work.shuffle_bytes_read == report.work.shuffle_bytes_written


def jobs_of_merge(spark: SparkSession, run: RunDirectory) -> list[int]:
    """The stages of each Spark job of a merge that is done anew."""
    merged = as_rows(result_of(run))
    (Path(run.root) / "result" / "COMMIT.json").unlink()
    adaptive = spark.conf.get("spark.sql.adaptive.enabled")
    group = f"merge of {run.root}"
    spark.sparkContext.setJobGroup(group, group)
    try:
        merge_states(spark, run)
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", "")
    assert spark.conf.get("spark.sql.adaptive.enabled") == adaptive
    assert as_rows(result_of(run)) == merged
    tracker = spark.sparkContext.statusTracker()
    infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    return [len(info.stageIds) for info in infos if info]


@pytest.fixture(scope="module")
def without_null(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = skewed(10_000)
    return write_input(tmp_path_factory.mktemp("skewed") / "input", table.filter(table["key"].is_valid()), files=8)


@pytest.mark.parametrize(
    ("aggregates", "engine", "waves", "jobs"),
    mostly_long(
        [
            (NATIVE, "combine", [1, 2], []),
            (NATIVE, "staged", [3], []),
            (NATIVE, "staged", [1, 2], [2]),
            (PYTHON, "staged", [1, 2], [2]),
            (BOTH, "staged", [3], [2]),
        ],
        (NATIVE, "combine", [1, 2], []),
    ),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_merge_runs_no_job_where_the_stage_has_evaluated_and_one_elsewhere(
    spark: SparkSession,
    without_null: Path,
    tmp_path: Path,
    aggregates: Aggregates,
    engine: str,
    waves: list[int],
    jobs: list[int],
) -> None:
    routing = {"policy": "static", "reducers": 4, "waves": waves, "first_plan": []}
    run, _ = reduce_job(
        spark, spec_of(without_null, "key", aggregates, engine=engine, routing=routing), tmp_path / "run"
    )
    assert jobs_of_merge(spark, run) == jobs
