"""Reads a wave in a stage: whole files by Spark's own scans where these do, all else by pyarrow in its workers."""

from __future__ import annotations

import heapq
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from skewless.columns import column
from skewless.documents.job import Job, Unit
from skewless.routing.hashing import OFFSET_BITS
from skewless_spark.mapping import mapped_rows, source_columns
from skewless_spark.session.file_systems import decompresses, spark_reads
from skewless_spark.session.queries import map_in_batches
from skewless_spark.sources.lake.tables import READERS
from skewless_spark.sources.ranges import read_parts
from skewless_spark.sources.uris import FILE_COLUMNS, as_spark_says, literally, quoted

#: The origin of a row: source partition and offset in one integer (``skewless.routing.hashing.pack_origin``).
ORIGIN = "origin"
#: The number of a mapped row among the rows of its source row.
ORIGIN_INDEX = "origin_index"

#: For more paths than this setting, Spark runs a job to look them up.
_LISTING_JOB = "spark.sql.sources.parallelPartitionDiscovery.threshold"

#: No file, and no line however long, is passed over, whatever the session or Hadoop is set to.
_ALL_OF_IT = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "mapreduce.input.linerecordreader.line.maxlength": str((1 << 31) - 1),
    "orc.force.positional.evolution": "false",
}

#: Formats whose rows Spark reads without saying where they were, and their columns, each as ``NAME TYPE``, that Spark's
#: own scan reads as pyarrow does. Spark finds ORC's columns ``_col0``, ``_col1``, ... by their places, and none with a
#: backtick in its name.
_UNPLACED = {
    "text": re.compile("value string"),
    "orc": re.compile(
        r"(?!_col)[^`]+ (tinyint|smallint|int|bigint|float|double|boolean|string|date|decimal\(\d+,\d+\))"
    ),
}

#: So many paths are handed to Spark one by one.
_NAMED_PATHS = 16

#: The maximum bytes that a Spark task reads with pyarrow, unless a single unit is larger.
_TASK_BYTES = 64 << 20


class Tally:
    """Counts the rows that a wave's reader reads and the rows that it returns, before routing; see ``LedgerLine``.

    A tally belongs to one frame of ``read_units``, and has its counts once that has been run.
    """

    def __init__(self) -> None:
        self._read = Observation("skewless read")
        self._given = Observation("skewless given")
        self._used = False

    def reading(self, frame: DataFrame) -> DataFrame:
        """Count the rows of the files."""
        self._used = True
        return frame.observe(self._read, F.count(F.lit(1)).alias("rows"))

    def giving(self, frame: DataFrame) -> DataFrame:
        """Count the rows that leave the reader."""
        return frame.observe(self._given, F.count(F.lit(1)).alias("rows"))

    @property
    def counts(self) -> dict[str, int | None]:
        """``source_rows`` and ``given_rows``, as a stage report has them."""
        if not self._used:
            return {"source_rows": 0, "given_rows": 0}
        return {"source_rows": _rows(self._read), "given_rows": _rows(self._given)}


def _rows(observed: Observation) -> int | None:
    """The rows; None where Spark has run nothing, since it has seen from a condition that no row can satisfy it."""
    try:
        found = observed.get.get("rows")
    except Py4JJavaError as err:  # pyspark cannot convert a row without columns
        if err.java_exception.getClass().getName() != "java.lang.AssertionError":
            raise
        return None
    return None if found is None else int(found)


def read_units(
    spark: SparkSession,
    job: Job,
    ordinals: Sequence[int],
    columns: Sequence[str],
    tally: Tally | None = None,
    *,
    located: bool | str = True,
) -> DataFrame:
    """The named columns of some source partitions, mapped if the job has a map, with the origin of every row.

    Args:
        columns: the columns in order, of the mapped rows if there is a map. They are returned as ``c0``, ``c1``, ...,
            followed by ``origin`` and, if there is a map, ``origin_index``.
        located: whether origins are needed. If not, they may all be 0, which is cheaper. It may also be a condition in
            SQL over the columns of a job without a map, there called ``s0``, ``s1``, ...: other rows need none.
    """
    types = {**job.key_types, **job.column_types}
    if not ordinals:
        index = f", {ORIGIN_INDEX} int" if job.spec.map else ""
        ddl = "".join(f"c{number} {types[name]}, " for number, name in enumerate(columns))
        return spark.createDataFrame(cast("list[Row]", []), f"{ddl}{ORIGIN} bigint{index}")
    wanted = list(source_columns(job, columns))
    rows = source_rows(spark, job, ordinals, wanted, located=located if job.spec.map is None else bool(located))
    if tally:
        rows = tally.reading(rows)
    if job.spec.map is None:
        found = rows.selectExpr(*(f"s{wanted.index(name)} AS c{n}" for n, name in enumerate(columns)), ORIGIN)
    else:
        found = mapped_rows(job, rows, wanted, columns, ORIGIN, ORIGIN_INDEX)
    return tally.giving(found) if tally else found


def source_rows(
    spark: SparkSession, job: Job, ordinals: Sequence[int], wanted: Sequence[str], *, located: bool | str
) -> DataFrame:
    """The columns of the files of some units, ``s0``, ``s1``, ..., and ``origin``, before a map."""
    native = _native(spark, job, ordinals, wanted, located=located)
    scanned = set(native)
    ranges = [ordinal for ordinal in ordinals if ordinal not in scanned]
    frames = [_scanned(spark, job, native, wanted, located=located)] if native else []
    if ranges:
        frames.append(_ranged(spark, job, ranges, wanted))
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def scanned_bytes(
    spark: SparkSession, job: Job, ordinals: Sequence[int], columns: Sequence[str], *, located: bool
) -> list[int]:
    """The sizes of the files that Spark's own scans read, and cut, for ``read_units`` with these arguments."""
    native = _native(spark, job, ordinals, source_columns(job, columns), located=located)
    return list({unit.path: unit.size_bytes for unit in map(job.units.__getitem__, native)}.values())


def _native(
    spark: SparkSession, job: Job, ordinals: Sequence[int], wanted: Sequence[str], *, located: bool | str
) -> list[int]:
    """The units that Spark's own scan reads: whole Parquet files, and of ``_UNPLACED`` what needs no place."""
    source = job.source
    # The files of a table may lie elsewhere than its name says: ``_for_spark`` looks at each.
    if source.pinned is None and not spark_reads(spark, job.input_path):
        return []
    if source.format == "parquet":
        return [one for one in ordinals if (unit := job.units[one]).span is None and _for_spark(job, unit)]
    if located or source.format not in _UNPLACED:
        return []
    if not all(_UNPLACED[source.format].fullmatch(f"{name} {source.columns.get(name)}") for name in wanted):
        return []
    return _complete(spark, job, ordinals)


def _complete(spark: SparkSession, job: Job, ordinals: Sequence[int]) -> list[int]:
    """Those of some units whose files Spark may cut in its own way, since all units of the file are there.

    Spark would decompress a text whose name is that of a compressed file, for more endings than we know.
    """
    paths = column(job.units, "path")
    here, everywhere = Counter(paths[ordinal] for ordinal in ordinals), Counter(paths)
    endings = {posixpath.splitext(path)[1] for path in here}
    plain = {ending for ending in endings if not decompresses(spark, f"lines{ending}")}

    def complete(unit: Unit) -> bool:
        return here[unit.path] == everywhere[unit.path] and posixpath.splitext(unit.path)[1] in plain

    return [one for one in ordinals if complete(unit := job.units[one]) and _for_spark(job, unit)]


def _for_spark(job: Job, unit: Unit) -> bool:
    """Whether Spark can read a unit's file: with columns as it reads them, and no underscore or dot before its name.

    Of a table, it must also have all of its columns and rows, and lie where Spark needs no further jar.
    """
    name = unit.path.rpartition("/")[2]
    plain = not any(unit.inner.values()) and not name.startswith(("_", "."))
    if job.source.pinned is None:
        return plain
    return plain and not (unit.inner or unit.deletes or "://" in unit.path or ":" in name)


def _types(job: Job) -> Mapping[str, str]:
    given = {**job.key_types, **job.column_types} if job.spec.map is None else {}
    return {**given, **job.source.columns, **job.source.partition_columns, **FILE_COLUMNS}


def _ranged(spark: SparkSession, job: Job, ordinals: Sequence[int], wanted: Sequence[str]) -> DataFrame:
    types = _types(job)
    parts = _spread([(one, job.units[one]) for one in ordinals], spark.sparkContext.defaultParallelism)
    schema = ", ".join([*(f"s{number} {types[name]}" for number, name in enumerate(wanted)), f"{ORIGIN} bigint"])
    numbers = spark.range(0, len(parts), 1, len(parts))
    vectors = _vectors(job, ordinals)
    return map_in_batches(numbers, read_parts(parts, job.source, list(wanted), ORIGIN, vectors), schema)


def _vectors(job: Job, ordinals: Sequence[int]) -> dict[str, bytes]:
    """The deletion vectors of some units of a table whose log has them: workers do not read that."""
    paths = {unit.path for unit in map(job.units.__getitem__, ordinals) if unit.deletes}
    pinned = job.source.pinned
    found = READERS[pinned.kind].vectors(pinned) if pinned and paths else {}
    return {path: vector for path, vector in found.items() if path in paths}


def _spread(units: Sequence[tuple[int, Unit]], slots: int) -> list[list[tuple[int, Unit]]]:
    """Assign units to tasks: the largest first, to the task with the fewest bytes. A task's units are in order."""
    sizes = {ordinal: _bytes(unit) for ordinal, unit in units}
    tasks = min(len(units), max(2 * slots, -(-sum(sizes.values()) // _TASK_BYTES)))
    filled = [(0, number) for number in range(tasks)]
    parts: list[list[tuple[int, Unit]]] = [[] for _ in range(tasks)]
    for ordinal, unit in sorted(units, key=lambda one: (-sizes[one[0]], one[0])):
        taken, number = heapq.heappop(filled)
        parts[number].append((ordinal, unit))
        heapq.heappush(filled, (taken + sizes[ordinal], number))
    return [sorted(part, key=lambda one: one[0]) for part in parts]


def _bytes(unit: Unit) -> int:
    """About the bytes of a unit, plus a constant for opening its file."""
    if unit.span is None:
        return unit.size_bytes + (1 << 16)
    # For row groups and stripes only the rows are known, which serve as well.
    return (unit.rows << 4 if unit.counted else unit.span[1] - unit.span[0]) + (1 << 16)


@contextmanager
def _listed_here(spark: SparkSession, paths: Sequence[str]) -> Iterator[None]:
    """Let Spark's driver look up local files: for more than a few paths it would run a job, which takes longer."""
    if any("://" in path for path in paths):
        yield
        return
    before = spark.conf.get(_LISTING_JOB)
    spark.conf.set(_LISTING_JOB, len(paths) + 1)
    try:
        yield
    finally:
        spark.conf.set(_LISTING_JOB, str(before))


def scanned_files(spark: SparkSession, kind: str, schema: str | StructType | None, paths: Sequence[str]) -> DataFrame:
    """Exactly these files, by Spark's own scan.

    Args:
        schema: of the columns to read; if it is not given, Spark finds out.
        paths: of the files, with all characters as they are.
    """
    reader: Any = (spark.read.schema(schema) if schema else spark.read).options(**_ALL_OF_IT).format(kind)
    named = [literally(path) for path in paths]
    with _listed_here(spark, named):
        if len(named) <= _NAMED_PATHS:
            return cast("DataFrame", reader.load(named))
        # As one text: each path on its own would be a call to the JVM. No path has a NUL.
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  # there is no other way to hand over many texts
        listed = jvm.java.util.regex.Pattern.compile("\0").split("\0".join(named))
        return DataFrame(reader._jreader.load(listed), spark)  # noqa: SLF001


def _scanned(
    spark: SparkSession, job: Job, ordinals: Sequence[int], wanted: Sequence[str], *, located: bool | str
) -> DataFrame:
    types, source = _types(job), job.source
    inside = [name for name in wanted if name not in source.partition_columns and name not in FILE_COLUMNS]
    ddl = ", ".join(f"{quoted(name)} {types[name]}" for name in inside)
    units = [job.units[ordinal] for ordinal in ordinals]
    partitions = [name for name in wanted if name in source.partition_columns]
    rows = scanned_files(spark, source.format, ddl, list(dict.fromkeys(unit.path for unit in units)))
    inner = [f"{quoted(name)} AS s{wanted.index(name)}" for name in inside]
    inner += [f"{name} AS s{wanted.index(name)}" for name in wanted if name in FILE_COLUMNS]
    if not (located or partitions):
        return rows.selectExpr(*inner, f"CAST(0 AS BIGINT) AS {ORIGIN}")
    # A number is looked up in half the time of a path. Were two paths to have one number, their rows would be doubled,
    # and the ledger would not balance.
    path = "xxhash64(file_path)"
    # What is null is not looked up.
    looked_up = f"IF({located}, {path}, NULL)" if isinstance(located, str) and not partitions else path
    place = ["_metadata.file_path AS file_path", "_metadata.row_index AS row_index"]
    found = rows.selectExpr(*inner, *place).withColumn("path_hash", F.expr(looked_up))
    # As an Arrow table it needs no Python worker.
    known = spark.createDataFrame(
        pa.table(
            {
                "listed_path": pa.array([as_spark_says(unit.path) for unit in units], pa.string()),
                "ordinal": pa.array(ordinals, pa.int64()),
                **{
                    f"p{n}": pa.array([unit.values[one] for unit in units], pa.string())
                    for n, one in enumerate(partitions)
                },
            }
        )
    )
    # A left join: if Spark spells a path differently, the run must stop and not lose rows.
    listed = known.selectExpr("* EXCEPT (listed_path)", "xxhash64(listed_path) AS listed_hash")
    joined = found.join(F.broadcast(listed), F.expr("path_hash = listed_hash"), "left")
    unknown = "CAST(raise_error(concat('skewless: not a listed file: ', file_path)) AS BIGINT)"
    origin = f"shiftleft(coalesce(ordinal, {unknown}), {OFFSET_BITS}) | row_index"
    columns = [
        f"CAST(p{partitions.index(name)} AS {types[name]}) AS s{number}" if name in partitions else f"s{number}"
        for number, name in enumerate(wanted)
    ]
    return joined.selectExpr(*columns, f"IF(path_hash IS NULL, NULL, {origin}) AS {ORIGIN}")
