"""B8: the seconds of a run in Airflow that are not Spark's work.

A small job is run as a DAG by the Airflow of `make up`, in turn with a DAG whose tasks do nothing.
Between two stages seconds count from the last Spark job of one to the first of the next, as the steps of a run record
them (``skewless show --times``). The demo's job is triggered in turn with a process of plain PySpark that does it, too.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.fresh_process import OWN_MAPPER, PLAIN, demo_spec, plain_tokens, readable_sources
from benchmarks.result_files import Verdict, as_documents, in_words, machine, page_of, table
from skewless.documents.step_documents import StepTimes
from skewless.run.directory import RunDirectory
from skewless.run.step_times import times_of
from tests import airflow_rest
from tests.airflow_rest import AirflowRest

NAME = "b8_overhead"
REPETITIONS = 3
ROWS, KEYS, FILES, SEED = 200_000, 1_000, 16, 8
RUN_SECONDS = 400.0
DAG, DEMO = "overhead", "python_tokens"
#: A run whose steps are in its warm driver, and one of tasks that do nothing.
OWN, EMPTY = "a Spark of its own", "empty"
STAGES = ("stage_00.run", "stage_01.run")
#: What all of it may cost between two stages beyond tasks that do nothing, in seconds; and trigger to published, over
#: the plain script.
MOST_BETWEEN_SECONDS, MOST_OVER_PLAIN = 1.0, 3.0
_JOB = "Spark job"
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
from skewless_airflow import catalog_dags
catalog_dags()
"""


def measure(repetitions: int = REPETITIONS) -> dict[str, Any]:
    """Run the DAGs in turn, so many times, after one run that is not counted."""
    runs: list[list[StepTimes]] = []
    between: dict[str, list[float]] = {OWN: [], EMPTY: []}
    whole: dict[str, list[float]] = {PLAIN: [], DEMO: []}
    with tempfile.TemporaryDirectory(prefix="skewless-b8-") as folder:
        scratch = Path(folder)
        root, catalog = scratch / "root", scratch / "catalog"
        sources = readable_sources(root)
        _write_input(root / "rows")
        _write_specs(catalog)
        times = _write_dags(scratch / "dags")
        settings = {
            "SKEWLESS_CATALOG": str(catalog),
            "SKEWLESS_ROOT": str(root),
            "AIRFLOW__CORE__DAGS_FOLDER": str(scratch / "dags"),
            "PYTHONPATH": OWN_MAPPER,
        }
        with airflow_rest.up(scratch / "airflow", settings) as rest:
            for dag in (DAG, DEMO, EMPTY):
                rest.wait_for_dag(dag, RUN_SECONDS)
                rest.set_paused(dag, paused=False)
            _run(rest, DAG, root)
            for number in range(repetitions):
                steps, _ = _run(rest, DAG, root)
                runs.append(steps)
                between[OWN].append(between_stages(steps))
                times.unlink(missing_ok=True)
                _run_to_end(rest, EMPTY, None)
                done = dict(line.rsplit(" ", 1) for line in times.read_text(encoding="utf-8").splitlines())
                between[EMPTY].append(float(done[STAGES[1]]) - float(done[STAGES[0]]))
                whole[DEMO].append(_run(rest, DEMO, root)[1])
                whole[PLAIN].append(plain_tokens(sources, scratch / f"plain-{number}"))
                _told(between, whole)
            shutil.rmtree(root)
    found = {
        "rows": ROWS, "keys": KEYS, "repetitions": repetitions,
        "setting": {
            **machine(spark="pyspark", airflow="apache-airflow"),
            "load average at the end": round(os.getloadavg()[0], 1),
        },
        "between_stages": {way: [round(one, 3) for one in found] for way, found in between.items()},
        "trigger_to_published": {way: [round(one, 2) for one in found] for way, found in whole.items()},
        "steps": medians(runs),
    }  # fmt: skip
    return {**found, "verdicts": as_documents(verdicts(found))}


def verdicts(found: Mapping[str, Any]) -> list[Verdict]:
    """The aims of the row, judged on medians."""
    between = {way: statistics.median(seconds) for way, seconds in found["between_stages"].items()}
    whole = {way: statistics.median(seconds) for way, seconds in found["trigger_to_published"].items()}
    aim = "seconds between the Spark jobs of two stages beyond a DAG of empty tasks"
    return [
        Verdict(aim, OWN, between[OWN] - between[EMPTY], MOST_BETWEEN_SECONDS),
        Verdict(
            "trigger to published over plain PySpark", "the demo's job", whole[DEMO] / whole[PLAIN], MOST_OVER_PLAIN
        ),
    ]


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    about = (
        f"A job of {document['rows']:,} rows and {document['keys']:,} keys as a DAG in the Airflow of `make up`, in"
        " turn with a DAG of tasks that do nothing. Between two stages is from the last Spark"
        " job of one to the first of the next, the decision included. The demo's job, of which nothing is known before,"
        " is triggered in turn with a new process of plain PySpark."
        f" Medians of {document['repetitions']}. Setting: {in_words(document['setting'])}."
    )
    between = _table("between two stages, s", document["between_stages"])
    whole = _table("trigger to published, or the whole process, s", document["trigger_to_published"])
    return page_of("B8: seconds outside Spark's work", about, between, whole)


def _table(head: str, found: Mapping[str, Any]) -> str:
    return table(("", head), [(name, f"{statistics.median(seconds):.2f}") for name, seconds in found.items()])


def between_stages(steps: Sequence[StepTimes]) -> float:
    """The seconds from the end of the last Spark job of the first stage to the begin of the first one of the second."""
    first, second = (next(one for one in steps if one.step == f"stage {number}") for number in (0, 1))
    last_end = max(first.started + job.start + job.seconds for job in first.spans if job.name == _JOB)
    return min(second.started + job.start for job in second.spans if job.name == _JOB) - last_end


def medians(runs: Sequence[Sequence[StepTimes]]) -> dict[str, dict[str, float]]:
    """Of each step the seconds that passed before it, those of the step itself, and those with a Spark job running."""
    found: dict[str, dict[str, list[float]]] = {}
    for steps in runs:
        until = steps[0].started
        for one in steps:
            figures = found.setdefault(one.step, {"before_seconds": [], "step_seconds": [], "spark_seconds": []})
            jobs = merged((job.start, job.start + job.seconds) for job in one.spans if job.name == _JOB)
            figures["before_seconds"].append(max(0.0, one.started - until))
            figures["step_seconds"].append(one.seconds)
            figures["spark_seconds"].append(sum(end - begin for begin, end in jobs))
            until = max(until, one.ended)
    return {
        step: {name: round(statistics.median(values), 3) for name, values in figures.items()}
        for step, figures in found.items()
    }


def merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same time in spans that do not overlap, in order."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _run(rest: AirflowRest, dag: str, root: Path) -> tuple[list[StepTimes], float]:
    """Run a DAG; the times of its steps, and the seconds from its trigger to the end of ``publish``."""
    began = time.time()
    run_id = f"run-{began * 1000:.0f}"  # which is the name of its folder, too
    _run_to_end(rest, dag, run_id)
    steps = times_of(RunDirectory(f"{root}/runs/{dag}/{run_id}"))
    return steps, steps[-1].ended - began


def _run_to_end(rest: AirflowRest, dag: str, run_id: str | None) -> None:
    """Run a DAG to its end.

    Raises:
        RuntimeError: the run failed.
        TimeoutError: it takes too long.
    """
    run = rest.trigger(dag, run_id, conf={})
    state = rest.await_end(dag, run, RUN_SECONDS)
    if state != "success":
        raise RuntimeError(f"run {run} of {dag} ended as {state}; its tasks: {rest.states(dag, run)}")


def _told(between: Mapping[str, Sequence[float]], whole: Mapping[str, Sequence[float]]) -> None:
    last = ", ".join(f"{name} {seconds[-1]:.1f} s" for name, seconds in {**between, **whole}.items())
    sys.stderr.write(f"B8 between two stages, and whole: {last}\n")


def _write_input(folder: Path) -> None:
    folder.mkdir(parents=True)
    generator = np.random.default_rng(SEED)
    weights = np.arange(1, KEYS + 1, dtype=np.float64) ** -1.2
    keys = generator.choice(KEYS, size=ROWS, p=weights / weights.sum())
    table = pa.table({"key": pa.array(np.char.add("key-", keys.astype(str))), "value": pa.array(keys % 97)})
    for number in range(FILES):
        pq.write_table(table.slice(number * ROWS // FILES, ROWS // FILES), folder / f"{number:02d}.parquet")


def _write_specs(catalog: Path) -> None:
    """The small job, and the demo's, of which nothing is known on any night, as on the first."""
    catalog.mkdir()
    spec = {
        "name": DAG,
        "input": {"path": "rows"},
        "key": "key",
        "aggregates": {"rows": "count", "total": {"function": "sum", "column": "value"}},
        # Routed, and drained by a second stage, whatever that costs: so few rows would be combined where they are read.
        "engine": "staged",
        "routing": {"waves": [1], "reducers": 4, "stage_overhead": 0, "first_plan": []},
        "quality": {
            "expectations": [
                {"type": "expect_column_values_to_be_between", "kwargs": {"column": "rows", "min_value": 1}}
            ]
        },
        "output": {"path": "published", "files": 2},
    }
    demo = demo_spec()
    demo["routing"]["first_plan"] = ["sample"]
    for one in (spec, demo):
        (catalog / f"{one['name']}.yaml").write_text(yaml.safe_dump(one, sort_keys=False), encoding="utf-8")


def _write_dags(folder: Path) -> Path:
    """The DAGs of the catalog, and the one whose tasks do nothing; returns where those note when they ran."""
    folder.mkdir()
    times = folder.parent / "times"
    tasks = ("prepare", STAGES[0], "stage_01.plan", STAGES[1], "merge", "validate", "publish")
    (folder / "catalog.py").write_text(_CATALOG_DAGS, encoding="utf-8")
    text = _EMPTY_DAG.format(times=str(times), name=EMPTY, tasks=tasks)
    (folder / "empty.py").write_text(text, encoding="utf-8")
    return times
