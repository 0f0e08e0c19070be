"""B8: the seconds of a run in Airflow that are not Spark's work, with a Spark of its own and by Spark Connect.

A small job is run as a DAG by the Airflow of `make up`, once in each way in turn, beside a DAG whose tasks do nothing.
Spark's own event log tells when a Spark job ran; all other seconds, from the end of one task of the DAG to the end of
the next, are what this is about. Between two stages they count from the last Spark job of one to the first of the next.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.local_airflow import RUN_SECONDS, run_to_end
from benchmarks.overhead_page import page, sentence
from benchmarks.result_files import RESULTS, write_results
from deploy.local import standalone

NAME = "b8_overhead"
REPETITIONS = 5
ROWS, KEYS, FILES, SEED = 200_000, 1_000, 16, 8
DAG = "overhead"
#: What a run is triggered with. A run with a size of its own has a Spark of its own: see docs/spark_connect.md.
OWN, CONNECT = "a Spark of its own", "Spark Connect"
WAYS: Mapping[str, Mapping[str, str]] = {OWN: {"driver_memory": "2g"}, CONNECT: {}}
STAGES = ("stage_00.run", "stage_01.run")
EMPTY = "empty"
#: Tasks in a row, of which each notes when it did nothing.
_EMPTY_DAG = """# airflow
import time
from airflow.sdk import DAG, BaseOperator

class Nothing(BaseOperator):
    def execute(self, context):
        with open({times!r}, "a") as out:
            out.write(f"{{self.task_id}} {{time.time()}}\\n")

with DAG({name!r}, schedule=None):
    before = None
    for name in {tasks!r}:
        task = Nothing(task_id=name)
        if before is not None:
            before >> task
        before = task
"""
_CATALOG_DAGS = """# airflow
from skewless_airflow.dags.catalog import read_catalog
globals().update(read_catalog().dags)
"""


@dataclass(frozen=True)
class Step:
    """One task of a run.

    Attributes:
        task: its id.
        gap_seconds: from the end of the task before it.
        task_seconds: from its own begin to its end.
        spark_seconds: of these, with a Spark job running.
        first_job_seconds: from its begin to its first Spark job; None without any.
        between_jobs_seconds: between its Spark jobs; None without any.
        after_jobs_seconds: from its last Spark job to its end; None without any.
    """

    task: str
    gap_seconds: float
    task_seconds: float
    spark_seconds: float
    first_job_seconds: float | None
    between_jobs_seconds: float | None
    after_jobs_seconds: float | None

    @property
    def outside_seconds(self) -> float:
        """Those of the task that are not Spark's work."""
        return self.task_seconds - self.spark_seconds


Span = tuple[float, float]


def main(arguments: Sequence[str] = (), folder: Path = RESULTS) -> None:
    """Measure, print, and write ``b8_overhead.json`` and ``b8_overhead.md``."""
    del arguments
    document = measure()
    write_results(folder, NAME, document, page(document))
    sys.stdout.write(f"B8: {sentence(document)}\n")


def measure(repetitions: int = REPETITIONS, patience_seconds: float = math.inf) -> dict[str, Any]:
    """Run the DAG in both ways in turn, after one run by Spark Connect that is not counted: its server may just start.

    Args:
        repetitions: counted runs in each way.
        patience_seconds: after which no further repetition is begun.
    """
    runs: dict[str, list[list[Step]]] = {way: [] for way in WAYS}
    between: dict[str, list[float]] = {way: [] for way in (*WAYS, EMPTY)}
    with tempfile.TemporaryDirectory(prefix="skewless-b8-") as folder:
        scratch = Path(folder)
        _write_input(scratch / "root" / "rows")
        _write_spec(scratch / "catalog")
        times = _write_dags(scratch / "dags")
        events = _event_logs(scratch)
        settings = {
            "SKEWLESS_CATALOG": str(scratch / "catalog"),
            "SKEWLESS_ROOT": str(scratch / "root"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(scratch / "dags"),
            "SKEWLESS_STEPS": "connect",  # and runs with a size of their own are submitted
            "SPARK_CONF_DIR": str(scratch / "spark"),
        }
        with standalone.up(standalone.Home(scratch / "airflow"), settings) as rest:
            for dag in (DAG, EMPTY):
                rest.wait_for_dag(dag, RUN_SECONDS)
                rest.set_paused(dag, paused=False)
            began = time.monotonic()
            run_to_end(rest, DAG, WAYS[CONNECT])
            for number in range(repetitions):
                if number and time.monotonic() - began > patience_seconds:
                    break
                for way, conf in WAYS.items():
                    tasks, jobs = run_to_end(rest, DAG, conf), job_spans(events)
                    steps = steps_of(tasks, jobs)
                    runs[way].append(steps)
                    between[way].append(between_stages(tasks, jobs))
                    outside = sum(one.outside_seconds for one in steps)
                    sys.stderr.write(f"run {number + 1} by {way}: {outside:.1f} s in tasks outside Spark's work\n")
                times.unlink(missing_ok=True)
                run_to_end(rest, EMPTY, {})
                done = dict(line.rsplit(" ", 1) for line in times.read_text(encoding="utf-8").splitlines())
                between[EMPTY].append(float(done[STAGES[1]]) - float(done[STAGES[0]]))
    return {
        "rows": ROWS, "keys": KEYS, "repetitions": min(map(len, runs.values())),
        "setting": {
            "cores": os.cpu_count(), "python": platform.python_version(), "spark": version("pyspark"),
            "airflow": version("apache-airflow"),
        },
        "between_stages": {way: _median(found) for way, found in between.items()},
        "between_stages_of_runs": {way: [round(one, 3) for one in found] for way, found in between.items()},
        "ways": {way: medians(counted) for way, counted in runs.items()},
        "runs": {way: [[asdict(step) for step in steps] for steps in counted] for way, counted in runs.items()},
    }  # fmt: skip


def steps_of(tasks: Sequence[tuple[str, float, float]], jobs: Sequence[Span]) -> list[Step]:
    """What became of the time of a run.

    Args:
        tasks: id, begin and end of each, in seconds of one clock.
        jobs: begin and end of each Spark job, in seconds of the same clock; those of other runs too.
    """
    steps, last = [], None
    for task, begin, end in sorted(tasks, key=lambda one: one[1]):
        mine = merged((max(begin, one[0]), min(end, one[1])) for one in jobs if one[1] > begin and one[0] < end)
        spark = sum(until - since for since, until in mine)
        steps.append(
            Step(
                task=task,
                gap_seconds=round(max(0.0, begin - last), 3) if last is not None else 0.0,
                task_seconds=round(end - begin, 3),
                spark_seconds=round(spark, 3),
                first_job_seconds=round(mine[0][0] - begin, 3) if mine else None,
                between_jobs_seconds=round(mine[-1][1] - mine[0][0] - spark, 3) if mine else None,
                after_jobs_seconds=round(end - mine[-1][1], 3) if mine else None,
            )
        )
        last = end
    return steps


def between_stages(tasks: Sequence[tuple[str, float, float]], jobs: Sequence[Span]) -> float:
    """The seconds from the end of the last Spark job of the first stage to the begin of the first one of the second.

    Args:
        tasks: as of ``steps_of``.
        jobs: as of ``steps_of``.
    """
    first, second = (next((begin, end) for task, begin, end in tasks if task == name) for name in STAGES)
    last_end = max(end for begin, end in jobs if first[0] <= begin <= first[1])
    return min(begin for begin, _ in jobs if second[0] <= begin <= second[1]) - last_end


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same time in spans that do not overlap, in order."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def job_spans(events: Path) -> list[Span]:
    """Begin and end of the Spark jobs in all event logs of a folder, in seconds since 1970."""
    found: list[Span] = []
    for log in events.iterdir():
        begun: dict[int, float] = {}
        for line in log.read_text(encoding="utf-8").splitlines():
            # A log that is being written may end within a line; that event is none of a finished run's.
            if '"SparkListenerJobStart"' in line[:60] and line.endswith("}"):
                event = json.loads(line)
                begun[event["Job ID"]] = event["Submission Time"] / 1000
            elif '"SparkListenerJobEnd"' in line[:60] and line.endswith("}"):
                event = json.loads(line)
                found.append((begun[event["Job ID"]], event["Completion Time"] / 1000))
    return found


def medians(runs: Sequence[Sequence[Step]]) -> dict[str, Any]:
    """Of each figure the median over the runs: of a run, of a stage's own task, and of each task."""
    whole = [sum(one.task_seconds + one.gap_seconds for one in steps) for steps in runs]
    spark = [sum(one.spark_seconds for one in steps) for steps in runs]
    stages = [[one for one in steps if one.task.endswith(".run") and one.spark_seconds] for steps in runs]
    outside = [statistics.fmean(one.outside_seconds for one in steps) for steps in stages]
    tasks = dict.fromkeys(one.task for steps in runs for one in steps)
    return {
        "run_seconds": _median(whole),
        "spark_seconds": _median(spark),
        "outside_seconds": _median(all_ - own for all_, own in zip(whole, spark, strict=True)),
        "outside_seconds_per_stage": _median(outside),
        "outside_seconds_per_stage_of_runs": [round(one, 3) for one in outside],
        "tasks": {
            task: {
                name: _median(values)
                for name in ("gap_seconds", "task_seconds", "spark_seconds", "outside_seconds", "first_job_seconds",
                             "between_jobs_seconds", "after_jobs_seconds")
                if (values := [getattr(one, name) for steps in runs for one in steps
                               if one.task == task and getattr(one, name) is not None])
            }
            for task in tasks
        },
    }  # fmt: skip


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)


def _write_input(folder: Path) -> None:
    folder.mkdir(parents=True)
    generator = np.random.default_rng(SEED)
    weights = np.arange(1, KEYS + 1, dtype=np.float64) ** -1.2
    keys = generator.choice(KEYS, size=ROWS, p=weights / weights.sum())
    table = pa.table({"key": pa.array(np.char.add("key-", keys.astype(str))), "value": pa.array(keys % 97)})
    for number in range(FILES):
        pq.write_table(table.slice(number * ROWS // FILES, ROWS // FILES), folder / f"{number:02d}.parquet")


def _write_spec(catalog: Path) -> None:
    catalog.mkdir()
    spec = {
        "name": DAG,
        "input": {"path": "rows"},
        "key": "key",
        "aggregates": {"rows": "count", "total": {"function": "sum", "column": "value"}},
        # Routed, and drained by a second stage, whatever that costs: so few rows would be combined where they are read.
        "engine": "staged",
        "routing": {"waves": [1], "reducers": 4, "stage_overhead": 0, "key_sample": False, "warm_start": False},
        "quality": {
            "expectations": [
                {"type": "expect_column_values_to_be_between", "kwargs": {"column": "rows", "min_value": 1}}
            ]
        },
        "output": {"path": "published", "files": 2},
    }
    (catalog / f"{DAG}.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")


def _write_dags(folder: Path) -> Path:
    """The DAGs of the catalog, and the one whose tasks do nothing; returns where those note when they ran."""
    folder.mkdir()
    times = folder.parent / "times"
    tasks = ("prepare", STAGES[0], "stage_01.plan", STAGES[1], "merge", "validate", "publish")
    (folder / "catalog.py").write_text(_CATALOG_DAGS, encoding="utf-8")
    text = _EMPTY_DAG.format(times=str(times), name=EMPTY, tasks=tasks)
    (folder / "empty.py").write_text(text, encoding="utf-8")
    return times


def _event_logs(scratch: Path) -> Path:
    """Have every Spark that is started below write its event log into one folder."""
    events, settings = scratch / "events", scratch / "spark"
    events.mkdir()
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text(
        "spark.eventLog.enabled true\nspark.eventLog.compress false\nspark.eventLog.rolling.enabled false\n"
        f"spark.eventLog.dir {events.as_uri()}\n",
        encoding="utf-8",
    )
    return events
