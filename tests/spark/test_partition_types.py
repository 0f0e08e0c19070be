"""Types of partition columns: no two folders become one key, and the type stays the same from night to night."""

import datetime as dt
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from skewless.documents.job import Job
from skewless.errors import InputError
from skewless.spec.reading import parse_spec
from skewless.standing.states_store import Fingerprint, StatesStore
from skewless_spark.prepare.freezing import freeze
from skewless_spark.session.versions import local_frame, to_arrow
from skewless_spark.sources.formats.column_types import is_value
from skewless_spark.sources.input_columns import types_of
from skewless_spark.sources.unit_reading import read_units
from skewless_spark.sources.worker_files import partition_value
from tests.spark.scenario import DATE
from tests.spark.test_inputs import write

ROWS = pa.table({"k": ["a", "b"], "v": [1, 2]})


def frozen(path: Path, date: dt.date = DATE, window: int | None = None, **given: Any) -> Job:
    raw = {
        "name": "stores", "input": {"path": str(path), **given}, "key": "store", "aggregates": {"n": "count"},
        "output": {"path": str(path.parent / "out")}, **({"window": window} if window else {}),
    }  # fmt: skip
    return freeze(parse_spec(json.dumps(raw)), date, str(path.parent), "spec")


def put(folder: Path, *stores: str, kind: str = "parquet") -> None:
    for store in stores:
        (folder / f"store={store}").mkdir(parents=True)
        write(kind, folder / f"store={store}" / f"x.{kind}", ROWS)


def test_no_two_folders_are_one_key_to_spark(spark: SparkSession) -> None:
    chance = random.Random(9)
    pool = ["0", "-0", "7", "07", "+7", "7.0", "7.00", "1e3", "1000", "1000.0", ".5", "0.5", "-3", "2147483648", "٧",
            "9223372036854775808", "0.1", "0.10000000000000000555", "2026-01-02", "2026-1-2", "20260102", "nan", "x",
            "00123", "123", "1_000", "7f", "0x7", " 7", "1E3", "-.5", "5."]  # fmt: skip
    drawn = [chance.sample(pool, chance.choice([1, 2, 2, 3])) for _ in range(400)]
    rows, refused = [], 0
    for number, texts in enumerate(drawn):
        try:
            kind = types_of(texts, [{"p": text} for text in texts])["p"]
        except InputError:
            refused += bool({"+7", "٧"} & set(texts))
            continue
        rows += [(number, kind, text) for text in texts]
    assert refused == len(drawn) - len({number for number, _, _ in rows}) > 0
    kinds = {kind for _, kind, _ in rows}
    assert kinds == {"int", "bigint", "double", "date", "string"}
    # Spark's own words for each value: they are as different as the folders.
    casts = " ".join(f"WHEN '{kind}' THEN CAST(CAST(p AS {kind}) AS string)" for kind in sorted(kinds))
    columns = dict(zip(("n", "kind", "p"), map(list, zip(*rows, strict=True)), strict=True))
    frame = local_frame(spark, pa.table(columns))
    found = to_arrow(frame.selectExpr("n", f"CASE kind {casts} END AS value")).to_pylist()
    assert len({(row["n"], row["value"]) for row in found if row["value"] is not None}) == len(rows)


@pytest.mark.parametrize("kind", ["parquet", "orc", "csv"])
def test_a_value_that_would_lose_its_zeros_is_a_text_and_odd_digits_are_refused(tmp_path: Path, kind: str) -> None:
    put(tmp_path / "in", "00123", "123", kind=kind)
    columns = {"v": "bigint"} if kind == "csv" else None
    job = frozen(tmp_path / "in", format=kind, columns=columns)
    assert job.key_types == {"store": "string"}
    assert [partition_value(unit, job.source, "store").as_py() for unit in job.units] == ["00123", "123"]
    for odd in ("+5", "٥"):
        put(tmp_path / odd, "4", odd, kind=kind)
        said = (
            rf"store={odd[-1] if odd == '٥' else '.5'}/x\.{kind}: expected a plain number, such as 5 or -0.5, .*'store'"
        )
        with pytest.raises(InputError, match=said):
            frozen(tmp_path / odd, format=kind, columns=columns)
        told = frozen(tmp_path / odd, format=kind, columns={**(columns or {}), "store": "string"})
        assert {unit.values["store"] for unit in told.units} == {"4", odd}


@pytest.mark.parametrize(
    ("kind", "values", "others"),
    [
        ("int", "5 -5 010", "0x10 1_000 +5 5.0"),
        ("double", "NaN Infinity -Infinity -1.5E-3 .5 5. 1e3", "nan inf 0x1p3 1_000 +5"),
        ("boolean", "true FALSE", "1 0 yes t"),
    ],
)
def test_a_text_in_a_folder_is_a_value_if_it_is_one_to_spark(kind: str, values: str, others: str) -> None:
    """Arrow takes some more. Of those that Spark takes we refuse what it would make one key with another folder."""
    assert [text for text in f"{values} {others}".split() if is_value(text, kind)] == values.split()


def test_escapes_are_those_of_spark_and_no_value_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "%C3%A9", "a%2Fb%", "é")
    stores = {row[0] for row in spark.read.parquet(str(tmp_path / "in")).select("store").collect()}
    assert {unit.values["store"] for unit in frozen(tmp_path / "in").units} == stores == {"Ã©", "a/b%", "é"}
    put(tmp_path / "in", "")
    with pytest.raises(InputError, match=r"store=/x.parquet: expected folders with a value, as in store=1, but"):
        frozen(tmp_path / "in")


@pytest.mark.long
def test_a_declared_type_is_that_of_the_key_whoever_reads_the_file(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "00123", "123", "-4")
    for kind, keys in (("string", {"00123", "123", "-4"}), ("bigint", {123, -4})):
        job = frozen(tmp_path / "in", columns={"store": kind})
        scanned = {row[0] for row in read_units(spark, job, range(len(job.units)), ["store"]).select("c0").collect()}
        assert scanned == {partition_value(unit, job.source, "store").as_py() for unit in job.units} == keys
        # Plain Spark, which is told the same type.
        asked = spark.read.schema(f"k string, v bigint, store {kind}").parquet(str(tmp_path / "in"))
        assert {row[0] for row in asked.select("store").collect()} == keys
    with pytest.raises(InputError, match=r"expected a value of type date .*'store', as the spec decl"):
        frozen(tmp_path / "in", columns={"store": "date"})


def test_a_csv_without_a_header_may_declare_its_folders_too(tmp_path: Path) -> None:
    (tmp_path / "in" / "store=007").mkdir(parents=True)
    (tmp_path / "in" / "store=007" / "x.csv").write_text("a,1\nb,2\n")
    columns = {"store": "string", "k": "string", "v": "bigint"}
    job = frozen(tmp_path / "in", format="csv", options={"header": False}, columns=columns)
    assert (job.source.columns, job.source.partition_columns) == ({"k": "string", "v": "bigint"}, {"store": "string"})


def begun(job: Job) -> str:
    """What the merge of a run writes down before its states; the folder of these."""
    assert job.window is not None
    StatesStore(job.window.store).begin(Fingerprint(shapes=job.window.shapes))
    return job.window.store


def test_a_type_is_kept_with_the_states_and_later_folders_fit_it_or_are_refused(tmp_path: Path) -> None:
    nights = [DATE + dt.timedelta(days=day) for day in range(5)]
    path = tmp_path / "in" / "date={date}"

    def night(at: int, *stores: str, **given: Any) -> Job:
        put(tmp_path / "in" / f"date={nights[at]}", *stores)
        return frozen(path, nights[at], window=1, **given)

    first = night(0, "1.5", "2")
    assert first.key_types == {"store": "double"}
    states = begun(first)
    second = night(1, "3")  # by itself an int
    assert (second.key_types, begun(second)) == ({"store": "double"}, states)
    with pytest.raises(
        InputError, match=r"store=007/x\.parquet: expected a value of type double .*as the states"
    ) as odd:
        night(2, "3", "007")
    assert "declare columns: {store: string}, whereupon all states begin anew" in str(odd.value)
    third = frozen(path, nights[2], window=1, columns={"store": "string"})
    assert third.key_types == {"store": "string"}
    assert begun(third) != states
    # Declared once, it stays a text where texts are needed.
    assert night(3, "0008").key_types == {"store": "string"}


def test_states_that_begin_with_texts_stay_texts_and_a_damaged_note_hinders_nobody(tmp_path: Path) -> None:
    path = tmp_path / "in" / "date={date}"
    put(tmp_path / "in" / f"date={DATE}", "north", "7")
    put(tmp_path / "in" / f"date={DATE + dt.timedelta(days=1)}", "7")
    store = begun(frozen(path, window=1))
    tomorrow = DATE + dt.timedelta(days=1)
    assert frozen(path, tomorrow, window=1).key_types == {"store": "string"}
    (Path(store) / "fingerprint.json").write_text("{")
    assert frozen(path, tomorrow, window=1).key_types == {"store": "int"}


def test_a_column_that_nothing_has_is_not_declared_by_mistake(tmp_path: Path) -> None:
    put(tmp_path / "in", "1")
    with pytest.raises(InputError, match=r"columns of .*x\.parquet or of its.* got 'stor'; did you mean 'store'"):
        frozen(tmp_path / "in", columns={"stor": "string"})
