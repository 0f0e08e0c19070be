"""Skewless itself: a spec, a run directory, and the same steps that Airflow runs one by one.

Timed are ``prepare``, which lists the input and samples its keys, the stages, the decisions between them, and the
merge: from a spec to its committed result. That is what a peer does from its first line to its written result.
``validate`` and ``publish`` are timed apart: nobody who writes a job by hand has expectations or a publication.
"""

from __future__ import annotations

import datetime as dt
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from pyspark.sql import SparkSession

from benchmarks.spark.cell import Cell, Place
from skewless.bounds import run_certificate
from skewless.documents.stage_report import StageReport
from skewless.publication.publish import require_passed
from skewless.run.directory import RunDirectory, stage_step
from skewless.spec.reading import parse_spec
from skewless.spec.spec import JobSpec
from skewless_spark.entries.pipeline import run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.quality.validate import validate
from skewless_spark.result.merge import merge_states, publish_now
from skewless_spark.states.committed_files import BACKLOG, EVALUATED, NATIVE, PYTHON, counting

DATE = dt.date(2026, 11, 20)


@dataclass(frozen=True)
class Skewless:
    """Ours, with an engine forced or chosen.

    Attributes:
        engine: as in a spec, ``auto`` where the job may choose.
    """

    engine: str = "staged"

    @property
    def name(self) -> str:
        """See ``Peer``."""
        return f"skewless {self.engine}"

    def run(self, spark: SparkSession, cell: Cell, place: Place) -> Mapping[str, float]:
        """See ``Peer``."""
        run = RunDirectory(str(place.scratch / "run"))
        figures: dict[str, float] = {}
        timed(figures, "prepare_seconds", lambda: prepare(run, self.spec(cell, place), DATE, str(place.scratch)))
        timed(figures, "stages_seconds", lambda: run_stages(spark, run))
        timed(figures, "merge_seconds", lambda: merge_states(spark, run))
        figures["wall_seconds"] = sum(figures[f"{step}_seconds"] for step in ("prepare", "stages", "merge"))
        timed(figures, "validate_seconds", lambda: require_passed(run, validate(spark, run)))
        timed(figures, "publish_seconds", lambda: publish_now(run))
        figures |= _counted(run)
        if not run.job().splittable:
            figures["owners_of_a_key"] = _owners_of_a_key(run)
        place.output.mkdir()
        for file in run.committed("result").files:
            shutil.copy(run.path(file.path), place.output)
        return figures

    def spec(self, cell: Cell, place: Place) -> JobSpec:
        """The spec of a cell, as it would be in the catalog."""
        raw = {
            "name": "benchmark",
            "input": {"path": str(place.input)},
            "key": "key",
            "aggregates": {name: dict(call) for name, call in cell.aggregates.items()},
            "engine": self.engine,
            "routing": {"reducers": cell.slots, "first_plan": ["sample"], **cell.routing},
            "output": {"path": str(place.scratch / "published")},
        }
        return parse_spec(yaml.safe_dump(raw, sort_keys=False))


def timed(figures: dict[str, float], name: str, step: Callable[[], object]) -> None:
    """Do something, and note how many seconds it took."""
    started = time.perf_counter()
    step()
    figures[name] = time.perf_counter() - started


def _owners_of_a_key(run: RunDirectory) -> int:
    """The most tasks that one key is in, in one stage."""
    most = 0
    for stage in range(run.committed_stages()):
        tables = [
            pq.read_table(run.path(file.path), columns=["c0", "task", "rows"])
            for file in counting(run.committed(stage_step(stage)).files)
        ]
        states = pa.concat_tables(tables)
        counts = states.filter(pc.field("rows") > 0).group_by("c0").aggregate([("task", "count_distinct")])
        most = max(most, pc.max(counts["task_count_distinct"]).as_py() or 0)
    return most


def _states(run: RunDirectory, report: StageReport) -> int:
    """Pairs of key and task, or of key and input split, that have a state."""
    if report.tasks:
        return sum(task.states for task in report.tasks)
    made = [split.states for split in report.splits if split.states is not None]
    if made and len(made) == len(report.splits):
        return sum(made)
    commit = run.committed(stage_step(report.stage))
    return sum(file.rows for file in commit.of_kind(PYTHON) or counting(commit.files))


def _counted(run: RunDirectory) -> dict[str, float]:
    """What the run directory says: its reports and commits, nothing estimated."""
    reports = run.reports()
    files = [file for stage in range(len(reports)) for file in run.committed(stage_step(stage)).files]
    return {
        "stages": len(reports),
        "load_rows": run_certificate(run.job(), reports).makespan_rows or 0.0,
        "largest_task_rows": max(
            [load.rows for report in reports for load in report.splits]
            + [load.processed_rows for report in reports for load in report.tasks]
        ),
        "rows_forwarded": sum(report.forwarded_rows for report in reports),
        "rows_left_over": sum(report.backlog_rows for report in reports),
        "partial_states": sum(_states(run, report) for report in reports),
        "state_bytes": sum(file.size_bytes for file in files if file.kind in {EVALUATED, NATIVE, PYTHON}),
        "backlog_bytes": sum(file.size_bytes for file in files if file.kind == BACKLOG),
        "in_stages_seconds": sum(report.stage_seconds for report in reports),
    }
