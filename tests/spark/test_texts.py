"""CSV, JSON lines, text and ORC: Spark reads them, as plain Spark does, with its own options; each row has a place."""

import bz2
import gzip
import json
import zlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from pyarrow import orc
from pyspark.sql import SparkSession

from skewless.documents.job import Job
from skewless.errors import InputError
from skewless.spec.reading import parse_spec
from skewless_spark.prepare.freezing import freeze
from skewless_spark.session.spark_errors import exit_code_of, sentence_for
from skewless_spark.session.versions import here
from skewless_spark.sources.unit_reading import placing_settings, read_units
from tests.spark.scenario import DATE, result_of, run_job

Rows = list[tuple[Any, ...]]


def job_of(path: Path, kind: str, key: str = "k", value: str = "v", **given: Any) -> Job:
    raw = {
        "name": "texts", "input": {"path": str(path), "format": kind, **given}, "key": key,
        "aggregates": {"n": {"function": "count", "column": value}}, "output": {"path": str(path.parent / "out")},
    }  # fmt: skip
    return freeze(parse_spec(json.dumps(raw)), DATE, "/", "spec")


def rows_of(spark: SparkSession, job: Job, names: Sequence[str]) -> Rows:
    rows = read_units(spark, job, range(len(job.units)), names).orderBy("origin")
    return [tuple(row)[: len(names)] for row in rows.collect()]


def write(kind: str, path: Path, ids: range) -> None:
    if kind == "orc":
        orc.write_table(pa.table({"k": [f"k{n % 7}" for n in ids], "v": ids}), str(path), stripe_size=1 << 14)
    elif kind == "csv":
        path.write_text("k,v\n" + "".join(f"k{n % 7},{n}\n" for n in ids))
    elif kind == "json":
        path.write_text("".join(f'{{"k": "k{n % 7}", "v": {n}}}\n' for n in ids))
    else:
        path.write_text("".join(f"{n}\n" for n in ids))


@pytest.mark.parametrize("kind", ["csv", "json", "text", "orc"])
def test_each_row_has_a_place_that_orders_its_file_and_is_the_same_on_each_cluster(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        write(kind, tmp_path / "in" / f"{number}.{kind}", range(number * 60_000, (number + 1) * 60_000))
    given = {"columns": {"v": "bigint"}} if kind == "csv" else {}
    job = job_of(
        tmp_path / "in", kind, key="value" if kind == "text" else "k", value="value" if kind == "text" else "v", **given
    )
    name = "value" if kind == "text" else "v"
    settings = placing_settings(job, range(3))
    before = {one: spark.conf.get(one, None) for one in settings}
    try:
        found = []
        for most in (str(1 << 27), "2"):  # of leaf nodes: what a cluster has by default
            for one, value in settings.items():
                spark.conf.set(one, value)
            spark.conf.set("spark.sql.leafNodeDefaultParallelism", most[:1])
            rows = read_units(spark, job, range(3), [name]).collect()
            found.append({row["origin"]: int(row["c0"]) for row in rows})
            assert [found[-1][origin] for origin in sorted(found[-1])] == list(range(180_000))
        assert found[0] == found[1]
    finally:
        spark.conf.unset("spark.sql.leafNodeDefaultParallelism")
        for one, was in before.items():
            spark.conf.unset(one) if was is None else spark.conf.set(one, was)


def test_a_part_of_a_file_that_no_place_can_tell_apart_ends_the_query(spark: SparkSession, tmp_path: Path) -> None:
    write("text", tmp_path / "x.txt", range(1_000))
    job = job_of(tmp_path / "x.txt", "text", key="value", value="value")
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "1000")
    try:
        with pytest.raises(Exception, match="more blocks or rows of a file than can be told apart"):
            rows_of(spark, job, ["value"])
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(before))


# Texts to values, and bytes to lines: beside plain Spark and DuckDB.

LINES = b"".join(b"%d,line %d\n" % (number % 7, number) for number in range(4_000))
TEXT = b"k,v\n" + LINES
ZST = zstandard.ZstdCompressor().compress(TEXT)
#: Bytes of a CSV by its name, and the types of its columns. What plain Spark reads of it, strictly, is right; where it
#: ends, the run ends in a sentence that names the file.
BYTES: dict[str, tuple[bytes, str]] = {
    "cut.csv.zst": (ZST[: len(ZST) // 2], "k string, v string"),
    "cut-behind-the-header.csv.zst": (ZST[:20], "k string, v string"),
    "two-frames.csv.zst": (ZST + zstandard.ZstdCompressor().compress(LINES), "k string, v string"),
    "garbage-behind.csv.zst": (ZST + b"garbage!", "k string, v string"),
    "cut.csv.gz": (gzip.compress(TEXT)[:-500], "k string, v string"),
    "plain.csv.gz": (TEXT, "k string, v string"),
    "upper.csv.GZ": (gzip.compress(TEXT), "k string, v string"),
    "cut.csv.bz2": (bz2.compress(TEXT)[:-500], "k string, v string"),
    "two-streams.csv.bz2": (bz2.compress(TEXT[:40_000]) + bz2.compress(TEXT[40_000:]), "k string, v string"),
    "last-field-empty.csv": (b'k,v\n"a",x\n"b",', "k string, v string"),
    "mark-within.csv": ("\ufeffk,v\na,1\n\ufeffa,3\n".encode(), "k string, v string"),
    "carriage-returns.csv": (b"k,v\r\na,1\r\n\r\nb,\r\n", "k string, v string"),
    "hexadecimal.csv": (b"k,v\na,0xFFFFFFFF\n", "k string, v int"),
    "wide.csv": (b"k,v\na,400000000000000000000\n", "k string, v decimal(38,18)"),
    "nines.csv": (b"k,v\na," + b"9" * 39 + b"\n", "k string, v decimal(38,0)"),
    "fits.csv": (b"k,v\na,99999999999999999999.5\n", "k string, v decimal(38,10)"),
    "too-few-fields.csv": (b"k,v\na,1\nb\n", "k string, v string"),
    "too-many-fields.csv": (b"k,v\na,1\nb,2,3\n", "k string, v string"),
    "open-quote.csv": (b'k,v\na,1\n"b,2\n', "k string, v string"),
    "no-number.csv": (b"k,v\na,1\nb,two\n", "k string, v bigint"),
    "no-day.csv": (b"k,v\na,2026-02-30\n", "k string, v date"),
    "wide.json": (b'{"k": "a", "v": 400000000000000000000}\n', "k string, v decimal(38,18)"),
    "precision.json": (b'{"k": "a", "v": 1000}\n', "k string, v decimal(5,2)"),
    "null.json": (b'null\n{"k": "a"}\n', "k string, v bigint"),
    "cut.json": (b'{"k": "a", "v": 1}\n{"k": \n', "k string, v bigint"),
    "another-type.json": (b'{"k": "a", "v": 1}\n{"k": "a", "v": "x"}\n', "k string, v bigint"),
    "latin.json": (b'{"k": "caf\xe9", "v": 1}\n', "k string, v bigint"),
    "utf16.json": ('{"k": "a", "v": 1}\n'.encode("utf-16"), "k string, v bigint"),
    "infinity.json": (b'{"k": "a", "v": 1e400}\n', "k string, v double"),
    "doubled-keys.json": (b'{"k": "a", "v": 1, "v": 2}\n', "k string, v bigint"),
    "surrogate.json": (b'{"k": "a\\ud800b", "v": 1}\n', "k string, v bigint"),
    "beyond-64-bits.json": (b'{"k": "a", "v": 99999999999999999999}\n', "k string, v bigint"),
    "marks.json": (b'\xef\xbb\xbf{"k": "a", "v": 1}\n\xef\xbb\xbf{"k": "b", "v": 2}\n', "k string, v bigint"),
    "digit-for-boolean.csv": (b"k,v\na,1\n", "k string, v boolean"),
    "nan.csv": (b"k,v\na,nan\n", "k string, v double"),
}
#: Spark 3.5 names the file of a record only if that is the first one.
NAMELESS = ("input file that this Spark does not name:", "a file:")


def plainly(spark: SparkSession, path: Path, schema: str) -> Rows | None:
    kind = "json" if ".json" in path.name else "csv"
    of_csv = {"header": "true", "escape": '"', "columnPruning": "false"} if kind == "csv" else {}
    reader = spark.read.options(mode="FAILFAST", **of_csv).schema(schema).format(kind)
    try:
        return [tuple(row) for row in reader.load(str(path)).collect()]
    except Exception:  # noqa: BLE001  # whatever Spark says
        return None


@pytest.mark.parametrize("name", BYTES)
def test_a_text_is_read_as_plain_spark_reads_it_or_refused_in_one_sentence(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    content, schema = BYTES[name]
    path = tmp_path / name
    path.write_bytes(content)
    kinds = dict(one.split(" ") for one in schema.split(", "))
    expected = plainly(spark, path, schema)
    try:
        found = rows_of(spark, job_of(path, "json" if ".json" in name else "csv", columns=kinds), ["k", "v"])
    except Exception as err:  # noqa: BLE001  # ours, or Spark's around the cause
        sentence, code = sentence_for(err), exit_code_of(err)
        assert (expected, code) == (None, 2)
        assert name in sentence or (here() < (4, 0) and sentence.startswith(NAMELESS))
        assert "\n" not in sentence
    else:
        assert found == expected


@pytest.mark.parametrize("name", [one for one, (_, kinds) in BYTES.items() if kinds == "k string, v string"])
def test_duckdb_reads_the_same_lines(spark: SparkSession, tmp_path: Path, name: str) -> None:
    if "mark" in name or name.endswith(("bz2", "GZ")):
        pytest.skip("DuckDB takes the mark for a part of no text, and knows other endings")
    content, schema = BYTES[name]
    path = tmp_path / name
    path.write_bytes(content)
    try:
        query = f"SELECT k, v FROM read_csv('{path}', all_varchar = true, header = true, delim = ',', quote = '\"')"
        expected = duckdb.connect().execute(query).fetchall()
    except duckdb.Error:
        expected = None
    if expected is not None and plainly(spark, path, schema) is not None:
        assert rows_of(spark, job_of(path, "csv"), ["k", "v"]) == expected


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.csv.xz", b"", "a text that is plain or ends in .gz, .bz2, .zst, but"),
        ("x.csv.deflate", zlib.compress(TEXT), "a text that is plain or ends in .gz"),
        ("x.csv.zstd", ZST, "a text that is plain or ends in .gz"),  # which Spark cuts, and then cannot read
        ("x.csv.gz", gzip.compress(TEXT)[:40] + b"?" * 900, "x.csv.gz: expected a readable file"),
        ("_x.csv", b"k\n", "a name that Spark takes for that of data"),
        ("x.csv", b"k,k\n", "a header of different names, but got 'k' twice"),
        ("x.csv", b"k,\n", "a header of different names, but got an empty one"),
        ("x.csv", b"caf\xe9,k\n", "a header in UTF-8"),
        ("x.json", b"[1, 2]\n", "a JSON object in each line"),
        ("x.json", b'{"k":\n', "a JSON object in each line"),
    ],
)
def test_what_is_no_text_of_its_format_is_refused_before_a_run(
    spark: SparkSession, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    assert spark
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=said):
        job_of(tmp_path / f"*{name}" if name[0] == "_" else tmp_path / name, name.split(".")[1], value="k")


def test_bytes_that_are_no_utf_8_end_a_run_unless_the_encoding_is_said(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"k,v\ncaf\xe9,1\n")
    with pytest.raises(Exception, match="UTF-8") as told:
        rows_of(spark, job_of(tmp_path / "x.csv", "csv"), ["k", "v"])
    assert exit_code_of(told.value) == 2
    assert "x.csv: expected text in UTF-8, but got other bytes; say options: {encoding" in sentence_for(told.value)
    assert rows_of(spark, job_of(tmp_path / "x.csv", "csv", options={"encoding": "ISO-8859-1"}), ["k"]) == [("café",)]
    with pytest.raises(Exception, match="cannot be more than one character") as told:
        rows_of(spark, job_of(tmp_path / "x.csv", "csv", options={"quote": "ab"}), ["k"])
    assert sentence_for(told.value).startswith("options of the input: expected values of Spark, but got quote")


OPTIONS: dict[str, tuple[str, bytes, dict[str, Any], Rows]] = {
    "German numbers": (
        "csv", "\ufeffFiliale;Betrag;Tag\nKöln;2.652,19;03.02.2026\n-;-;04.02.2026\n".encode(),
        {"options": {"sep": ";", "locale": "de", "dateFormat": "dd.MM.yyyy", "nullValue": "-"},
         "columns": {"Betrag": "decimal(10,2)", "Tag": "date"}},
        [("Köln", Decimal("2652.19")), (None, None)],
    ),
    "lines in fields": (
        "csv", 'Filiale,Betrag\n"Köln\nMitte",1\n'.encode("latin-1"),
        {"options": {"multiLine": True, "encoding": "ISO-8859-1", "escape": ""}}, [("Köln\nMitte", "1")],
    ),
    "no header, comments, a backslash": (
        "csv", b'# of today\n"a\\"b"|2\n',
        {"options": {"header": False, "comment": "#", "sep": "|", "escape": "\\"},
         "columns": {"Filiale": "string", "Betrag": "int"}}, [('a"b', 2)],
    ),
    "bad lines left out": (
        "csv", b"Filiale,Betrag\na,1\nb\nc,3\n",
        {"options": {"mode": "DROPMALFORMED"}, "columns": {"Betrag": "int"}}, [("a", 1), ("c", 3)],
    ),
    "objects over many lines": (
        "json", b'[{"Filiale": "a",\n "Betrag": 1},\n {"Filiale": "b"}]', {"options": {"multiLine": True}},
        [("a", 1), ("b", None)],
    ),
    "marks and ends of lines within texts": (
        "json", '\ufeff{"Filiale": "a\u2028\x85", "Betrag": 1}\n\ufeff{"Betrag": 2}'.encode(), {},
        [("a\u2028\x85", 1), (None, 2)],
    ),
    "other ends of lines": (
        "json", b'{"Filiale": "a", "Betrag": 1};{"Betrag": 2}', {"options": {"lineSep": ";"}}, [("a", 1), (None, 2)],
    ),
    "comments in JSON": (
        "json", b"{'Filiale': 'a', 'Betrag': 007} // seven\n",
        {"options": {"allowComments": True, "allowNumericLeadingZeros": True, "allowSingleQuotes": True}}, [("a", 7)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_those_of_sparks_own_reader(spark: SparkSession, tmp_path: Path, name: str) -> None:
    kind, content, given, expected = OPTIONS[name]
    (tmp_path / "in").write_bytes(content)
    job = job_of(tmp_path / "in", kind, key="Filiale", value="Betrag", **given)
    assert rows_of(spark, job, ["Filiale", "Betrag"]) == expected


NESTED = [
    {"user": {"id": f"u{n % 3}", "at": {"x": n}}, "tags": ["a"] * (n % 4), "user.id": f"own {n % 2}", "seen": {"m": n}}
    for n in range(40)
]


@pytest.mark.parametrize("kind", ["json", "orc", "parquet", "parquet, by row groups"])
def test_fields_of_structs_are_keys_and_columns_by_their_names(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    rows = [{name: value for name, value in row.items() if name != "user.id"} for row in NESTED]
    path, file_format = tmp_path / "in", kind.partition(",")[0]
    if kind == "json":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    elif kind == "orc":
        orc.write_table(pa.Table.from_pylist(rows), str(path))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=10)
    raw = {
        "name": "nested", "input": {"path": str(path), "format": file_format}, "key": "user.id",
        "aggregates": {"n": "count", "most": {"function": "max", "column": "user.at.x"},
                       "all": {"function": "max_by", "column": "tags", "by": "seen.m"}},
        "output": {"path": str(tmp_path / "out")}, "routing": {"waves": [1, 99] if "," in kind else [1]},
    }  # fmt: skip
    run, _, _ = run_job(spark, parse_spec(json.dumps(raw)), tmp_path / "run")
    found = {row["user.id"]: (row["n"], row["most"], row["all"]) for row in result_of(run).to_pylist()}
    of_users = {user: [row for row in NESTED if row["user"]["id"] == user] for user in ("u0", "u1", "u2")}  # type: ignore[index]
    assert found == {
        user: (len(own), own[-1]["user"]["at"]["x"], own[-1]["tags"])  # type: ignore[index]
        for user, own in of_users.items()
    }


def test_a_column_that_has_the_whole_name_comes_before_a_field_of_a_struct(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text("".join(f"{json.dumps(row)}\n" for row in NESTED))
    job = job_of(tmp_path / "in.json", "json", key="user.id", value="tags")
    assert {row[0] for row in rows_of(spark, job, ["user.id"])} == {"own 0", "own 1"}
