"""Files of a run that were damaged, or changed with every checksum right: one sentence, and nothing is committed."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from skewless.document import Document
from skewless.documents.commit import CommittedFile, StepCommit
from skewless.errors import LedgerError, RunDirectoryError
from skewless.planner.planner import plan_next_stage
from skewless.run.directory import DOCUMENT, RESULT_STEP, STAGE_REPORT, RunDirectory, stage_step
from skewless_spark.engines.stage import run_stage
from skewless_spark.entries.pipeline import run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from skewless_spark.session.spark_errors import sentence_for
from tests.spark.damage import turn_bit_of_largest_page
from tests.spark.scenario import DATE, Quiet, spec_of, write_input

pytestmark = pytest.mark.long
AGGREGATES = {
    "n": "count",
    "total": {"function": "sum", "column": "value"},
    "histogram": {"function": "streaming_histogram", "column": "value"},
}


@pytest.fixture(scope="module")
def half(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that stopped before its last stage."""
    place = tmp_path_factory.mktemp("damage")
    keys = np.random.default_rng(1).zipf(1.3, 4_000) % 300
    rows = pa.table({"key": [f"key-{number}" for number in keys], "value": np.arange(4_000)})
    path = write_input(place / "input", rows, files=8)
    spec = spec_of(path, "key", AGGREGATES, routing={"reducers": 2, "waves": [1, 3], "stage_overhead": 0})
    run = RunDirectory(str(place / "half"))
    prepare(run, spec, DATE, str(place))
    run_stage(spark, run, 0)
    run.decide(1, plan_next_stage)
    assert run.report(0).backlog_rows > 0, "or there is no backlog to damage"
    return place / "half"


@pytest.mark.parametrize("noted", [True, False], ids=["with Hadoop's checksums", "with those of the pages alone"])
@pytest.mark.parametrize("kind", ["native", "python", "backlog"])
def test_a_bit_that_turned_within_the_data_is_found_where_it_is_read(
    spark: SparkSession, half: Path, tmp_path: Path, kind: str, noted: bool
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(half, folder)
    file = max(folder.glob(f"stages/0000/attempts/*/kind={kind}/*.parquet"), key=lambda path: path.stat().st_size)
    turn_bit_of_largest_page(file)
    if not noted:  # as on a store that keeps none
        (file.parent / f".{file.name}.crc").unlink()
    # Spark reads it, or Arrow on the driver: the sentence is the same.
    with pytest.raises((Py4JJavaError, RunDirectoryError)) as err:
        _go_on(spark, RunDirectory(str(folder)))
    assert sentence_for(err.value) == (
        f"{file}: expected the bytes that were written, but got others, by its checksum; restore it from a copy."
    )


def _go_on(spark: SparkSession, run: RunDirectory) -> None:
    run_stages(spark, run, Quiet())
    merge_states(spark, run)


def _seal(run: RunDirectory, name: str, document: Document) -> bytes:
    content = document.sealed().encode()
    Path(run.path(name)).write_bytes(content)
    return content


def _reseal(run: RunDirectory, replaced: CommittedFile, by: CommittedFile | None, backlog_rows: int) -> None:
    """Write the commit of the first stage anew, with another file and count of its backlog."""
    commit = run.committed(stage_step(0))
    files = tuple(by if file == replaced else file for file in commit.files if file != replaced or by)
    counts = {**commit.counts, "backlog": backlog_rows}
    _seal(
        run,
        f"{stage_step(0)}/COMMIT.json",
        StepCommit.model_validate({**dict(commit), "files": files, "counts": counts}),
    )


@pytest.mark.parametrize("change", ["processed", "backlog"])
def test_counts_that_were_changed_with_every_checksum_right_fail_the_ledger(
    spark: SparkSession, half: Path, tmp_path: Path, change: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(half, folder)
    run = RunDirectory(str(folder))
    report, commit = run.report(0), run.committed(stage_step(0))
    if change == "processed":
        update, backlog_rows = {"processed_rows": report.processed_rows - 1}, report.backlog_rows
    else:  # a file of the backlog is lost, and its rows are taken off all counts
        lost = commit.of_kind("backlog")[0]
        Path(run.path(lost.path)).unlink()
        backlog_rows = report.backlog_rows - lost.rows
        update = {"backlog_rows": backlog_rows}
        _reseal(run, lost, None, backlog_rows)
    file = next(file for file in commit.of_kind(DOCUMENT) if file.path.endswith(STAGE_REPORT))
    content = _seal(run, file.path, report.model_copy(update=update))
    resealed = file.model_copy(update={"size_bytes": len(content), "checksum": hashlib.sha256(content).hexdigest()})
    _reseal(run, file, resealed, backlog_rows)
    for committed in run.committed(stage_step(0)).files:
        run.verify(committed)
    with pytest.raises(LedgerError, match="rows"):
        _go_on(spark, RunDirectory(str(folder)))
    assert not run.exists(f"{RESULT_STEP}/COMMIT.json")
