"""The certificate of a published run: what it read, what became of the rows on the way, and what is published.

What was published and read is hashed here, from the files themselves, and with the code that the checker has: so a
certificate holds the work of Spark against that of others. What the run counted and hashed stands beside it. An
auditor's checker, ``check_certificate.py``, reads it.
"""

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field
from sqlglot import exp
from sqlglot.errors import SqlglotError

from skewless.document import HASHES, Count, Document, Frozen
from skewless.documents.commit import CommittedFile
from skewless.documents.job import Job
from skewless.documents.window import InputFile
from skewless.errors import InputError, LedgerError, RunDirectoryError
from skewless.publication.publish import Validated
from skewless.publication.records import QUARANTINE, identity_of, manifest_of, publication_of, published_path
from skewless.query.functions import SYNONYMS
from skewless.query.sql import call_name, parsed
from skewless.run.directory import RESULT_STEP, RunDirectory, stage_step
from skewless.spec.calls import AggregateCall
from skewless.spec.result import WINDOW_COLUMN
from skewless_cli import check_certificate as checker
from skewless_lake.staged_files import staged_parts
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.states.committed_files import counting, readable
from skewless_spark.states.job_columns import HASH, JobColumns

#: Types of Spark SQL in DuckDB and in Arrow.
_TYPES = {
    "string": ("VARCHAR", pa.string()), "binary": ("BLOB", pa.binary()), "boolean": ("BOOLEAN", pa.bool_()),
    "tinyint": ("TINYINT", pa.int8()), "smallint": ("SMALLINT", pa.int16()), "int": ("INTEGER", pa.int32()),
    "bigint": ("BIGINT", pa.int64()), "float": ("FLOAT", pa.float32()), "double": ("DOUBLE", pa.float64()),
    "date": ("DATE", pa.date32()), "timestamp": ("TIMESTAMPTZ", pa.timestamp("us", "UTC")),
    "timestamp_ntz": ("TIMESTAMP", pa.timestamp("us")),
}  # fmt: skip
_MOST_DIGITS = 18
#: As folders of partitions say null.
_NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"

#: Rows, and their hash, see ``skewless.document.HASHES``.
Total = tuple[Count, Count]


class Balance(Frozen):
    """What adds up: the totals ``of`` some rows, by their names, and of what was ``made`` of these."""

    what: str
    of: dict[str, Total]
    made: dict[str, Total]


class CertifiedFile(Frozen):
    """A file of the input or of the published table."""

    path: str
    size_bytes: Count
    version: str = ""
    """As ``InputFile`` has it, as are values and inner."""
    sha256: str = ""
    """Of its bytes, if the run has recorded it; else empty."""
    values: dict[str, str | None] = Field(default_factory=dict)
    inner: dict[str, str | None] = Field(default_factory=dict)
    rows: Count = 0
    """That the run has read of it, with the hash of their columns."""
    rows_hash: Count = 0
    unchecked: str = ""
    """Why its rows are not told; empty if they are."""


class CertifiedInput(Frozen):
    """The input as the run has pinned it: its files, and the columns that are read, with their types in DuckDB."""

    path: str
    format: str
    snapshot: str
    columns: dict[str, str]
    files: tuple[CertifiedFile, ...]


class CertifiedRows(Frozen):
    """The rows that were aggregated."""

    columns: dict[str, str]
    """That their hash is of, in order, with their types in DuckDB."""
    total: Total
    spark: str = ""
    """The query that makes them of the rows of ``input``; empty if these are the rows."""
    duckdb: str = ""
    """The same for DuckDB; empty if it is ``unchecked``, and why."""
    unchecked: str = ""


class CertifiedValue(Frozen):
    """A published column beside the key: its aggregate over the rows in DuckDB, and how far that may be off."""

    spark: str
    duckdb: str = ""
    within: dict[str, float] = Field(default_factory=dict)
    """``rel_tol`` and ``abs_tol`` of ``math.isclose``; equal if it is empty."""
    unchecked: str = ""


class CertifiedResult(Frozen):
    """The published table."""

    path: str
    snapshot: str
    columns: dict[str, str]
    """That the hash of its rows is of, in order, with their types in DuckDB."""
    files: tuple[CertifiedFile, ...]
    keys: dict[str, str]
    """The published name of each key column of the rows."""
    where: dict[str, int | None]
    """Of which rows the values are told."""
    values: dict[str, CertifiedValue]


class RunCertificate(Document):
    """That what a run has published was made of its input, with nothing lost, doubled or altered."""

    run: str
    job: str
    part: str
    query: str
    """Of the spec; empty where it has none."""
    skewless: str
    """The release that wrote it."""
    input: CertifiedInput
    rows: CertifiedRows
    balances: tuple[Balance, ...]
    result: CertifiedResult


class _Columns(NamedTuple):
    """Columns whose rows can be hashed, and of the others why not, by their names."""

    duckdb: dict[str, str]
    schema: pa.Schema
    unchecked: dict[str, str]

    @classmethod
    def of(cls, types: Mapping[str, str]) -> "_Columns":
        known = {name: found for name, kind in types.items() if (found := _type_of(kind)) is not None}
        odd = {name: f"{name} is of type {kind}" for name, kind in types.items() if name not in known}
        schema = pa.schema({name: kind for name, (_, kind) in known.items()})
        return cls({name: kind for name, (kind, _) in known.items()}, schema, odd)


def _type_of(kind: str) -> tuple[str, pa.DataType] | None:
    digits = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
    if digits is None:
        return _TYPES.get(kind)
    precision, scale = map(int, digits.groups())
    return (f"DECIMAL({precision},{scale})", pa.decimal128(precision, scale)) if precision <= _MOST_DIGITS else None


def certificate_of(run: RunDirectory) -> RunCertificate:
    """The certificate of a run.

    Raises:
        RunDirectoryError: it is not published, or is not any more.
        InputError: a file of the input is gone, or has other rows than were read.
        LedgerError: rows were lost, doubled or altered on the way.
    """
    publication = publication_of(run)
    if publication is None:
        raise RunDirectoryError.saying(f"run {run}", "it has published nothing that could be certified", "publish it")
    job = run.job()
    rows, given = _rows(run), _input(job)
    result, published = _result(run)
    balances = [*_states(run), *_balances(run), *published]
    if not rows.spark and not any(file.unchecked for file in given.files):
        of_files = {file.path: (file.rows, file.rows_hash) for file in given.files}
        balances.append(Balance(what="the rows of the input", of=of_files, made={"aggregated": rows.total}))
    for one in balances:
        count, hashed = (_sum(one.of, at) - _sum(one.made, at) for at in (0, 1))
        if count or hashed % HASHES:
            why = "a file was changed since it was read, or rows were lost, doubled or altered"
            raise LedgerError.saying(f"run {run}", f"{one.what}: they do not balance", why)
    return RunCertificate(
        run=str(run), job=job.spec.name, part=str(job.part), query=job.spec.query or "", skewless=version("skewless"),
        input=given, rows=rows, balances=tuple(balances), result=result,
    )  # fmt: skip


def _sum(totals: Mapping[str, Total], at: int) -> int:
    return sum(total[at] for total in totals.values())


def _balances(run: RunDirectory) -> list[Balance]:
    """The chain of the run's own hashes: of stages, parts, windows and the result."""
    job, lines, result = run.job(), run.part_lines(), run.committed(RESULT_STEP)
    stages = {f"stage {one.stage}": (one.processed_rows, one.rows_hash or 0) for one in run.reports()}
    kept = {f"kept states of {one.part}": (one.unchanged_rows, one.unchanged_hash) for one in lines.parts}
    new = {f"new states of {one.part}": (one.new_rows, one.new_hash) for one in lines.parts}
    merged = {"result": (result.count("rows"), result.count("hash"))}
    found = [Balance(what="the rows of all states, and of the result", of=stages | kept, made=merged)]
    if lines.parts:
        found.append(Balance(what="the rows of stages, and of new states", of=stages, made=new))
    for window, span in zip(lines.windows, job.covered.windows, strict=True):
        parts = {
            one.part: (one.rows, (one.unchanged_hash + one.new_hash) % HASHES) for one in lines.parts[span.first :]
        }
        made = {"result": (window.rows, window.rows_hash)}
        found.append(Balance(what=f"the rows of window {window.name}", of=parts, made=made))
    return found


def _states(run: RunDirectory) -> list[Balance]:
    """The states of each stage, read to their end, as far as they are there: states may be pruned."""
    found = []
    for report in run.reports():
        committed = run.committed(stage_step(report.stage)).files
        files = [file for file in committed if file.path.endswith(".parquet")]
        if not all(run.exists(file.path) for file in files):
            continue
        read = {file.path: (file, _read(run, file)) for file in files}
        made = {path: total for path, (file, total) in read.items() if file in counting(files)}
        of = {f"stage {report.stage}": (report.processed_rows, report.rows_hash or 0)}
        found.append(Balance(what=f"the rows of the states of stage {report.stage}", of=of, made=made))
    return found


def _read(run: RunDirectory, file: CommittedFile) -> Total:
    """The rows of the input that states stand for, and their hash; Arrow compares the checksum of each page."""
    run.verify(file)
    rows = hashed = 0
    with readable(run, file), run.fs.open(f"{run.root}/{file.path}", "rb") as opened:
        for batch in open_parquet(opened).iter_batches():
            if {"rows", HASH} <= {*batch.schema.names}:
                rows += pc.sum(batch["rows"]).as_py() or 0
                hashed += pc.sum(batch[HASH]).as_py() or 0
    return rows, hashed % HASHES


def _input(job: Job) -> CertifiedInput:
    source, columns = job.source, JobColumns.of(job)
    types = dict(zip(columns.inputs, columns.types, strict=True))
    of_files = {**source.columns, **source.partition_columns}
    hashed = [columns.inputs[columns.names.index(name)] for name in columns.hashed]
    read = {name: of_files.get(name, "a field of a struct") for name in source.reads} if job.spec.map else {
        name: types[name] if name in of_files else "a field of a struct" for name in hashed
    }  # fmt: skip
    made = _Columns.of(read)
    of_parts = [file for part in job.covered.parts for file in part.files]
    files: Iterable[InputFile] = of_parts or {one.path: one for one in job.units}.values()
    snapshot = str(source.pinned or "")
    certified = (_of_input(job, file, made) for file in files)
    return CertifiedInput(
        path=job.input_path, format=source.format, snapshot=snapshot, columns=made.duckdb, files=tuple(certified)
    )


def _of_input(job: Job, file: InputFile, columns: _Columns) -> CertifiedFile:
    in_path = {name: unquote(value) for name, value in re.findall(r"/([^/=]+)=([^/]*)", file.path)}
    known = {name: value for name, value in in_path.items() if value != _NULL_VALUE} | file.values
    values = {name: known.get(name) for name in job.source.partition_columns}
    why = next(iter(columns.unchecked.values()), "")
    if job.source.format != "parquet":
        why = f"its format is {job.source.format}"
    elif file.deletes:
        why = "its table has deleted some of them"
    told = CertifiedFile(
        path=file.path, size_bytes=file.size_bytes, version=file.version, sha256=file.checksum, values=values,
        inner={name: inner or "" for name, inner in file.inner.items()}, unchecked=why,
    )  # fmt: skip
    return _hashed(told, columns.schema)


def _hashed(file: CertifiedFile, schema: pa.Schema) -> CertifiedFile:
    """A file with the rows that it has now."""
    if file.unchecked:
        return file
    rows = hashed = 0
    try:
        for batch in checker.batches_of(file.path, file.model_dump(), schema):
            rows, hashed = rows + len(batch), hashed + checker.hash_of(batch)
    except FileNotFoundError:
        raise InputError.saying(f"file {file.path}", "it is gone", "what is not there cannot be certified") from None
    except (OSError, ValueError) as err:
        return file.model_copy(update={"unchecked": f"it could not be read: {err}"[:200]})
    return file.model_copy(update={"rows": rows, "rows_hash": hashed % HASHES})


def _rows(run: RunDirectory) -> CertifiedRows:
    job = run.job()
    columns, result = JobColumns.of(job), run.committed(RESULT_STEP)
    own = dict(zip(columns.names, columns.inputs, strict=True))
    types = dict(zip(columns.names, columns.types, strict=True))
    made = _Columns.of({own[name]: types[name] for name in columns.hashed})
    why, spark, duckdb = next(iter(made.unchecked.values()), ""), "", "FROM input"
    if len(columns.hashed) < len(columns.names):
        why = why or "a column of theirs is a map"
    if job.spec.map is not None:
        spark = job.spec.map.sql or f"the mapper {job.spec.map.mapper}"
        duckdb, odd = in_duckdb(job.spec.map.sql) if job.spec.map.sql else ("", spark)
        why = why or odd
    total = (result.count("rows"), result.count("hash"))
    return CertifiedRows(columns=made.duckdb, total=total, spark=spark, duckdb="" if why else duckdb, unchecked=why)


#: What means the same in DuckDB as in Spark, in a query of single rows.
_ALIKE = (
    exp.Select, exp.From, exp.Table, exp.TableAlias, exp.Where, exp.Column, exp.Identifier, exp.Alias, exp.Literal,
    exp.Boolean, exp.Null, exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE,
    exp.Is, exp.In, exp.Between, exp.Neg, exp.Case, exp.If, exp.Star, exp.NullSafeEQ,
)  # fmt: skip
_CALLS = frozenset({"coalesce", "nullif", "abs"})


def in_duckdb(text: str) -> tuple[str, str]:
    """A query of rows for DuckDB; empty, and why, if it may mean something else there.

    >>> in_duckdb("SELECT page, ms FROM input WHERE ms > 0")
    ('SELECT page, ms FROM input WHERE ms > 0', '')
    >>> in_duckdb("SELECT explode(pages) AS page FROM input")
    ('', 'their query calls explode')
    """
    try:
        tree = parsed(text)
        for node in tree.walk():
            name = call_name(node)
            if name and name not in _CALLS and not isinstance(node, _ALIKE):
                return "", f"their query calls {name}"
            if not name and not isinstance(node, _ALIKE):
                return "", f"their query has {node.key}"
        return tree.sql(dialect="duckdb"), ""
    except (SqlglotError, ValueError) as err:
        return "", f"their query is not understood: {err}"[:200]


def _result(run: RunDirectory) -> tuple[CertifiedResult, list[Balance]]:
    """The published table; and that it has the rows that the run made, if its files can be read."""
    job, validated = run.job(), Validated.of(run)
    spec, types = job.spec, validated.report.columns
    columns, publication = _Columns.of({name: types[name] for name in spec.published}), publication_of(run)
    own = validated.verdict if validated.apart else validated.result
    made = {}
    for file in own.of_kind("result"):
        run.verify(file)
        found = _hashed(CertifiedFile(path=run.path(file.path), size_bytes=file.size_bytes), columns.schema)
        made[file.path] = (found.rows, found.rows_hash)
    files = tuple(_hashed(file, columns.schema) for file in _published(run))
    there = {file.path: (file.rows, file.rows_hash) for file in files if file.unchecked != _HELD}
    whole = not any(file.unchecked for file in files if file.path in there)
    balance = [Balance(what="the rows of the published table", of=made, made=there)] if whole else []
    plain = {name: name for name in (*spec.key, *spec.aggregates)} if spec.result is None else spec.result.plain
    keys = {name: plain.get(name, "") for name in spec.key}
    why = "" if all(keys.values()) else "the result has not all columns of the key"
    values = {}
    for name in spec.published:
        if name in keys.values() or name == WINDOW_COLUMN:
            continue
        value = _value(spec.values.get(name), types[name])
        odd = columns.unchecked.get(name) or why or value.unchecked
        values[name] = value.model_copy(update={"unchecked": odd, "duckdb": "" if odd else value.duckdb})
    where = {name: span.length for span in job.covered.windows[-1:] for name in spec.covered.columns}
    snapshot = str(publication.snapshot if publication and publication.snapshot is not None else "")
    result = CertifiedResult(
        path=published_path(job), snapshot=snapshot, columns=columns.duckdb, files=files, keys=keys, where=where,
        values=values,
    )  # fmt: skip
    return result, balance


_HELD = "they are keys in quarantine"


def _published(run: RunDirectory) -> Iterable[CertifiedFile]:
    job = run.job()
    for part, staged in staged_parts(run):
        held = "" if part.path == job.output_path else _HELD
        for one in staged.files:
            path = one.path if "://" in one.path or one.path.startswith("/") else f"{staged.location}/{one.path}"
            yield CertifiedFile(path=path.removeprefix("file://"), size_bytes=one.size_bytes, unchecked=held)
    if staged_parts(run):
        return
    folder = published_path(job)
    manifest = manifest_of(folder)
    if manifest is None or manifest.by.job != identity_of(run).job:
        raise RunDirectoryError.saying(folder, f"what is there was not published by {run}", "certify the newest run")
    kind = job.spec.output.file_format
    for file in manifest.files:
        odd = "" if kind == "parquet" else f"their format is {kind}"
        why = _HELD if file.name.startswith(f"{QUARANTINE}/") else odd
        yield CertifiedFile(path=f"{folder}/{file.name}", size_bytes=file.size_bytes, sha256=file.sha256, unchecked=why)


#: Aggregates that mean the same in DuckDB, and those that are rounded.
_EXACT = frozenset((
    "count", "sum", "try_sum", "min", "max", "count_if", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor",
))  # fmt: skip
_ROUNDED = frozenset(["avg", "try_avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop"])
_ROUNDING, _DEVIATIONS = 1e-6, 6


def _value(call: AggregateCall | None, kind: str) -> CertifiedValue:
    if call is None:
        return CertifiedValue(spark="", unchecked="it is an expression over aggregates")
    name = SYNONYMS.get(call.function, call.function)
    argument = f'"{call.column}"' if call.column else "*"
    made, within = f"{name.removeprefix('try_')}({argument})", dict[str, float]()
    value = CertifiedValue(spark=f"{name}({argument})")
    if name in {"count_distinct", "approx_count_distinct"}:
        made = f"count(DISTINCT {argument})"
    if name == "approx_count_distinct" and call.publish == "result":
        within = {"rel_tol": _DEVIATIONS * float(str(call.options.get("rsd", 0.02))), "abs_tol": 2.0}
    elif call.options or name not in {"count_distinct", *_EXACT, *_ROUNDED}:
        return value.model_copy(update={"unchecked": "its function, its options or its sketch are of Spark alone"})
    if name in _ROUNDED or (made.startswith("sum") and kind == "double"):
        scale = re.fullmatch(r"decimal\(\d+,(\d+)\)", kind)
        within = {"rel_tol": _ROUNDING, "abs_tol": 10.0 ** -int(scale[1]) if scale else _ROUNDING}
    made = {"try_sum": f"TRY_CAST({made} AS {kind})", "count_if": f"count(*) FILTER (WHERE {argument})"}.get(name, made)
    return value.model_copy(update={"duckdb": made, "within": within})
