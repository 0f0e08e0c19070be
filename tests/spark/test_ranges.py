"""Reading units with pyarrow: every row once wherever a file is cut, in the bytes that it has, or a sentence."""

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skewless.documents.job import Source, Unit
from skewless.errors import InputError
from skewless.routing.hashing import pack_origin
from skewless.spec.input import Input
from skewless_spark.session import session as queries
from skewless_spark.sources import cutting
from skewless_spark.sources import worker_files as ranges
from skewless_spark.sources.listing import Listing, list_input
from skewless_spark.sources.worker_files import _Piece, _read

ROWS = 60_000


def table(rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(3)
    words = [f"w\u00e9{number}" for number in rng.integers(0, 10**9, rows).tolist()]
    return pa.table({"id": range(rows), "word": words, "x": rng.random(rows)})


def write(path: Path, rows: pa.Table) -> Path:
    pq.write_table(rows, path, row_group_size=2000)
    return path


def given(path: Path, kind: str = "parquet") -> Input:
    return Input.model_validate({"path": str(path), "format": kind})


def rows_of(listing: Listing, columns: list[str]) -> pa.Table:
    batches = [batch for unit in listing.units for batch in ranges.read_unit(unit, listing.source, columns)]
    return pa.Table.from_batches(batches)


def test_a_file_that_is_cut_gives_every_row_once_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "CUT_BYTES", 1 << 16)
    path = write(tmp_path / "input", table())
    listing = list_input(given(path), str(path), share=0.01)
    assert len(listing.units) > 1
    assert rows_of(listing, ["id", "word", "x"]).equals(table())
    assert sum(unit.rows for unit in listing.units) == ROWS


def test_each_row_has_an_origin_of_its_own_that_tells_unit_and_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "CUT_BYTES", 1 << 16)
    path = write(tmp_path / "input", table())
    listing = list_input(given(path), str(path), share=0.01)
    assert len(listing.units) > 1
    numbered = list(enumerate(listing.units))
    read = ranges.read_parts([numbered[:1], numbered[1:]], listing.source, ["id"], "origin")
    numbers = pa.record_batch({"part": [1, 0]})
    origins = [origin for batch in read([numbers]) for origin in batch.column("origin").to_pylist()]
    in_order = [*numbered[1:], *numbered[:1]]
    assert origins == [pack_origin(ordinal, offset) for ordinal, unit in in_order for offset in range(unit.rows)]


@pytest.mark.parametrize("by", [1, -1], ids=["one too few", "one too many"])
def test_a_unit_of_other_rows_than_its_footer_lists_is_refused(tmp_path: Path, by: int) -> None:
    path = write(tmp_path / "input", table(100))
    listing = list_input(given(path), str(path), share=0.01)
    (unit,) = listing.units
    read = ranges.read_parts([[(0, unit.model_copy(update={"rows": 100 + by}))]], listing.source, ["id"], "origin")
    with pytest.raises(InputError, match=f"expected {100 + by} rows as its footer lists, but got 100"):
        list(read([pa.record_batch({"part": [0]})]))


def test_folders_name_columns_whose_types_follow_from_all_values(tmp_path: Path) -> None:
    for folder in ("date=2026-01-01/n=1/site=a%20b", "date=2026-01-02/N=__HIVE_DEFAULT_PARTITION__/site=7"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.txt").write_text("line\n")
    listing = list_input(given(tmp_path, "text"), str(tmp_path))
    assert listing.source.partition_columns == {"date": "date", "n": "int", "site": "string"}
    assert [unit.values["n"] for unit in listing.units] == ["1", None]
    assert ranges.partition_value(listing.units[0], listing.source, "date").as_py() == dt.date(2026, 1, 1)
    assert listing.units[0].values["site"] == "a b"
    below = list_input(given(tmp_path, "text"), str(tmp_path / "date=2026-01-01"))
    assert list(below.source.partition_columns) == ["date", "n", "site"]


def test_folders_of_different_columns_are_refused(tmp_path: Path) -> None:
    for folder in ("a=1", "b=1"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text("line\n")
    with pytest.raises(InputError, match=r"expected the partition columns \['a'\]"):
        list_input(given(tmp_path, "text"), str(tmp_path))


def wide_rows(path: Path, kind: str) -> int:
    """A file of few large values among many small ones; how many rows it has."""
    values = ["x" * (1 << 16) if number % 4 == 0 else str(number) for number in range(160)]
    column = pa.array(values, pa.large_string() if kind == "large texts" else pa.string())
    if kind == "a dictionary":
        column = pa.DictionaryArray.from_arrays([number % 4 and 1 for number in range(160)], pa.array([values[0], "s"]))
    pq.write_table(pa.table({"word": column}), path, use_dictionary=kind == "a dictionary")
    return len(values)


@pytest.mark.parametrize("kind", ["texts", "large texts", "a dictionary"])
def test_no_batch_has_more_bytes_than_spark_is_given_at_a_time(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, most = tmp_path / "input", 1 << 18
    monkeypatch.setattr(queries, "BATCH_BYTES", most)
    rows = wide_rows(path, kind)
    unit = Unit(path=str(path), rows=rows, size_bytes=path.stat().st_size, span=(0, 1))
    source = Source(columns={"word": "string"})
    given = queries.bounded(ranges.read_parts([[(0, unit)]], source, ["word"], "origin"))
    found = list(given([pa.record_batch({"id": [0]})]))
    assert max(batch.nbytes for batch in found) <= most
    assert len(found) <= 4 * (40 << 16) // most, "and no more batches than that takes"
    whole = pa.Table.from_batches(found)
    assert whole["origin"].to_pylist() == list(range(rows))
    wanted = pq.read_table(path)["word"].cast(pa.large_string())
    assert whole["s0"].cast(pa.large_string()).equals(wanted)
    ours = list(_read(_Piece(str(path), 0, 1), ["word"], pa.schema({"word": pa.string()})))
    assert max(batch.nbytes for batch in ours) <= most
    assert pa.Table.from_batches(ours)["word"].cast(pa.large_string()).equals(wanted)


def test_a_few_wide_rows_among_many_small_ones_are_not_left_to_sparks_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "_WIDE_BYTES", 1 << 21)
    pq.write_table(pa.table({"value": ["x" * (1 << 20)] * 4 + ["s"] * 4000}), tmp_path / "texts", use_dictionary=False)
    pq.write_table(pa.table({"value": range(1 << 19)}), tmp_path / "numbers", use_dictionary=False)
    spans = {
        name: [unit.span for unit in list_input(given(tmp_path / name), str(tmp_path / name), share=1).units]
        for name in ("texts", "numbers")
    }
    assert spans == {"texts": [(0, 1)], "numbers": [None]}


def test_what_a_function_puts_out_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "BATCH_BYTES", 1 << 16)
    texts = [str(number) * (1 << 13 if number % 10 == 0 else 1) for number in range(100)]
    made = pa.record_batch({"text": texts, "lists": [[text] for text in texts], "all": [{"a": text} for text in texts]})
    found = list(queries.bounded(lambda batches: (made for _ in batches))([made, made]))
    assert all(batch.nbytes <= 1 << 16 or batch.num_rows == 1 for batch in found)
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches([made, made]))
    code = Path(queries.__file__).parents[1]
    assert [file.name for file in code.rglob("*.py") if ".mapInArrow(" in file.read_text()] == ["session.py"]
