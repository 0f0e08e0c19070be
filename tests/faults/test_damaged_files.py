"""Files that are cut, damaged or gone: the run ends with the right result, or stops with one sentence."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from skewless.errors import RunDirectoryError
from skewless.planner.planner import plan_next_stage
from skewless.run.directory import RunDirectory
from skewless_spark.engines.stage import run_stage
from skewless_spark.entries.pipeline import run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from skewless_spark.session.spark_errors import sentence_for
from tests.faults.damage import KINDS, Kind, damage, files_of, kinds_for, last_byte_of_largest_page
from tests.spark.scenario import DATE, Quiet, result_of, spec_of, write_input
from tests.tiers import mostly_long

AGGREGATES = {
    "n": "count",
    "total": {"function": "sum", "column": "value"},
    "histogram": {"function": "streaming_histogram", "column": "value"},
}


class Scene(NamedTuple):
    """A run that stopped before its last stage, and what it has to end with."""

    folder: Path
    right: list[str]


@pytest.fixture(scope="module")
def scene(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Scene:
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
    shutil.copytree(place / "half", place / "whole")
    return Scene(place / "half", _result(spark, place / "whole"))


def _result(spark: SparkSession, folder: Path) -> list[str]:
    run = RunDirectory(str(folder))
    run_stages(spark, run, Quiet())
    merge_states(spark, run)
    return sorted(repr(row) for row in result_of(run).to_pylist())


@pytest.mark.parametrize("kind", mostly_long(KINDS, "bit"))
def test_a_damaged_file_is_told_in_one_sentence_or_does_not_matter(
    spark: SparkSession, scene: Scene, tmp_path: Path, kind: Kind
) -> None:
    outcomes: Counter[str] = Counter()
    # The short form: a file of each folder, in turn with the seed of the day it was written.
    files = [file for file in files_of(scene.folder) if kind in kinds_for(file)]
    files = _one_of_each(files, random.Random(KINDS.index(kind)))
    for number, file in enumerate(files):
        name = file.relative_to(scene.folder)
        copy = tmp_path / str(number)
        shutil.copytree(scene.folder, copy)
        how = damage(copy / name, kind, seed=number)
        outcomes[_outcome(spark, scene, copy, f"{name} {how}")] += 1
        shutil.rmtree(copy)
    assert outcomes["stopped"] > 0
    assert sum(outcomes.values()) == len(files)


@pytest.mark.parametrize("noted", [True, False], ids=["with Hadoop's checksums", "with those of the pages alone"])
@pytest.mark.parametrize("kind", mostly_long(["native", "python", "backlog"], "backlog"))
def test_a_bit_that_turned_within_the_data_is_found_where_it_is_read(
    spark: SparkSession, scene: Scene, tmp_path: Path, kind: str, noted: bool
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(scene.folder, folder)
    file = max(folder.glob(f"stages/0000/attempts/*/kind={kind}/*.parquet"), key=lambda path: path.stat().st_size)
    content, at = file.read_bytes(), last_byte_of_largest_page(file)
    file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    if not noted:  # as on a store that keeps none
        (file.parent / f".{file.name}.crc").unlink()
    # Spark reads it, or Arrow on the driver: the sentence is the same.
    with pytest.raises((Py4JJavaError, RunDirectoryError)) as err:
        _result(spark, folder)
    assert sentence_for(err.value) == (
        f"{file}: expected the bytes that were written, but got others, by its checksum; restore it from a copy."
    )


def _outcome(spark: SparkSession, scene: Scene, folder: Path, what: str) -> str:
    """How the run goes on; a wrong result or a page of Java fails the test."""
    try:
        found = _result(spark, folder)
    except Exception as err:  # noqa: BLE001  # whatever comes has to be one sentence of ours
        sentence = sentence_for(err)
        assert sentence.endswith((".", "?")), f"{what}: {sentence}"
        return "stopped"
    assert found == scene.right, f"{what}: another result"
    return "right"


def _one_of_each(files: list[Path], chance: random.Random) -> list[Path]:
    folders: dict[Path, list[Path]] = {}
    for file in files:
        folders.setdefault(file.parent, []).append(file)
    return [chance.choice(found) for found in folders.values()]
