"""The run directory that a Spark run would have left, from a run that was reduced by arithmetic alone."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from airflow.models.dagrun import DagRun
from airflow.utils.types import DagRunType

from benchmarks.simulation import Simulation
from skewless.documents.ledger import balance
from skewless.documents.quality import Check, QualityReport
from skewless.run.directory import QUALITY_REPORT, QUALITY_STEP, RESULT_STEP, STAGE_REPORT, RunDirectory, stage_step
from skewless_airflow.run_store import run_location

NIGHT = dt.datetime(2026, 11, 20, 2, tzinfo=dt.UTC)


def record(played: Simulation, dag_id: str, night: dt.datetime = NIGHT, turn: int = 1) -> RunDirectory:
    """Plan 0 and the committed stages of a run that Airflow would have triggered by hand; no decision yet."""
    run_id = DagRun.generate_run_id(run_type=DagRunType.MANUAL, logical_date=night, run_after=night)
    run = RunDirectory(run_location(dag_id, run_id))
    run.write_once("job.json", played.job.model_copy(update={"turn": turn}))
    run.write_once("plans/0000.json", played.plans[0])
    for report in played.reports:
        attempt = run.new_attempt(stage_step(report.stage))
        attempt.write(STAGE_REPORT, report)
        attempt.commit([], {"processed_rows": report.processed_rows})
    return run


def validate(run: RunDirectory, counts: dict[str, int]) -> None:
    result = run.new_attempt(RESULT_STEP)
    path = Path(result.path("part.parquet"))
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"key": list(counts), "occurrences": list(counts.values())}), path)
    rows = sum(counts.values())
    file = result.described("result", str(path), len(counts))
    result.commit([file], {"rows": rows, "keys": len(counts)})
    quality = run.new_attempt(QUALITY_STEP)
    check = Check(subject="result", expectation="expect_x", column="", success=True, observed="", found="good")
    ledger = balance(run.job(), run.reports(), rows)
    quality.write(QUALITY_REPORT, QualityReport(success=True, keys=len(counts), checks=(check,), ledger=ledger))
    quality.commit([], {})
