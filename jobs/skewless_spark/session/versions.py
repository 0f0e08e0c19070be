"""What the installed Spark lacks, and whether it can be ours at all. Nothing else asks for a version of Spark.

Imports nothing of PySpark at its head: it judges an installation that may not import. pip lays the files of
pyspark-client, for which Airflow's Spark provider asks, over those of pyspark, of whatever version. ``pip check`` calls
the outcome good, but it cannot run.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import logging
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import mmh3
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

#: The oldest Spark that is supported; pyproject.toml names the same.
LOWEST = (3, 5, 6)


class Gap(NamedTuple):
    """What not every supported Spark has."""

    first: tuple[int, int]
    """The first Spark that has it."""
    before: str
    """What serves below that, in words; of an aggregate, which ones every Spark has."""


#: By aggregate, those that some Spark cannot make or merge: `check` refuses them there, and names others.
AGGREGATES = {
    "approx_percentile": Gap((4, 1), "exact_median or histogram"),
    "percentile_approx": Gap((4, 1), "exact_median or histogram"),
    "theta_sketch_estimate": Gap((4, 1), "approx_count_distinct"),
    "approx_top_k": Gap((4, 1), "value_counts"),
}
#: By name in Spark, what else some Spark lacks: a function below serves in its place there, with equal results.
STAND_INS = {
    "collect_union": Gap((4, 3), "array_compact(array_distinct(flatten(collect_list(...))))"),
    "approx_top_k_combine of nulls": Gap((4, 3), "an empty sketch in place of null"),
    "repartitionById": Gap((4, 1), "integers whose hashes are the partitions"),
    "createDataFrame of an Arrow table": Gap((4, 0), "its rows"),
    "toArrow": Gap((4, 0), "Arrow's stream from Python workers"),
    "is_valid_utf8": Gap((4, 0), "regexp_replace, which keeps nothing else"),
    "DESCRIBE TABLE ... AS JSON": Gap((4, 0), "the catalog's record"),
    "RuntimeConfig.getAll": Gap((4, 0), "SET"),
    "pyspark.binaryAsBytes": Gap((4, 1), "none: Great Expectations shows no bytes"),
    "tags of queries": Gap((4, 0), "none: executions of a stage are 0"),
    "PySparkLogger": Gap((4, 0), "logging"),
    "VariantType": Gap((4, 0), "none"),
    "codec of .zst": Gap((4, 0), "Hadoop's native library, or refused"),
    "name of a text with a bad record": Gap((4, 0), "none, but of the first record"),
    "arrow.maxBytesPerBatch": Gap((4, 0), "none: Python takes 65,536 rows at a time, however wide"),
}
_VERSION = re.compile(r"__version__[^'\"]*['\"]((\d+)\.(\d+)\.\d+)")
_JAR = re.compile(r"spark-core_[\d.]+-(\d+\.\d+\.\d+)")


def unfit_spark(package: Path | None = None) -> str:
    """One sentence if PySpark cannot be ours; else empty.

    Args:
        package: the folder of the package; the one that Python would import, if None.
    """
    if package is None:
        found = importlib.util.find_spec("pyspark")
        if found is None or found.origin is None:
            return ""
        package = Path(found.origin).parent
    version = package / "version.py"
    files = _VERSION.search(version.read_text(encoding="utf-8")) if version.exists() else None
    if files is None:
        return ""
    # The Spark of a cluster has its jars elsewhere.
    jars = next(filter(None, (_JAR.match(jar.name) for jar in (package / "jars").glob("spark-core_*.jar"))), None)
    if jars is not None and files[1] != jars[1]:
        return (
            f"pyspark: expected the files of pyspark {jars[1]}, but got those of {files[1]}, which pyspark-client has "
            f"laid over them; run pip install --force-reinstall --no-deps pyspark=={jars[1]}."
        )
    if tuple(map(int, files[1].split("."))) < LOWEST:
        least = ".".join(map(str, LOWEST))
        return f"pyspark: expected Spark {least} or newer, but got Spark {files[1]}; take a newer one."
    return ""


def here() -> tuple[int, ...]:
    """Major and minor version of this Spark."""
    from pyspark import __version__  # noqa: PLC0415  # see above

    return tuple(map(int, __version__.split(".")[:2]))


def _has(feature: str) -> bool:
    return here() >= STAND_INS[feature].first


def lacking_aggregate(function: str) -> tuple[str, str, str] | None:
    """The Spark that an aggregate needs, the one that is here, and a hint, where this one cannot merge its states."""
    gap = AGGREGATES.get(function)
    if gap is None or here() >= gap.first:
        return None
    needed, there = (".".join(map(str, numbers)) for numbers in (gap.first, here()))
    return f"Spark {needed} or newer for {function}", f"Spark {there}", f"take a newer Spark, or {gap.before}"


def collect_union(name: str) -> Column:
    """The union of sets."""
    from pyspark.sql import functions as F  # noqa: PLC0415  # see above

    if _has("collect_union"):
        return F.collect_union(name)
    return F.array_compact(F.array_distinct(F.flatten(F.collect_list(name))))  # whose type says that it holds no nulls


def combine_top_k(state: str, tracked: int, spark_type: str) -> str:
    """In SQL, the merged states of ``approx_top_k``, of which some or all are null.

    Before 4.3 Spark cannot send a merge that saw no state: it knows the type of the items from a state only. An empty
    sketch of DataSketches is 16 bytes (``frequencies/PreambleUtil``), of which one is the size of a full one.
    """
    if _has("approx_top_k_combine of nulls"):
        return f"approx_top_k_combine({state}, {tracked}) FILTER (WHERE {state} IS NOT NULL)"
    size = max(3, (-(-tracked * 4 // 3) - 1).bit_length())
    empty = (
        f"named_struct('sketch', X'01010A{size:02X}0305{'00' * 10}', 'maxItemsTracked', {tracked}, "
        f"'itemDataType', CAST(NULL AS {spark_type}), 'itemDataTypeDDL', 'item {spark_type}')"
    )
    return f"approx_top_k_combine(coalesce({state}, {empty}), {tracked})"


def is_valid_utf8(text: str) -> str:
    """In SQL, whether the bytes of a text are UTF-8: no others outlive a regular expression of Java."""
    return f"is_valid_utf8({text})" if _has("is_valid_utf8") else f"(regexp_replace({text}, '^$', '') = {text})"


def place(rows: DataFrame, partitions: int, number: Column) -> DataFrame:
    """The rows, each in the partition of a number."""
    if _has("repartitionById"):
        return rows.repartitionById(partitions, number)
    return rows.repartition(partitions, _integer_of(partitions, number))


def place_by(rows: DataFrame, partitions: int, name: str) -> DataFrame:
    """The same by a column, so that grouping by it needs no other exchange; ``numbers_of`` gives its numbers back."""
    from pyspark.sql import functions as F  # noqa: PLC0415  # see above

    if _has("repartitionById"):
        return rows.repartitionById(partitions, F.col(name))
    return rows.withColumn(name, _integer_of(partitions, F.col(name))).repartition(partitions, name)


def numbers_of(placed: DataFrame, partitions: int, name: str) -> DataFrame:
    """What became of rows that ``place_by`` has placed, with the numbers of their partitions in the column again.

    With 0 partitions rows were placed by no column.
    """
    from pyspark.sql import functions as F  # noqa: PLC0415  # see above

    if not partitions or _has("repartitionById"):
        return placed
    listed = f"array({', '.join(map(str, _integers(partitions)))})"
    return placed.withColumn(name, F.expr(f"CAST(array_position({listed}, {name}) - 1 AS INT)"))


def _integer_of(partitions: int, number: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: PLC0415  # see above

    return F.get(F.expr(f"array({', '.join(map(str, _integers(partitions)))})"), number)


@lru_cache(maxsize=8)
def _integers(partitions: int) -> tuple[int, ...]:
    """For each partition the first integer whose hash Spark sends there."""
    known: dict[int, int] = {}
    for number in count():
        known.setdefault(mmh3.hash(struct.pack("<i", number), 42) % partitions, number)
        if len(known) == partitions:
            return tuple(known[partition] for partition in range(partitions))
    raise AssertionError


def local_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A frame of an Arrow table of the driver; it needs no Python worker."""
    if _has("createDataFrame of an Arrow table"):
        return spark.createDataFrame(table)
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415  # see above

    rows = [tuple(row.values()) for row in table.to_pylist()]
    return spark.createDataFrame(rows, from_arrow_schema(table.schema))


def to_arrow(frame: DataFrame) -> pa.Table:
    """The rows of a frame, on the driver."""
    if _has("toArrow"):
        return cast("pa.Table", frame.toArrow())
    from skewless_spark.session.session import map_in_batches  # noqa: PLC0415  # which imports this module

    schema = arrow_schema(frame.schema)
    parts = [pa.ipc.open_stream(row[0]).read_all() for row in map_in_batches(frame, _streamed, "part binary").collect()]
    return pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)])


def _streamed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield pa.record_batch([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["part"])


def reader_options(spark: SparkSession, table: str, session_in_jvm: Any) -> dict[str, str]:
    """The options by which a table of the catalog is read."""
    if _has("DESCRIBE TABLE ... AS JSON"):
        described = json.loads(spark.sql(f"DESCRIBE TABLE EXTENDED {table} AS JSON").collect()[0][0])
        return {key: str(value) for key, value in described.get("storage_properties", {}).items()}
    state = session_in_jvm.sessionState()
    known = state.catalog().getTableMetadata(state.sqlParser().parseTableIdentifier(table)).storage().properties()
    names = known.keys().toSeq()
    return {str(name): str(known.apply(name)) for name in map(names.apply, range(names.size()))}


def set_names(spark: SparkSession) -> Sequence[str]:
    """The names of all settings that a session has."""
    if _has("RuntimeConfig.getAll"):
        return list(spark.conf.getAll)
    return [row[0] for row in spark.sql("SET").collect()]


def own_logger(name: str) -> logging.Logger:
    """A logger of PySpark's by its name."""
    if not _has("PySparkLogger"):
        return logging.getLogger(name)
    from pyspark.logger import PySparkLogger  # noqa: PLC0415  # see above

    return PySparkLogger.getLogger(name)


def nested_types() -> tuple[type[DataType], ...]:
    """The types of Spark whose values hold others."""
    from pyspark.sql import types  # noqa: PLC0415  # see above

    variant = (types.VariantType,) if _has("VariantType") else ()
    return (types.ArrayType, types.MapType, types.StructType, *variant)


def arrow_schema(schema: StructType) -> pa.Schema:
    """A schema of Spark's as Arrow's, its moments in UTC: up to 4.1 it has them so, then it takes the zone by name."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415  # see above

    by_name = "timezone" in inspect.signature(to_arrow_schema).parameters
    zone: dict[str, Any] = {"timezone": "UTC"} if by_name else {}
    return to_arrow_schema(schema, **zone)
