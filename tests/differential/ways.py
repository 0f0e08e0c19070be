"""The ways of reading an input: through Spark's own scan, cut into ranges, or all of it in workers."""

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyspark.sql import SparkSession

from skewless.documents.job import Job
from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless.spec.reading import parse_spec
from skewless_spark.aggregates.keys import KEY_TYPES
from skewless_spark.prepare.freezing import freeze
from skewless_spark.session.versions import to_arrow
from skewless_spark.sources import cutting
from skewless_spark.sources.formats.column_types import UNSUPPORTED
from skewless_spark.sources.lake.table_inputs import LakeTable
from skewless_spark.sources.listing import list_input
from skewless_spark.sources.unit_reading import read_units
from skewless_spark.sources.worker_files import read_parts

DATE = dt.date(2026, 11, 20)


def types_of(given: dict[str, Any], root: Path) -> dict[str, str]:
    one = Input.model_validate(given)
    if one.pinned:
        listing = LakeTable.pinned(one, Part(DATE, None), str(root), one.path).listing(1.0)
        types = {**listing.source.columns, **listing.source.partition_columns}
    else:
        source = list_input(one, one.path).source
        types = {**source.columns, **source.partition_columns}
    return {name: kind for name, kind in types.items() if not kind.startswith(UNSUPPORTED)}


def whole(spark: SparkSession, job: Job, names: Sequence[str]) -> pa.Table:
    """As a stage reads it: what Spark can scan by Spark, everything else by workers."""
    frame = read_units(spark, job, range(len(job.units)), names)
    return to_arrow(frame.drop("origin")).rename_columns(list(names))


def in_workers(_spark: SparkSession, job: Job, names: Sequence[str]) -> pa.Table:
    """As workers read it where Spark cannot: on object stores without a jar, or with deleted rows."""
    numbered, vectors = list(enumerate(job.units)), None
    if job.source.pinned is not None and job.source.pinned.kind == "delta":
        from skewless_spark.sources.lake.delta import vectors_of  # an extra

        vectors = vectors_of(job.source.pinned)
    read = read_parts([numbered], job.source, list(names), "origin", vectors)
    batches = list(read([pa.record_batch({"part": [0]})]))
    if not batches:
        return pa.table({name: pa.nulls(0) for name in names})
    return pa.Table.from_batches(batches).drop_columns(["origin"]).rename_columns(list(names))


#: By name: how the units of a job are read, and whether the files are cut at each row group before.
WAYS: dict[str, tuple[Callable[[SparkSession, Job, Sequence[str]], pa.Table], bool]] = {
    "whole": (whole, False), "cut": (whole, True), "workers": (in_workers, False),
}  # fmt: skip


def job_of(given: dict[str, Any], types: dict[str, str], root: Path, *, cut: bool) -> Job:
    """A frozen job that reads the named columns; the first that can be a key is the key."""
    key = next(name for name, kind in types.items() if kind.split("(")[0] in KEY_TYPES)
    others = [name for name in types if name != key]
    counts: dict[str, Any] = {f"n{number}": {"function": "count", "column": name} for number, name in enumerate(others)}
    raw = {
        "name": "peers",
        "input": given,
        "key": [key],
        "aggregates": {"n": "count", **counts},
        "routing": {"waves": [1, 9999] if cut else [1]},
        "output": {"path": str(root / "published")},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "CUT_BYTES", (1 << 16) if cut else (1 << 40))
        if cut:
            patch.setattr(cutting, "LEAST_BYTES", 1)
        return freeze(parse_spec(yaml.safe_dump(raw, sort_keys=False)), DATE, str(root), "spec")
