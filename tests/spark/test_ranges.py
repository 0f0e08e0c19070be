"""Reading units with pyarrow: every row once wherever a file is cut, in the bytes that it has, or a sentence."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import example
from hypothesis import given as given_by
from hypothesis import strategies as st
from pyarrow import orc

from skewless.documents.job import Source, Unit
from skewless.errors import InputError
from skewless.routing.hashing import pack_origin
from skewless.spec.input import Input
from skewless_spark.session import queries
from skewless_spark.session.queries import BATCH_ROWS
from skewless_spark.sources import cutting, ranges
from skewless_spark.sources.cutting import rows_at_a_time
from skewless_spark.sources.listing import Listing, list_input
from skewless_spark.sources.worker_files import _Piece, _read
from tests.tiers import mostly_long

ROWS = 60_000


def table(rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(3)
    words = [f"w\u00e9{number}" for number in rng.integers(0, 10**9, rows).tolist()]
    return pa.table({"id": range(rows), "word": words, "x": rng.random(rows)})


def write(kind: str, path: Path, rows: pa.Table) -> Path:
    if kind == "parquet":
        pq.write_table(rows, path, row_group_size=2000)
    elif kind == "orc":
        orc.write_table(rows, str(path), stripe_size=64 << 10, batch_size=512, compression="zstd")
    elif kind == "csv":
        path.write_text("id;word;x\n" + "".join(f'{a};"{b}";{c!r}\n' for a, b, c in zip(*rows.to_pydict().values())))  # noqa: B905
    elif kind == "json":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    else:
        path.write_text("\n".join(rows["word"].to_pylist()))
    return path


def given(kind: str, path: Path, **fields: Any) -> Input:
    extra = {"delimiter": ";", "columns": {"id": "bigint", "x": "double"}} if kind == "csv" else {}
    return Input.model_validate({"path": str(path), "format": kind, **extra, **fields})


def rows_of(listing: Listing, columns: list[str]) -> pa.Table:
    batches = [batch for unit in listing.units for batch in ranges.read_unit(unit, listing.source, columns)]
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize("kind", ["parquet", "orc", "csv", "json", "text"])
def test_a_file_that_is_cut_gives_every_row_once_and_in_order(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "CUT_BYTES", 1 << 16)
    path = write(kind, tmp_path / "input", table())
    listing = list_input(given(kind, path), str(path), share=0.01)
    assert len(listing.units) > 1
    columns = ["value"] if kind == "text" else ["id", "word", "x"]
    found = rows_of(listing, columns)
    expected = table()
    assert found.column(columns[0]).to_pylist() == expected["word" if kind == "text" else "id"].to_pylist()
    if kind != "text":
        assert found.column("word").to_pylist() == expected["word"].to_pylist()
        assert found.column("x").to_pylist() == expected["x"].to_pylist()
    said = sum(unit.rows for unit in listing.units)
    assert said == ROWS if kind in {"parquet", "orc"} else said == pytest.approx(ROWS, rel=0.1)


def test_each_row_has_an_origin_of_its_own_that_tells_unit_and_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is read: by its origin a row of a split key is routed, the same way each time."""
    monkeypatch.setattr(cutting, "CUT_BYTES", 1 << 16)
    path = write("parquet", tmp_path / "input", table())
    listing = list_input(given("parquet", path), str(path), share=0.01)
    assert len(listing.units) > 1
    numbered = list(enumerate(listing.units))
    read = ranges.read_parts([numbered[:1], numbered[1:]], listing.source, ["id"], "origin")
    numbers = pa.record_batch({"part": [1, 0]})
    origins = [origin for batch in read([numbers]) for origin in batch.column("origin").to_pylist()]
    in_order = [*numbered[1:], *numbered[:1]]
    assert origins == [pack_origin(ordinal, offset) for ordinal, unit in in_order for offset in range(unit.rows)]


@pytest.mark.parametrize("by", [1, -1], ids=["one too few", "one too many"])
def test_a_unit_of_other_rows_than_its_footer_lists_is_refused(tmp_path: Path, by: int) -> None:
    path = write("parquet", tmp_path / "input", table(100))
    listing = list_input(given("parquet", path), str(path), share=0.01)
    (unit,) = listing.units
    read = ranges.read_parts([[(0, unit.model_copy(update={"rows": 100 + by}))]], listing.source, ["id"], "origin")
    with pytest.raises(InputError, match=f"expected {100 + by} rows as its footer lists, but got 100"):
        list(read([pa.record_batch({"part": [0]})]))


@pytest.mark.parametrize("kind", mostly_long(["parquet", "orc", "csv", "json", "text"], "parquet", "orc"))
def test_one_large_file_is_read_once_and_hardly_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    rows, path = pa.concat_tables([table()] * 8), tmp_path / "input"
    if kind == "parquet":
        pq.write_table(rows, path, row_group_size=20_000)
    elif kind == "orc":
        orc.write_table(rows, str(path), stripe_size=1 << 20)
    else:
        write(kind, path, rows)
    counted = CountedReads(path)
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda given: (counted, str(given)))
    listing = list_input(given(kind, path), str(path), share=0.01)
    assert len(listing.units) > 5
    columns = ["value"] if kind == "text" else ["id", "word", "x"]
    assert rows_of(listing, columns).num_rows == rows.num_rows
    assert counted.bytes_read <= 1.2 * path.stat().st_size


class CountedReads(LocalFileSystem):
    """The local file system; it counts the bytes that are read from one file."""

    cachable = False

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.bytes_read = path, 0

    def open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        del kwargs
        outer, opened = self, super().open(path, mode)

        class Counted:
            def __getattr__(self, name: str) -> Any:
                return getattr(opened, name)

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                opened.close()

            def read(self, size: int = -1) -> bytes:
                raw = opened.read(size)
                outer.bytes_read += len(raw)
                return bytes(raw)

        return Counted()


@pytest.mark.parametrize(
    "text", ["a\nb\n", "a\nb", "a\r\nb\r\n", "a\rb", "\ufeffa\nb\n"], ids=["lf", "no last one", "crlf", "cr", "a mark"]
)
def test_line_ends_and_a_byte_order_mark_are_no_part_of_a_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(text.encode())
    assert rows_of(list_input(given("text", path), str(path)), ["value"])["value"].to_pylist() == ["a", "b"]


@pytest.mark.parametrize("length", range(1, 9))
def test_ranges_of_any_length_share_lines_out_without_gap_or_overlap(tmp_path: Path, length: int) -> None:
    path = tmp_path / "x.txt"
    lines = ["", "a", "bb", "", "", "a long line", "c", ""]
    path.write_text("\n".join(lines) + "\n")
    size = path.stat().st_size
    spans = [(start, min(start + length, size)) for start in range(0, size, length)]
    units = [Unit(path=str(path), rows=1, size_bytes=size, span=span, counted=False) for span in spans]
    source = Source(format="text", columns={"value": "string"})
    found = [v for unit in units for b in ranges.read_unit(unit, source, ["value"]) for v in b.column(0).to_pylist()]
    assert found == lines


def test_a_compressed_text_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"id;word;x\n1;a;2.5\n"))
    listing = list_input(given("csv", path), str(path))
    assert rows_of(listing, ["id", "word"]).to_pylist() == [{"id": 1, "word": "a"}]


def test_csv_values_have_the_types_that_are_declared_and_an_empty_field_is_null(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(
        'a,b,c,d,e,f,g\n1,1.50,true,2026-01-31,2026-01-31 10:00:00,"",x\n'
        ',,,,2026-01-31T10:00:00.5+02:00,,"q ""r"", s"\n'
    )
    kinds = {"a": "int", "b": "DECIMAL(5, 2)", "c": "boolean", "d": "date", "e": "timestamp"}
    listing = list_input(Input(path=str(path), format="csv", columns=kinds), str(path))
    assert list(listing.source.columns.values())[:2] == ["int", "decimal(5,2)"]
    first, second = rows_of(listing, list("abcdefg")).to_pylist()
    assert str(first["b"]) == "1.50"
    assert (first["a"], first["c"], first["d"], first["f"], first["g"]) == (1, True, dt.date(2026, 1, 31), "", "x")
    assert first["e"] == dt.datetime(2026, 1, 31, 10, tzinfo=dt.UTC)
    assert second["e"] == dt.datetime(2026, 1, 31, 8, 0, 0, 500_000, tzinfo=dt.UTC)
    assert [second[name] for name in "abcdf"] == [None] * 5
    assert second["g"] == 'q "r", s'


BAD = [
    ("csv", "id;word;x\n1;a;0.5\n2;b\n", r"x\.csv, line 3: expected 3 fields, but got 2"),
    ("csv", "id;word;x\n1;a;0.5\n\nzwei;b;1\n", r"x\.csv, line 4: expected a bigint in column 'id', but got 'zwei'"),
    ("csv", 'id;word;x\n1;a;0.5\n2;"b\nc";1\n', r"x\.csv, line 3: expected .*"),
    ("csv", "id;word;x\n1;\udce9;0.5\n", r"x\.csv, line 2: expected text in UTF-8"),
    ("csv", 'id;word;x\n1;"a;""b";1\n\n2;"c"d;1\n', r"line 4: expected a quoted value that ends .*\"c\"d;1"),
    ("json", '{"id": 1}\n{"id": }\n', r"x\.json, line 2: expected a JSON object, but got text that does not parse"),
    ("json", '{"id": 1}\n\n{"id": "a"}\n', r"x\.json, line 3: expected a bigint in field 'id', but got 'a'"),
    ("json", '{"id": 1}{"id": 2}\n\n', r"x\.json, line 1: expected a JSON object, but got text that does not parse"),
    ("json", '{"id": 1}{"id":\n2}\n{"id": 3}\n', r"x\.json, line 1: expected a JSON object, but got text that"),
    ("json", '{"id": 1}\n[1]\n', r"x\.json, line 2: expected a JSON object, but got a list"),
]


@pytest.mark.parametrize(("kind", "text", "said"), BAD)
def test_a_bad_row_gets_one_sentence_with_file_and_line(tmp_path: Path, kind: str, text: str, said: str) -> None:
    path = tmp_path / f"x.{kind}"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    source = Source.model_validate(
        {"format": kind, "delimiter": ";", "columns": {"id": "bigint", "word": "string", "x": "double"}}
    )
    unit = Unit(path=str(path), rows=1, size_bytes=path.stat().st_size, counted=False)
    with pytest.raises(InputError, match=said) as told:
        list(ranges.read_unit(unit, source, ["id", "word", "x"]))
    assert "\n" not in str(told.value)


@given_by(st.lists(st.lists(st.text(' "ab', max_size=5), min_size=2, max_size=2), min_size=1, max_size=4))
@example([['a"', '"" b"']])
@example([["", '"']])
def test_quotes_are_read_as_a_strict_reader_reads_each_line_or_are_refused(rows: list[list[str]]) -> None:
    lines = [";".join(row) for row in rows]
    source = Source(format="csv", columns={"a": "string", "b": "string"}, delimiter=";", header=False)
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write("\n".join(lines).encode())
        file.flush()
        unit = Unit(path=file.name, rows=1, size_bytes=1, counted=False)
        try:
            found = [row for batch in ranges.read_unit(unit, source, ["a", "b"]) for row in batch.to_pylist()]
        except InputError:
            found = None
    try:
        expected = [next(csv.reader([line], delimiter=";", strict=True)) for line in lines]
    except csv.Error:
        expected = None
    if expected and any(len(row) != 2 for row in expected):
        expected = None
    assert (found and [[row["a"] or "", row["b"] or ""] for row in found]) == expected


def test_a_header_is_quoted_as_a_line_is(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('"id"s;word\n1;a\n')
    with pytest.raises(InputError, match=r"x\.csv, line 1: expected a header"):
        list_input(Input(path=str(path), format="csv", delimiter=";"), str(path))
    path.write_text('"i;d";word\n1;a\n')
    listing = list_input(Input(path=str(path), format="csv", delimiter=";"), str(path))
    assert list(listing.source.columns) == ["i;d", "word"]


def test_blank_lines_and_blanks_around_objects_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('\n  \n{"id": 1} \n\n\t{"id": 2}\n{"id": 3}\n \n')
    assert rows_of(list_input(given("json", path), str(path)), ["id"])["id"].to_pylist() == [1, 2, 3]
    path = tmp_path / "x.csv"
    path.write_text("id;word\n\n\n1;a\n\n2;b\n\n")
    listing = list_input(Input(path=str(path), format="csv", delimiter=";"), str(path))
    assert rows_of(listing, ["word"])["word"].to_pylist() == ["a", "b"]


def test_folders_name_columns_whose_types_follow_from_all_values(tmp_path: Path) -> None:
    for folder in ("date=2026-01-01/n=1/site=a%20b", "date=2026-01-02/n=__HIVE_DEFAULT_PARTITION__/site=7"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.txt").write_text("line\n")
    listing = list_input(given("text", tmp_path), str(tmp_path))
    assert listing.source.partition_columns == {"date": "date", "n": "int", "site": "string"}
    assert [unit.values["n"] for unit in listing.units] == ["1", None]
    assert ranges.partition_value(listing.units[0], listing.source, "date").as_py() == dt.date(2026, 1, 1)
    assert listing.units[0].values["site"] == "a b"
    below = list_input(given("text", tmp_path), str(tmp_path / "date=2026-01-01"))
    assert list(below.source.partition_columns) == ["date", "n", "site"]


def test_folders_of_different_columns_are_refused(tmp_path: Path) -> None:
    for folder in ("a=1", "b=1"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text("line\n")
    with pytest.raises(InputError, match=r"expected the partition columns \['a'\]"):
        list_input(given("text", tmp_path), str(tmp_path))


def wide_rows(path: Path, kind: str) -> int:
    """A file of few large values among many small ones; how many rows it has."""
    values = ["x" * (1 << 16) if number % 4 == 0 else str(number) for number in range(160)]
    column = pa.array(values, pa.large_string() if kind == "large texts" else pa.string())
    if kind == "a dictionary":
        column = pa.DictionaryArray.from_arrays([number % 4 and 1 for number in range(160)], pa.array([values[0], "s"]))
    if kind == "orc":
        orc.write_table(pa.table({"word": column}), str(path))
    else:
        pq.write_table(pa.table({"word": column}), path, use_dictionary=kind == "a dictionary")
    return len(values)


@pytest.mark.parametrize("kind", ["texts", "large texts", "a dictionary", "orc"])
def test_no_batch_has_more_bytes_than_spark_is_given_at_a_time(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, most = tmp_path / "input", 1 << 18
    monkeypatch.setattr(queries, "BATCH_BYTES", most)
    rows = wide_rows(path, kind)
    unit = Unit(path=str(path), rows=rows, size_bytes=path.stat().st_size, span=(0, 1))
    source = Source(format="orc" if kind == "orc" else "parquet", columns={"word": "string"})
    given = queries.bounded(ranges.read_parts([[(0, unit)]], source, ["word"], "origin"))
    found = list(given([pa.record_batch({"id": [0]})]))
    assert max(batch.nbytes for batch in found) <= most
    assert len(found) <= 4 * (40 << 16) // most, "and no more batches than that takes"
    whole = pa.Table.from_batches(found)
    assert whole["origin"].to_pylist() == list(range(rows))
    wanted = (orc.read_table(str(path)) if kind == "orc" else pq.read_table(path))["word"].cast(pa.large_string())
    assert whole["s0"].cast(pa.large_string()).equals(wanted)
    if kind != "orc":
        ours = list(_read(_Piece(str(path), 0, 1), ["word"], pa.schema({"word": pa.string()})))
        assert max(batch.nbytes for batch in ours) <= most
        assert pa.Table.from_batches(ours)["word"].cast(pa.large_string()).equals(wanted)


def test_batches_of_wide_rows_are_small_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "input"
    table = pa.table({"wide": ["x" * (1 << 18)] * 100, "narrow": range(100)})
    pq.write_table(table, path, use_dictionary=False, row_group_size=50)
    footer = pq.read_metadata(path)
    assert rows_at_a_time(footer, None, ["wide", "narrow"]) in {254, 255}
    assert rows_at_a_time(footer, [1], ["narrow"]) == BATCH_ROWS
    # Spark's own scan decodes thousands of rows at a time.
    (unit,) = list_input(given("parquet", path), str(path), share=1).units
    assert (unit.span, unit.rows) == ((0, 2), 100)


def test_a_few_wide_rows_among_many_small_ones_are_not_left_to_sparks_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On average they are small; numbers of as many bytes are no wider than numbers are."""
    monkeypatch.setattr(cutting, "_WIDE_BYTES", 1 << 21)
    pq.write_table(pa.table({"value": ["x" * (1 << 20)] * 4 + ["s"] * 4000}), tmp_path / "texts", use_dictionary=False)
    pq.write_table(pa.table({"value": range(1 << 19)}), tmp_path / "numbers", use_dictionary=False)
    spans = {
        name: [unit.span for unit in list_input(given("parquet", tmp_path / name), str(tmp_path / name), share=1).units]
        for name in ("texts", "numbers")
    }
    assert spans == {"texts": [(0, 1)], "numbers": [None]}


def test_what_a_function_puts_out_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapper or an aggregate puts out what it will, and a JVM takes it all at once."""
    monkeypatch.setattr(queries, "BATCH_BYTES", 1 << 16)
    texts = [str(number) * (1 << 13 if number % 10 == 0 else 1) for number in range(100)]
    made = pa.record_batch({"text": texts, "lists": [[text] for text in texts], "all": [{"a": text} for text in texts]})
    found = list(queries.bounded(lambda batches: (made for _ in batches))([made, made]))
    assert all(batch.nbytes <= 1 << 16 or batch.num_rows == 1 for batch in found)
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches([made, made]))
    code = Path(queries.__file__).parents[1]
    assert [file.name for file in code.rglob("*.py") if ".mapInArrow(" in file.read_text()] == ["queries.py"]
