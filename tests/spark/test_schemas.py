"""Files whose schemas differ: only the columns that a job reads must fit, in a folder and from night to night."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from skewless.documents.job import Job
from skewless.errors import InputError
from skewless.spec.reading import parse_spec
from skewless_spark.prepare.freezing import freeze
from skewless_spark.prepare.prepare import sample_keys
from skewless_spark.session.versions import to_arrow
from skewless_spark.sources.unit_reading import read_units
from skewless_spark.sources.worker_files import read_unit
from tests.spark.scenario import DATE
from tests.spark.test_partition_types import begun

COLUMNS = {
    "k": pa.string(),
    "v": pa.int32(),
    "f": pa.float32(),
    "d": pa.decimal128(9, 2),
    "s": pa.struct({"a": pa.int32()}),
}
BASE = pa.Table.from_pylist(
    [{"k": "a", "v": 1, "f": 0.5, "d": Decimal("1.25"), "s": {"a": 1}}, {"k": None, "v": None, "f": 2.0}],
    schema=pa.schema(list(COLUMNS.items())),
)


def with_type(name: str, kind: pa.DataType, values: list[Any]) -> pa.Table:
    return BASE.set_column(BASE.schema.get_field_index(name), name, pa.array(values, kind))


#: The base is the first file, so that each other one must fit it, or it them.
FILES = {
    "0-base": BASE,
    "1-new-column": BASE.append_column("note", pa.array(["x", "y"])),
    "2-other-order": BASE.select(["s", "d", "f", "v", "k"]),
    "3-wider-integer": with_type("v", pa.int64(), [1 << 40, -5]),
    "4-narrower-integer": with_type("v", pa.int8(), [-128, 127]),
    "5-wider-float": with_type("f", pa.float64(), [0.1, None]),
    "6-wider-decimal": with_type("d", pa.decimal128(20, 2), [Decimal("123456789012345.25"), None]),
    "7-never-null": pa.table(
        BASE.slice(0, 1).columns, pa.schema([field.with_nullable(False) for field in BASE.schema])
    ),
    "8-new-field": with_type("s", pa.struct({"a": pa.int32(), "b": pa.string()}), [{"a": 1, "b": "x"}, None]),
}
#: What only Arrow's own note in a Parquet file says of it.
OF_PARQUET = {
    "a-dictionary": with_type("k", pa.dictionary(pa.int32(), pa.string()), ["a", "d"]),
    "b-large-text": with_type("k", pa.large_string(), ["a", "e"]),
}


def write(kind: str, folder: Path, files: dict[str, pa.Table]) -> None:
    folder.mkdir(parents=True)
    for name, table in files.items():
        if kind == "parquet":
            pq.write_table(table, folder / f"{name}.parquet", row_group_size=1)
        else:
            orc.write_table(table, str(folder / f"{name}.orc"))


def frozen(path: Path, kind: str, reads: str = "vfd", date: dt.date = DATE, key: str = "k", **given: Any) -> Job:
    window = given.pop("window", None)
    raw = {
        "name": "extremes", "input": {"path": str(path), "format": kind, **given}, "key": key,
        "aggregates": {f"most_{name}": {"function": "max", "column": name} for name in reads},
        "output": {"path": str(path.parent / "out")}, **({"window": window} if window else {}),
    }  # fmt: skip
    return freeze(parse_spec(json.dumps(raw)), date, str(path.parent), "spec")


def cut(job: Job, columns: list[str]) -> list[dict[str, Any]]:
    pieces = [one.model_copy(update={"span": (0, one.rows)}) for one in job.units]
    return [row for one in pieces for batch in read_unit(one, job.source, columns) for row in batch.to_pylist()]


def read(spark: SparkSession, job: Job, columns: str) -> list[dict[str, Any]]:
    """The rows of all units, in their order: by row groups, or as Spark reads whole files."""
    if job.source.format == "parquet":
        return cut(job, list(columns))
    rows = to_arrow(read_units(spark, job, range(len(job.units)), list(columns)).orderBy("origin").drop("origin"))
    return rows.rename_columns(list(columns)).to_pylist()


def wanted(files: dict[str, pa.Table], columns: str) -> list[tuple[Any, ...]]:
    """All rows as Python has them; a float that is in a double keeps its value."""
    rows = [row for table in files.values() for row in table.to_pylist()]
    return sorted((tuple(row.get(name) for name in columns) for row in rows), key=repr)


def ordered(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in rows), key=repr)


def scanned(spark: SparkSession, job: Job, columns: str) -> list[tuple[Any, ...]]:
    return ordered(to_arrow(read_units(spark, job, range(len(job.units)), list(columns)).drop("origin")).to_pylist())


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_only_the_columns_that_are_read_must_fit_and_the_widest_type_counts(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    files = FILES | (OF_PARQUET if kind == "parquet" else {})
    write(kind, tmp_path / "in", files)
    job = frozen(tmp_path / "in", kind)
    assert {**job.key_types, **job.column_types} == {"k": "string", "v": "bigint", "f": "double", "d": "decimal(20,2)"}
    assert ordered(read(spark, job, "kvfd")) == wanted(files, "kvfd")


#: Files without columns of the others.
LACKING = {"0-base": BASE, "1-without": BASE.drop_columns(["v", "d"]), "2-bare": BASE.select(["f"]), "3-base": BASE}


@pytest.mark.long
def test_spark_reads_whole_files_of_other_schemas_as_they_are_read_cut(spark: SparkSession, tmp_path: Path) -> None:
    files = FILES | OF_PARQUET
    write("parquet", tmp_path / "in", files)
    assert scanned(spark, frozen(tmp_path / "in", "parquet"), "kvfd") == wanted(files, "kvfd")
    wide = [pa.array([2**64 - 1, 7], pa.uint64()), pa.array([Decimal(10**30), None], pa.decimal128(38, 0))]
    unsigned = {str(at): BASE.set_column(3, "d", column) for at, column in enumerate(wide)}
    write("parquet", tmp_path / "unsigned", unsigned)
    found = scanned(spark, frozen(tmp_path / "unsigned", "parquet", "d"), "d")
    assert found == [(Decimal(10**30),), (Decimal(2**64 - 1),), (Decimal(7),), (None,)]
    write("parquet", tmp_path / "lacking", LACKING)
    assert scanned(spark, frozen(tmp_path / "lacking", "parquet", "d", schema="evolve"), "kd") == wanted(LACKING, "kd")


def test_the_keys_of_files_with_other_types_are_sampled_together(tmp_path: Path) -> None:
    for name, files in (("in", FILES | OF_PARQUET), ("lacking", LACKING)):
        write("parquet", tmp_path / name, files)
        sample = sample_keys(frozen(tmp_path / name, "parquet", "d", schema="evolve"))
        assert sample is not None
        assert sample.counts.sum() == sum(map(len, files.values()))


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_a_column_that_a_file_lacks_is_refused_by_name_or_null_where_the_spec_says_so(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    write(kind, tmp_path / "in", LACKING)
    with pytest.raises(
        InputError, match=rf"1-without\.{kind}: expected the column 'v', which the job reads, but .* evolve"
    ):
        frozen(tmp_path / "in", kind, "fv")
    frozen(tmp_path / "in" / f"[01]-*.{kind}", kind, "f")  # nobody reads the column
    for reads in ("v", "d"):
        job = frozen(tmp_path / "in", kind, reads, schema="evolve")
        assert ordered(read(spark, job, f"k{reads}")) == wanted(LACKING, f"k{reads}")
    with pytest.raises(InputError, match=r"expected an existing column, but got 'k'"):
        frozen(tmp_path / "in" / f"2-bare.{kind}", kind, "f", schema="evolve")
    # A declared column may be in no file at all.
    job = frozen(tmp_path / "in" / f"2-bare.{kind}", kind, "f", schema="evolve", columns={"k": "string"})
    assert read(spark, job, "k") == [{"k": None}, {"k": None}]


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_types_of_which_none_serves_all_files_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    odd = {"v": pa.string(), "f": pa.int32(), "d": pa.decimal128(8, 3)}
    for name, other in odd.items():
        write(kind, tmp_path / name, {"0": BASE, "1": with_type(name, other, [None, None])})
        with pytest.raises(
            InputError, match=rf"1\.{kind}: expected column '{name}' of type .* as in 0\.{kind}, but got type"
        ):
            frozen(tmp_path / name, kind, name)
        assert frozen(tmp_path / name, kind, "vfd".replace(name, "")).rows == 4
    # A declared type is that of the job, if it has the values of all files.
    assert frozen(tmp_path / "d", kind, "v", columns={"v": "bigint"}).column_types == {"v": "bigint"}
    with pytest.raises(InputError, match=r"column 'v' of type smallint as the spec declares it, but got type int"):
        frozen(tmp_path / "d", kind, "v", columns={"v": "smallint"})


def test_a_window_takes_in_parts_of_other_schemas_and_keeps_the_wider_type(tmp_path: Path) -> None:
    nights = [DATE + dt.timedelta(days=day) for day in range(4)]
    path = tmp_path / "in" / "date={date}"

    def night(at: int, name: str, **given: Any) -> Job:
        write("parquet", tmp_path / "in" / f"date={nights[at]}", {name: FILES[name]})
        return frozen(path, "parquet", "v", nights[at], window=4, **given)

    states = begun(night(0, "0-base"))
    for at, name in ((1, "1-new-column"), (2, "8-new-field")):
        assert begun(night(at, name)) == states  # what nobody reads begins nothing anew
    wider = night(3, "3-wider-integer")
    assert wider.column_types == {"v": "bigint"}
    assert wider.window is not None
    assert "the type of column 'v'" in wider.window.begins
    assert sorted(row["v"] for row in cut(wider, ["v"]) if row["v"] is not None) == [-5, 1, 1, 1, 1 << 40]
    # An older part again, whose files have the narrow type: the states stay those of the wide one.
    states = begun(wider)
    assert begun(frozen(path, "parquet", "v", nights[1], window=4)) == states
    # The newest part has the narrow type, an older one that has no states yet the wide one.
    (tmp_path / "in" / f"date={nights[3] + dt.timedelta(days=1)}").mkdir()
    pq.write_table(BASE, tmp_path / "in" / f"date={nights[3] + dt.timedelta(days=1)}" / "x.parquet")
    other = frozen(path, "parquet", "vf", nights[3] + dt.timedelta(days=1), window=2)
    assert other.column_types == {"v": "bigint", "f": "float"}


def test_a_part_that_lacks_a_column_is_null_there_or_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path, tomorrow = tmp_path / "in" / "date={date}", DATE + dt.timedelta(days=1)
    write("orc", tmp_path / "in" / f"date={DATE}", {"x": BASE.drop_columns(["v"])})
    write("orc", tmp_path / "in" / f"date={tomorrow}", {"x": BASE, "y": BASE.drop_columns(["k"])})
    with pytest.raises(InputError, match=rf"{DATE}/x\.orc: expected the column 'v', which the job reads"):
        frozen(path, "orc", "v", tomorrow, window=2)
    job = frozen(path, "orc", "v", tomorrow, window=2, schema="evolve")
    assert [row["v"] for row in read(spark, job, "kv")] == [None, None, 1, None, 1, None]


def test_json_of_a_window_is_compared_by_the_fields_that_are_read(spark: SparkSession, tmp_path: Path) -> None:
    path, tomorrow = tmp_path / "in" / "date={date}", DATE + dt.timedelta(days=1)
    for day, text in ((DATE, '{"k": "a", "x": 1}\n'), (tomorrow, '{"x": "new", "v": 2, "k": "a", "y": 0}\n')):
        (tmp_path / "in" / f"date={day}").mkdir(parents=True)
        (tmp_path / "in" / f"date={day}" / "x.json").write_text(text)
    job = frozen(path, "json", "v", tomorrow, window=2)
    assert read(spark, job, "kv") == [{"k": "a", "v": None}, {"k": "a", "v": 2}]
    (tmp_path / "in" / f"date={DATE}" / "x.json").write_text('{"k": "a", "v": "one"}\n')
    with pytest.raises(
        InputError, match=rf"part {DATE}: expected column 'v' of type bigint as in {tomorrow}, but got type s"
    ):
        frozen(path, "json", "v", tomorrow, window=2)


@pytest.mark.long
def test_a_table_of_the_catalog_is_null_where_older_files_lack_a_column(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE skewless_older (k string, v int, w bigint, p string) USING parquet PARTITIONED BY (p) "
              f"LOCATION '{tmp_path / 't'}'")  # fmt: skip
    try:
        write("parquet", tmp_path / "t" / "p=007", {"x": BASE.select(["k", "v"])})
        write("parquet", tmp_path / "t" / "p=+5", {"x": BASE.select(["k", "v"]).append_column("w", pa.array([3, 4]))})
        spark.sql("MSCK REPAIR TABLE skewless_older")
        job = frozen(Path("skewless_older"), "catalog", "w", key="p")
        found = read_units(spark, job, range(len(job.units)), ["p", "w"]).drop("origin").collect()
        asked = spark.sql("SELECT p, w FROM skewless_older").collect()
        assert sorted(map(repr, map(tuple, found))) == sorted(map(repr, map(tuple, asked)))
        assert len(asked) == 4
    finally:
        spark.sql("DROP TABLE skewless_older")


#: Files of CSV with other headers, and a column that one of them lacks.
HEADERS = {
    "0.csv": "k,v\n" + "a,1\n" * 40_000,
    "1.csv": "v,note,k\n" + "2,x,b\n" * 40_000,
    "2.csv": "\ufeffnote,k\r\nx,c\r\n",
    "3.csv": "",
}


def test_a_csv_file_is_read_by_its_own_header(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, text in HEADERS.items():
        (tmp_path / "in" / name).write_text(text, newline="")
    given: dict[str, Any] = {"columns": {"v": "bigint"}}
    with pytest.raises(
        InputError, match=r"2\.csv: expected the column 'v', which the job reads, but got none; .*evolve"
    ):
        frozen(tmp_path / "in", "csv", "v", **given)
    job = frozen(tmp_path / "in", "csv", "v", schema="evolve", **given)
    found = scanned(spark, job, "kv")
    assert (found.count(("a", 1)), found.count(("b", 2)), found[-1]) == (40_000, 40_000, ("c", None))
    assert len(found) == 80_001


@pytest.mark.long
def test_headers_of_a_csv_table_have_its_columns_at_their_places(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "0.csv").write_text("v,k\n1,a\n")
    spark.sql(f"CREATE TABLE skewless_headers (k string, v bigint) USING csv OPTIONS (header true) "
              f"LOCATION '{tmp_path / 't'}'")  # fmt: skip
    try:
        with pytest.raises(InputError, match=r"expected headers of the columns \['k', 'v'\], but got \['v', 'k'\]"):
            frozen(Path("skewless_headers"), "catalog", "v")
    finally:
        spark.sql("DROP TABLE skewless_headers")
