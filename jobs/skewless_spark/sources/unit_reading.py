"""Reads a wave in a stage: whole files by Spark's own scans, row groups and some files of tables by pyarrow."""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, cast

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from skewless.columns import numbers
from skewless.documents.job import LARGEST_SPLIT_BYTES, Job, Source, Unit
from skewless.errors import InputError
from skewless.routing.hashing import OFFSET_BITS
from skewless_spark.mapping import mapped_rows, source_columns
from skewless_spark.session.session import jvm_of, map_in_batches, spark_reads
from skewless_spark.session.versions import local_frame
from skewless_spark.sources.cutting import LEAST_BYTES
from skewless_spark.sources.formats.column_types import fields_within
from skewless_spark.sources.formats.input_files import (
    FILE_COLUMNS,
    ROW_INDEX,
    as_spark_says,
    is_hidden,
    literally,
    quoted,
    text_literal,
)
from skewless_spark.sources.formats.texts import ENCODING
from skewless_spark.sources.lake.table_inputs import reader_of
from skewless_spark.sources.worker_files import read_parts

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

#: The place of a row in a file that Spark does not number: the block of the file that it is in, and its number there.
#: A block is at least a part of the file that these bits can number, and has fewer rows than the others can.
_BLOCK_BITS, _ROW_BITS = 12, OFFSET_BITS - 12
#: Blocks for each slot, so that slots end together; more of them are read in one task after the other.
_BLOCKS_PER_SLOT = 32

#: What opening a file costs, in bytes read.
_OPENING_BYTES = 1 << 16

#: So many paths are handed to Spark one by one.
_NAMED_PATHS = 16

#: The maximum bytes that a Spark task reads with pyarrow, unless a single unit is larger.
_TASK_BYTES = 64 << 20


class Tally:
    """Counts the rows of a wave before a map and those that its reader returns, before routing; see ``LedgerLine``.

    A tally belongs to one frame of ``read_units``, and has its counts once that has been run. Rows of a map that are
    not routed are not counted before: the generated loop that makes states of them counts them, and would end there.
    """

    def __init__(self, *, counts_given: bool = True) -> None:
        self._counts_given = counts_given
        self._read: Observation | int = 0
        self._given: Observation | None = None

    def reading(self, frame: DataFrame, units: Sequence[Unit]) -> DataFrame:
        """Count the rows of the files, where footers do not: else a filter need not wait for a count beneath it."""
        if all(unit.counted for unit in units):
            self._read = sum(unit.rows for unit in units)
            return frame
        self._read = Observation("skewless read")
        return frame.observe(self._read, F.count(F.lit(1)).alias("rows"))

    def giving(self, frame: DataFrame) -> DataFrame:
        """Count the rows that leave the reader."""
        if not self._counts_given:
            return frame
        self._given = Observation("skewless given")
        return frame.observe(self._given, F.count(F.lit(1)).alias("rows"))

    @property
    def counts(self) -> dict[str, int | None]:
        """``source_rows`` and, where they are counted, ``given_rows``, as a stage report has them."""
        given = {"given_rows": _rows(self._given) if self._given else 0} if self._counts_given else {}
        return {"source_rows": self._read if isinstance(self._read, int) else _rows(self._read), **given}


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
        rows = tally.reading(rows, [job.units[ordinal] for ordinal in ordinals])
    if job.spec.map is None:
        found = rows.selectExpr(*(f"s{wanted.index(name)} AS c{n}" for n, name in enumerate(columns)), ORIGIN)
    else:
        found = mapped_rows(job, rows, wanted, columns, ORIGIN, ORIGIN_INDEX, lookups_of(spark, job))
    return tally.giving(found) if tally else found


def lookups_of(spark: SparkSession, job: Job) -> dict[str, DataFrame]:
    """What the map of a job joins its rows to, as the run has pinned it, with columns by their own names."""
    frames = {}
    for lookup in job.lookups:
        names = list(lookup.source.reads)
        whole = job.of_lookup(lookup)
        rows = source_rows(spark, whole, range(len(lookup.units)), names, located=False) if lookup.units else None
        types = {**lookup.source.columns, **lookup.source.partition_columns}
        if rows is None:
            ddl = ", ".join(f"{quoted(name)} {types[name]}" for name in names)
            frames[lookup.name] = spark.createDataFrame(cast("list[Row]", []), ddl)
        else:
            frames[lookup.name] = rows.selectExpr(*(f"s{at} AS {quoted(name)}" for at, name in enumerate(names)))
    return frames


def source_rows(
    spark: SparkSession, job: Job, ordinals: Sequence[int], wanted: Sequence[str], *, located: bool | str
) -> DataFrame:
    """The columns of the files of some units, ``s0``, ``s1``, ..., and ``origin``, before a map."""
    ways = [_way(job, name) for name in wanted]
    roots = list(dict.fromkeys(way[0] for way in ways))
    native = _native(spark, job, ordinals, whole=not located)
    scanned = set(native)
    ranges = [ordinal for ordinal in ordinals if ordinal not in scanned]
    if ranges and job.source.format not in {"parquet", "text"}:
        raise InputError(
            f"input {job.input_path}", f"a path that Spark reads, for {job.source.format}",
            "one that it has no file system for", "give Spark the file system of this scheme, or write Parquet",
        )  # fmt: skip
    if ROW_INDEX in roots:
        # Whoever runs this query needs the numbers of lines, which are right only if no other file is read before.
        for name, value in placing_settings(job, ordinals).items():
            spark.conf.set(name, value)
    if roots != list(wanted):  # a condition names the columns by their numbers
        located = bool(located)
    frames = [_scanned(spark, job, one, roots, located=located) for one in _alike(job, native)]
    if ranges:
        frames.append(_ranged(spark, job, ranges, roots))
    rows = reduce(DataFrame.unionByName, frames)
    if roots == list(wanted):
        return rows
    fields = [".".join([f"s{roots.index(way[0])}", *map(quoted, way[1:])]) for way in ways]
    return rows.selectExpr(*(f"{field} AS s{number}" for number, field in enumerate(fields)), ORIGIN)


def _way(job: Job, name: str) -> tuple[str, ...]:
    """A column and, of a field of a struct, its way there: a column that has the whole name comes first."""
    known = {**job.source.columns, **job.source.partition_columns, **FILE_COLUMNS}
    return (name,) if name in known else fields_within(known).get(name, (name,))


def _alike(job: Job, ordinals: Sequence[int]) -> list[list[int]]:
    """The units that one scan reads: of a csv, those with one header."""
    found: dict[tuple[str, ...], list[int]] = {}
    for ordinal in ordinals:
        found.setdefault(job.units[ordinal].header, []).append(ordinal)
    return list(found.values())


def scanned_bytes(spark: SparkSession, job: Job, ordinals: Sequence[int], *, located: bool) -> list[int]:
    """The sizes of the files that Spark's own scans read, and cut, for ``read_units`` with these arguments."""
    native = _native(spark, job, ordinals, whole=not located)
    return list({unit.path: unit.size_bytes for unit in map(job.units.__getitem__, native)}.values())


def placing_settings(job: Job, ordinals: Sequence[int]) -> dict[str, str]:
    """Spark's settings for a query that reads places in files that Spark does not number.

    A block of a large file is a partition of its own, small files share one, and both follow from the job alone: so a
    row has the same place whatever the cluster is, and whenever it is read. None for Parquet, whose rows Spark numbers.
    """
    if job.source.format == "parquet" or not ordinals:
        return {}
    size = sum(job.units[ordinal].size_bytes for ordinal in ordinals)
    block = max(LEAST_BYTES, min(LARGEST_SPLIT_BYTES, size // job.combine_splits), 1 << _block_bits(job))
    opening = _OPENING_BYTES
    if ROW_INDEX in job.source.reads:
        block = opening = max(block, _largest(job))  # a line has a number in a whole file, alone in its partition
    return {
        "spark.sql.files.maxPartitionBytes": str(block),
        "spark.sql.files.openCostInBytes": str(opening),
        "spark.sql.files.minPartitionNum": "1",
    }


def _largest(job: Job) -> int:
    return int(numbers(job.units, "size_bytes").max(initial=0))


def _block_bits(job: Job) -> int:
    return max(LEAST_BYTES.bit_length() - 1, _largest(job).bit_length() - _BLOCK_BITS)


def _native(spark: SparkSession, job: Job, ordinals: Sequence[int], *, whole: bool) -> list[int]:
    """The units that Spark's own scan reads; if whole files may be read, also those of which all pieces are asked."""
    # The files of a table may lie elsewhere than its name says: ``_for_spark`` looks at each.
    if job.source.pinned is None and not spark_reads(spark, job.input_path):
        return []
    found = [one for one in ordinals if _for_spark(job, job.units[one])]
    pieces = Counter(job.units[one].path for one in found if job.units[one].span)
    if pieces and whole:
        all_of = Counter(unit.path for unit in job.units if unit.span)
        pieces = Counter({path: many for path, many in pieces.items() if many < all_of[path]})
    return [one for one in found if job.units[one].span is None or job.units[one].path not in pieces]


def _for_spark(job: Job, unit: Unit) -> bool:
    """Whether Spark can read a unit's file: with columns as it reads them, and no underscore or dot before its name.

    Of a table, it must also have all of its columns and rows, and lie where Spark needs no further jar.
    """
    name = unit.path.rpartition("/")[2]
    plain = not any(unit.inner.values()) and not is_hidden(name)
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
    # Workers do not read the log of a table, which has its deletion vectors.
    paths, pinned = {unit.path for unit in map(job.units.__getitem__, ordinals) if unit.deletes}, job.source.pinned
    found = reader_of(pinned.kind).vectors_of(pinned) if pinned and paths else {}
    vectors = {path: vector for path, vector in found.items() if path in paths}
    return map_in_batches(numbers, read_parts(parts, job.source, list(wanted), ORIGIN, vectors), schema)


def _spread(units: Sequence[tuple[int, Unit]], slots: int) -> list[list[tuple[int, Unit]]]:
    """Assign units to tasks: the largest first, to the task with the fewest bytes. A task's units are in order."""
    # Of row groups only the rows are known, which serve as well.
    sizes = {ordinal: (unit.rows << 4 if unit.span else unit.size_bytes) + (1 << 16) for ordinal, unit in units}
    tasks = min(len(units), max(2 * slots, -(-sum(sizes.values()) // _TASK_BYTES)))
    filled = [(0, number) for number in range(tasks)]
    parts: list[list[tuple[int, Unit]]] = [[] for _ in range(tasks)]
    for ordinal, unit in sorted(units, key=lambda one: (-sizes[one[0]], one[0])):
        taken, number = heapq.heappop(filled)
        parts[number].append((ordinal, unit))
        heapq.heappush(filled, (taken + sizes[ordinal], number))
    return [sorted(part, key=lambda one: one[0]) for part in parts]


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


def scanned_files(
    spark: SparkSession, kind: str, schema: str | StructType | None, paths: Sequence[str],
    options: Mapping[str, str] | None = None,
) -> DataFrame:  # fmt: skip
    """Exactly these files, by Spark's own scan.

    Args:
        schema: of the columns to read; if it is not given, Spark finds out.
        paths: of the files, with all characters as they are.
    """
    given = {**(options or {}), **_ALL_OF_IT}
    reader: Any = (spark.read.schema(schema) if schema else spark.read).options(**given).format(kind)
    named = [literally(path) for path in paths]
    with _listed_here(spark, named):
        if len(named) <= _NAMED_PATHS:
            return cast("DataFrame", reader.load(named))
        # As one text: each path on its own would be a call to the JVM. No path has a NUL.
        listed = jvm_of(spark).java.util.regex.Pattern.compile("\0").split("\0".join(named))
        return DataFrame(reader._jreader.load(listed), spark)  # noqa: SLF001


def _scanned(
    spark: SparkSession, job: Job, ordinals: Sequence[int], wanted: Sequence[str], *, located: bool | str
) -> DataFrame:
    types, source = _types(job), job.source
    files = {job.units[ordinal].path: ordinal for ordinal in reversed(ordinals)}
    ordinals = sorted(files.values())  # of a file in pieces, that of the first
    units = [job.units[ordinal] for ordinal in ordinals]
    inside = [name for name in wanted if name not in source.partition_columns and name not in FILE_COLUMNS]
    partitions = [name for name in wanted if name in source.partition_columns]
    # A line of a csv is all of its columns, in the order of its own header.
    by_place = source.format == "csv" or (source.format == "orc" and any(one.startswith("_col") for one in inside))
    columns = (by_place and units[0].header) or list(source.columns)
    ddl = ", ".join(f"{quoted(name)} {types[name]}" for name in columns)
    fixed: dict[str, str] = {}
    if source.format == "csv":  # Spark compares headers, and counts the values of each line
        fixed = {"enforceSchema": "false", "columnPruning": source.options.get("columnPruning", "false")}
    paths = [unit.path for unit in units]
    rows = scanned_files(spark, source.format, ddl, paths, {**source.options, **fixed})
    numbered, block_bits = source.format == "parquet", _block_bits(job)
    inner = [f"{_checked(source, name, types)} AS s{wanted.index(name)}" for name in inside if name in columns]
    inner += [f"CAST(NULL AS {types[name]}) AS s{wanted.index(name)}" for name in inside if name not in columns]
    inner += [
        f"{_of_file(name, numbered=numbered)} AS s{wanted.index(name)}" for name in wanted if name in FILE_COLUMNS
    ]
    if not (located or partitions):
        return rows.selectExpr(*inner, f"CAST(0 AS BIGINT) AS {ORIGIN}")
    # A number is looked up in half the time of a path. Were two paths to have one number, their rows would be doubled,
    # and the ledger would not balance.
    path = "xxhash64(file_path)"
    # What is null is not looked up.
    looked_up = f"IF({located}, {path}, NULL)" if isinstance(located, str) and not partitions else path
    row = ROW_INDEX if numbered else _place(block_bits) if located else "CAST(0 AS BIGINT)"
    observed = rows.selectExpr(*inner, "_metadata.file_path AS file_path", f"{row} AS row_index")
    observed = observed.withColumn("path_hash", F.expr(looked_up))
    # As an Arrow table it needs no Python worker.
    known = local_frame(
        spark,
        pa.table(
            {
                "listed_path": pa.array([as_spark_says(unit.path) for unit in units], pa.string()),
                "ordinal": pa.array(ordinals, pa.int64()),
                **{
                    f"p{n}": pa.array([unit.values[one] for unit in units], pa.string())
                    for n, one in enumerate(partitions)
                },
            }
        ),
    )
    # A left join: if Spark spells a path differently, the run must stop and not lose rows.
    listed = known.selectExpr("*", "xxhash64(listed_path) AS listed_hash").drop("listed_path")
    joined = observed.join(F.broadcast(listed), F.expr("path_hash = listed_hash"), "left")
    unknown = "CAST(raise_error(concat('skewless: not a listed file: ', file_path)) AS BIGINT)"
    origin = f"shiftleft(coalesce(ordinal, {unknown}), {OFFSET_BITS}) | row_index"
    selected = [
        f"CAST(p{partitions.index(name)} AS {types[name]}) AS s{number}" if name in partitions else f"s{number}"
        for number, name in enumerate(wanted)
    ]
    placed = joined.selectExpr(*selected, f"IF(path_hash IS NULL, NULL, {origin}) AS {ORIGIN}")
    if numbered or not located:
        return placed
    # Neighbouring blocks are read by one task if they are many; the rows of each are numbered before.
    blocks = sum(1 + (unit.size_bytes >> block_bits) for unit in units)
    most = _BLOCKS_PER_SLOT * spark.sparkContext.defaultParallelism
    return placed.coalesce(most) if blocks > most else placed


def _place(block_bits: int) -> str:
    """The place of a row in its file, in SQL: its block, and its number among the rows of a partition (33 bits)."""
    number = f"(monotonically_increasing_id() & {(1 << 33) - 1}L)"
    start, length, size = (f"_metadata.{one}" for one in ("file_block_start", "file_block_length", "file_size"))
    short = f"({start} + {length} < {size} AND {length} < {1 << block_bits}L)"
    error = "CAST(raise_error('skewless: more blocks or rows of a file than can be told apart') AS BIGINT)"
    place = f"shiftleft(shiftright({start}, {block_bits}), {_ROW_BITS}) | {number}"
    return f"IF({short} OR {number} >= {1 << _ROW_BITS}L, {error}, {place})"


def _of_file(name: str, *, numbered: bool) -> str:
    if name != ROW_INDEX or numbered:
        return name
    whole = "_metadata.file_block_length = _metadata.file_size"
    return f"IF({whole}, monotonically_increasing_id() & {(1 << 33) - 1}L, NULL)"


def _checked(source: Source, name: str, types: Mapping[str, str]) -> str:
    """A column of a file. Spark reads bytes of a csv that are no UTF-8 as U+FFFD: refused, if no encoding is said."""
    column = quoted(name)
    if source.format != "csv" or "encoding" in source.options or types[name] != "string":
        return column
    told = InputError("input file \0", "text in UTF-8", "other bytes", ENCODING)
    before, after = map(text_literal, f"skewless.errors.InputError: {told}".split("\0"))
    sentence = f"concat({before}, regexp_replace(input_file_name(), '^file:/*', '/'), {after})"
    return f"IF(contains({column}, '\ufffd'), raise_error({sentence}), {column})"
