"""Small jobs over real Parquet files, run to their end in the test session's Spark."""

import datetime as dt
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from skewless.documents.quality import QualityReport
from skewless.documents.stage_report import Decision, StageReport
from skewless.documents.window import JobWindow
from skewless.publication.records import Publication, record_of
from skewless.run.directory import RunDirectory
from skewless.spec.reading import parse_spec
from skewless.spec.routing import Routing
from skewless.spec.spec import JobSpec
from skewless_cli import run_view
from skewless_spark.entries.pipeline import run_pipeline, run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from tests.object_stores import as_client

DATE = dt.date(2026, 11, 20)
#: Where the example of an own mapper is, ``tokens``, as if it were installed.
OWN_MAPPER = Path(__file__).parents[2] / "examples" / "own_mapper"


def know_own_mapper(spark: SparkSession) -> None:
    """Let this process and the Python workers of a session know the mapper ``tokens``."""
    sys.path.append(str(OWN_MAPPER))
    spark.sparkContext.environment["PYTHONPATH"] = str(OWN_MAPPER)


class Told(NamedTuple):
    returncode: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.stdout)
        return told


class Quiet:
    def __init__(self) -> None:
        self.reports: list[StageReport] = []

    def __call__(self, report: StageReport, _decision: Decision) -> None:
        self.reports.append(report)


def write_input(folder: Path, table: pa.Table, files: int = 20) -> Path:
    folder.mkdir(parents=True)
    step = -(-table.num_rows // files)
    for number in range(files):
        pq.write_table(table.slice(number * step, step), folder / f"part-{number:03d}.parquet")
    return folder


def spec_of(path: Path, key: str | Sequence[str], aggregates: Mapping[str, Any], **fields: Any) -> JobSpec:
    """A spec over an input, with sections added or replaced.

    Plan 0 is not made from a sample of the keys unless that is asked for: a test has too few rows for several stages.
    """
    routing = fields.get("routing", {})
    least = Routing(**{name: routing[name] for name in ("policy", "reducers") if name in routing})
    fields["routing"] = {"first_plan": ["last_run"], "slots": least.most_reducers, **routing}
    raw = {
        "name": "scenario",
        "input": {"path": str(path)},
        "key": key if isinstance(key, str) else list(key),
        "aggregates": dict(aggregates),
        "engine": "staged",
        "output": {"path": str(path.parent / "published"), "files": 2},
        **fields,
    }
    return parse_spec(yaml.safe_dump(raw, sort_keys=False))


def prepared(folder: Path, spec: JobSpec, name: str = "run", *, date: dt.date = DATE) -> RunDirectory:
    """A run that has listed its input; its directory is below the data root."""
    run = RunDirectory(str(folder / name))
    prepare(run, spec, date, str(folder))
    return run


class Finished(NamedTuple):
    quality: QualityReport
    publication: Publication


def finished(run: RunDirectory) -> Finished:
    quality, record = run.quality(), record_of(run)
    assert quality is not None
    assert record is not None
    return Finished(quality, record)


def run_job(spark: SparkSession, spec: JobSpec, run_dir: Path) -> tuple[RunDirectory, Finished, list[StageReport]]:
    run, watcher = RunDirectory(str(run_dir)), Quiet()
    prepare(run, spec, DATE, str(run_dir.parent))
    run_pipeline(spark, run, watcher)
    return run, finished(run), watcher.reports


def reduce_job(spark: SparkSession, spec: JobSpec, run_dir: Path) -> tuple[RunDirectory, list[StageReport]]:
    """Prepare a job and run it to its merged result, without validating or publishing that."""
    run, watcher = RunDirectory(str(run_dir)), Quiet()
    prepare(run, spec, DATE, str(run_dir.parent))
    run_stages(spark, run, watcher)
    merge_states(spark, run)
    return run, watcher.reports


def result_of(run: RunDirectory) -> pa.Table:
    return pa.concat_tables(pq.read_table(run.path(file.path)) for file in run.committed("result").of_kind("result"))


def window_of(run: RunDirectory) -> JobWindow:
    window = run.job().window
    assert window is not None
    return window


def shown(run: RunDirectory) -> str:
    console = Console(record=True, width=200, file=io.StringIO())
    run_view.show(run, console)
    return console.export_text()


def plain(spark: SparkSession, path: Path, key: Sequence[str], *aggregates: Any) -> DataFrame:
    return spark.read.parquet(str(path)).groupBy(*key).agg(*aggregates)


def as_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a table in an order of their own, NaN as text so that it equals itself."""
    columns = [[repr(value) for value in column.to_pylist()] for column in table.columns]
    return sorted(zip(*columns, strict=True))


@contextmanager
def all_as_clients(spark: SparkSession, environment: Mapping[str, str]) -> Iterator[None]:
    """The variables of the environment for this process and for Spark's workers, whose JVM began without them."""
    of_workers: dict[str, str] = spark.sparkContext.environment
    before = dict(of_workers)
    of_workers.update(environment)
    try:
        with as_client(environment):
            yield
    finally:
        of_workers.clear()
        of_workers.update(before)


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def without_times(report: StageReport) -> StageReport:
    tasks = tuple(load.model_copy(update={"busy_seconds": None}) for load in report.tasks)
    splits = tuple(split.model_copy(update={"busy_seconds": None}) for split in report.splits)
    histogram = report.histogram.model_copy(update={"head_seconds": {}, "tail_seconds": None})
    counted = {"tasks": tasks, "splits": splits, "histogram": histogram}
    return report.model_copy(update={"stage_seconds": 0.0, "work": None, "slots": None, **counted})


def turn_bit_of_largest_page(file: Path) -> None:
    """Turn a bit within the data of a Parquet file, which nothing but the checksum of its page notices."""
    group = pq.read_metadata(file).row_group(0)
    chunk = max((group.column(at) for at in range(group.num_columns)), key=lambda column: column.total_compressed_size)
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    at = int(first + chunk.total_compressed_size - 1)
    content = file.read_bytes()
    file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
