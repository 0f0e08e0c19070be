"""``skewless init``: whatever the input is, the spec that is written is good, and says what suits the columns."""

import datetime as dt
import gzip
import json
import shutil
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from skewless.spec import JobSpec, load_spec
from skewless_cli.first_spec.layout import days_of
from tests.lake_tables import append, data_file, iceberg_table
from tests.spark.scenario import Told

DAYS = [dt.date(2026, 11, number) for number in (1, 2, 3)]
Command = Callable[..., Told]


def clicks(day: dt.date = DAYS[-1], rows: int = 2_000) -> pa.Table:
    """Rows of a skewed page, an even site, a visitor of many, a quantity, and a moment."""
    random = np.random.default_rng(day.toordinal())
    moment = dt.datetime.combine(day, dt.time(), dt.UTC)
    return pa.table({
        "page": [f"/page/{page}" for page in np.minimum(random.zipf(1.3, rows), 500)],
        "site": random.choice(["ch", "de", "fr"], rows),
        "visitorId": random.integers(0, 900, rows),
        "ms": random.integers(1, 5_000, rows),
        "at": pa.array([moment + dt.timedelta(seconds=int(one)) for one in random.integers(0, 86_400, rows)],
                       pa.timestamp("us", "UTC")),
    })  # fmt: skip


def as_parquet(folder: Path) -> str:
    pq.write_table(clicks(), folder / "clicks.parquet")
    return "clicks.parquet"


def without_ending(folder: Path) -> str:
    (folder / "clicks").mkdir()
    pq.write_table(clicks(), folder / "clicks" / "part-00000")
    return "clicks"


def as_csv(folder: Path, *, name: str = "clicks.csv", delimiter: str = ",", header: bool = True) -> str:
    written = pa_csv.WriteOptions(include_header=header, delimiter=delimiter)
    pa_csv.write_csv(clicks(), folder / name, written)
    return name


def as_json(folder: Path) -> str:
    rows = [json.dumps({**row, "at": row["at"].isoformat()}) for row in clicks().to_pylist()]
    (folder / "clicks.jsonl.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    return "clicks.jsonl.gz"


def in_days(folder: Path, form: str) -> str:
    for day in DAYS:
        place = folder / "clicks" / day.strftime(form)
        place.mkdir(parents=True)
        pq.write_table(clicks(day), place / "a.parquet")
    return "clicks"


def as_delta(folder: Path, *partition_by: str) -> str:
    for day in DAYS:
        rows = clicks(day).append_column("day", pa.array([day] * 2_000))
        write_deltalake(str(folder / "clicks"), rows, mode="append", partition_by=list(partition_by))
    return "clicks"


def as_iceberg(folder: Path, *, by_day: bool) -> str:
    schema = Schema(*(NestedField(number, name, kind) for number, (name, kind) in enumerate(ICEBERG.items(), start=1)))
    spec = PartitionSpec(PartitionField(5, 1000, DayTransform(), "at_day")) if by_day else PartitionSpec()
    table = iceberg_table(folder / "data", schema, spec)
    for day in DAYS:  # as pyiceberg partitions by days with a package that is not here
        append(table, data_file(table, clicks(day), Record((day - dt.date(1970, 1, 1)).days) if by_day else None))
    return "local.db.clicks"


ICEBERG = {
    "page": StringType(), "site": StringType(), "visitorId": LongType(), "ms": LongType(), "at": TimestamptzType(),
}  # fmt: skip
AGGREGATES = {
    "row_count": ("count", None), "visitorid_values": ("approx_count_distinct", "visitorId"), "ms_sum": ("sum", "ms"),
    "at_min": ("min", "at"), "at_max": ("max", "at"),
}  # fmt: skip
INPUTS: dict[str, tuple[Callable[[Path], str], dict[str, Any]]] = {
    "a Parquet file": (as_parquet, {"path": "{here}/clicks.parquet", "format": "parquet"}),
    "a file without an ending": (without_ending, {"format": "parquet"}),
    "CSV": (as_csv, {"format": "csv", "options": None}),
    "CSV by semicolons": (lambda folder: as_csv(folder, delimiter=";"), {"format": "csv", "options": {"sep": ";"}}),
    "JSON lines, compressed": (as_json, {"format": "json"}),
    "folders date=": (lambda folder: in_days(folder, "date=%Y-%m-%d"), {"path": "{here}/clicks/date={{date}}"}),
    "folders year=": (
        lambda folder: in_days(folder, "year=%Y/month=%m/day=%d"),
        {"path": "{here}/clicks/year={{date:%Y}}/month={{date:%m}}/day={{date:%d}}"},
    ),
    "a Delta table by days": (lambda folder: as_delta(folder, "day"), {"format": "delta", "parts": "day"}),
    "an Iceberg table": (lambda folder: as_iceberg(folder, by_day=False), {"format": "iceberg", "parts": None}),
    "an Iceberg table by days": (lambda folder: as_iceberg(folder, by_day=True), {"format": "iceberg", "parts": "at"}),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_here: Command) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SKEWLESS_ROOT", raising=False)
    (tmp_path / "data").mkdir()
    return command_here


def written(here: Command, *words: str) -> tuple[JobSpec, str]:
    done = here("init", *words, "--into", "specs")
    assert done.returncode == 0, done.stderr
    (spec,) = Path("specs").glob("*.yaml")
    return load_spec(spec), done.stdout


@pytest.mark.parametrize("kind", INPUTS)
def test_whatever_the_input_is_its_spec_passes_the_check_and_suits_the_columns(
    here: Command, tmp_path: Path, kind: str
) -> None:
    make, fields = INPUTS[kind]
    spec, said = written(here, make(tmp_path))
    expected = {name: value.format(here=tmp_path) if name == "path" else value for name, value in fields.items()}
    assert {name: getattr(spec.input, name) for name in fields} == expected
    assert spec.key == ("page",)
    told = {name: (call.function, call.column) for name, call in spec.aggregates.items()}
    told.pop("day_min", None), told.pop("day_max", None)  # of a table that has its days in a column
    assert told == AGGREGATES
    dated = "{date" in spec.input.path or spec.input.parts is not None
    assert dated == ("good for 2026-11-03" in said)
    assert spec.schedule.crons == (("0 2 * * *",) if dated else ())
    date = ["--date", str(DAYS[-1])] if dated else []
    assert here("check", f"specs/{spec.name}.yaml", *date).returncode == 0


def test_a_csv_without_a_header_has_columns_by_numbers_and_codes_stay_texts(here: Command, tmp_path: Path) -> None:
    lines = [f"0{number % 7}0,{number},{number % 3 == 0}".lower() for number in range(100)]
    (tmp_path / "codes.csv").write_text("\n".join(lines))
    spec, _ = written(here, "codes.csv")
    assert spec.input.columns == {"c1": "string", "c2": "bigint", "c3": "boolean"}
    assert (spec.input.options, spec.key) == ({"header": False}, ("c1",))


def test_a_dot_that_may_part_thousands_or_a_fraction_makes_a_text(here: Command, tmp_path: Path) -> None:
    lines = [f"{number % 9};1.25{number % 7};03.02.2026" for number in range(100)]
    (tmp_path / "dots.csv").write_text("\n".join(["shop;amount;day", *lines]))
    spec, _ = written(here, "dots.csv")
    assert spec.input.columns == {"shop": "bigint", "day": "date"}


def test_a_column_of_a_csv_that_is_odd_further_down_is_text(here: Command, tmp_path: Path) -> None:
    lines = [f"{number % 9},{number}" for number in range(200_000)]
    (tmp_path / "late.csv").write_text("\n".join(["shop,price", *lines, "1,none", *lines]))
    spec, _ = written(here, "late.csv")
    assert spec.input.columns == {"shop": "bigint"}


def nested_json(folder: Path) -> tuple[str, Counter[str]]:
    users = [f"u{number}" for number in np.minimum(np.random.default_rng(1).zipf(1.3, 900), 40)]
    rows = [{"user": {"id": user, "plan": "a"}, "tags": ["x"], "ms": at, "at": f"2026-11-03T00:00:{at % 60:02}Z"}
            for at, user in enumerate(users)]  # fmt: skip
    lines = [json.dumps(row) for row in rows]
    (folder / "events").mkdir()
    (folder / "events" / "a.json").write_text("\n".join(lines[:500]))
    (folder / "events" / "b.json.gz").write_bytes(gzip.compress("\n".join(lines[500:]).encode()))
    return "events", Counter(users)


def german_csv(folder: Path) -> tuple[str, Counter[str]]:
    shops = ["Köln", "Köln", "München", "Zürich", "Köln"] * 60
    lines = [f"{shop};{at % 9 + 1}.652,{at % 90 + 10};{at % 28 + 1:02}.02.2026;1.250" for at, shop in enumerate(shops)]
    text = "\r\n".join(["Filiale;Betrag (€);Tag;Menge", *lines, ""])
    (folder / "umsatz.csv").write_bytes(f"\ufeff{text}".encode())
    return "umsatz.csv", Counter(shops)


def latin_csv(folder: Path) -> tuple[str, Counter[str]]:
    shops = ["Café\nMitte", "Café\nMitte", "Bar", "Küche"] * 60
    lines = [f'"{shop}",{at}' for at, shop in enumerate(shops)]
    (folder / "orte.csv").write_bytes("\n".join(["ort,wert", *lines, ""]).encode("latin-1"))
    return "orte.csv", Counter(shops)


#: A file that no default reads right, what its spec says of it, and the key.
JOURNEYS: dict[str, tuple[Callable[[Path], tuple[str, Counter[str]]], dict[str, Any], str]] = {
    "nested JSON": (nested_json, {}, "id"),
    "a German CSV with a mark": (german_csv, {"sep": ";", "dateFormat": "dd.MM.yyyy", "locale": "de"}, "Filiale"),
    "Latin-1 with lines in fields": (latin_csv, {"encoding": "ISO-8859-1", "multiLine": True}, "ort"),
}


@pytest.mark.parametrize(
    ("name", "output"), [*((name, "folder") for name in JOURNEYS), ("a German CSV with a mark", "table")]
)
def test_a_file_is_published_from_init_on_without_a_change(
    here: Command, tmp_path: Path, name: str, output: str
) -> None:
    make, options, key = JOURNEYS[name]
    file, expected = make(tmp_path)
    spec, _ = written(here, file)
    assert (spec.input.options or {}, spec.key) == (options, (key,))
    path = Path("specs", f"{spec.name}.yaml")
    if output == "table":
        text = path.read_text(encoding="utf-8")
        assert text.count("\noutput:") == 1
        path.write_text(text.partition("\noutput:")[0] + "\noutput: {format: delta, path: table}\n", encoding="utf-8")
    done = here("run", str(path), "--json")
    assert done.returncode == 0, done.stderr
    if output == "table":
        found = DeltaTable(str(tmp_path / "data" / "table")).to_pyarrow_table()
    else:
        found = pq.read_table(next((tmp_path / "data").rglob("*.parquet")).parent, partitioning=None)
    assert dict(zip(found[key].to_pylist(), found["row_count"].to_pylist(), strict=True)) == expected
    if key == "Filiale":
        assert sum(found["betrag_sum"].to_pylist()) == sum(
            Decimal(f"{at % 9 + 1}652.{at % 90 + 10}") for at in range(300)
        )
        assert sum(found["menge_sum"].to_pylist()) == 300 * 1_250


def test_a_check_holds_a_text_against_its_declared_types_and_tries_the_output(here: Command, tmp_path: Path) -> None:
    german_csv(tmp_path / "data")
    (tmp_path / "data" / "taken").touch()
    spec = "{name: a, input: {path: umsatz.csv, format: csv, options: {sep: ;%s}, columns: {%s}}, key: Filiale, %s}"
    of_betrag = "aggregates: {b: {function: max, column: '%s'}}, output: {path: %s}"
    for options, kinds, column, output, said in (
        ("", "Betrag (€): 'decimal(18,2)'", "Betrag (€)", "out", "but got '1.652,10'; declare a decimal(18,2), with"),
        ("", "Tag: date", "Tag", "out", "but got '01.02.2026'; say options: {dateFormat: dd.MM.yyyy}"),
        (", dateFormat: DD.MM.YYYY", "Tag: date", "Tag", "out", "d is the day of the month"),
        (", locale: de", "Betrag (€): 'decimal(18,2)'", "Betrag (€)", "taken", "data/taken, below"),
        (", locale: de", "Betrag (€): 'decimal(18,2)'", "Betrag (€)", "out", ""),
    ):
        Path("a.yaml").write_text(spec % (options, kinds, of_betrag % (column, output)), encoding="utf-8")
        done = here("check", "a.yaml")
        assert (done.stderr.count("\n"), said in done.stderr) == (bool(said), True), done.stderr


def test_each_line_says_what_it_is_and_the_file_of_the_dag_names_the_spec(here: Command, tmp_path: Path) -> None:
    spec, _ = written(here, in_days(tmp_path, "date=%Y-%m-%d"))
    text = Path("specs", f"{spec.name}.yaml").read_text(encoding="utf-8")
    assert text.count("#") > text.count("\n") / 3
    assert max(map(len, text.splitlines())) <= 200
    assert "#   page " in text.partition("SELECT page,")[0]
    assert "  values" not in text
    dag = Path("specs", f"{spec.name}_dag.py").read_text(encoding="utf-8")
    assert f'"{spec.name}.yaml"' in dag
    compile(dag, "dag", "exec")


def test_no_file_is_overwritten_and_then_none_is_written(here: Command, tmp_path: Path) -> None:
    as_parquet(tmp_path)
    Path("specs").mkdir()
    Path("specs", "mine_dag.py").write_text("# mine")
    done = here("init", "clicks.parquet", "--name", "mine", "--into", "specs")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert [path.read_text() for path in Path("specs").iterdir()] == ["# mine"]


def test_a_spec_that_cannot_be_run_is_not_written(here: Command, tmp_path: Path) -> None:
    as_parquet(tmp_path / "data")
    done = here("init", str(tmp_path / "data"), "--into", "specs")  # its results would be in its input
    assert (done.returncode, "a folder apart from the input" in done.stderr) == (2, True)
    assert not Path("specs").exists()


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("{here}/clicks/", "{here}/clicks/date={{date}}"),
        ("./clicks/", "{here}/clicks/date={{date}}"),
        ("file://{here}/clicks", "{here}/clicks/date={{date}}"),
        ("data/../data/below/", "below/date={{date}}"),
        ("below", "below/date={{date}}"),
        ("clicks/date=2026-11-0*", "{here}/clicks/date=2026-11-0*"),
    ],
)
def test_a_path_is_taken_as_a_shell_completes_it(here: Command, tmp_path: Path, given: str, path: str) -> None:
    in_days(tmp_path, "date=%Y-%m-%d")
    shutil.copytree(tmp_path / "clicks", tmp_path / "data" / "below")
    spec, _ = written(here, given.format(here=tmp_path))
    assert spec.input.path == path.format(here=tmp_path)


def test_an_input_on_another_file_system_is_named_by_its_url(here: Command, tmp_path: Path) -> None:
    in_days(tmp_path, "date=%Y-%m-%d")
    fs = fsspec.filesystem("memory")
    fs.put(str(tmp_path / "clicks"), "/lake/clicks", recursive=True)
    try:
        spec, said = written(here, "memory://lake/clicks/")
    finally:
        fs.rm("/lake", recursive=True)
    assert (spec.input.path, "good for 2026-11-03" in said) == ("memory://lake/clicks/date={date}", True)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.csv", b"", "empty file"),
        ("empty.parquet", b"", "0 bytes; remove or rewrite it"),
        ("odd.parquet", b"no Parquet", "odd.parquet: expected a readable Parquet file"),
        ("list.json", b"[1, 2]", "list.json"),
        ("nothing.json", b"", "a column that can be a key"),
    ],
)
def test_an_input_that_is_none_is_told_in_one_sentence_and_nothing_is_written(
    here: Command, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    done = here("init", name, "--into", "specs")
    assert (done.returncode, done.stderr.count("\n"), said in done.stderr) == (2, 1, True), done.stderr
    assert not Path("specs").exists()


@pytest.mark.parametrize(
    ("files", "path"),
    [
        (["/l/c/date=2026-01-30/a", "/l/c/date=2026-01-31/b"], "/l/c/date={date}"),
        (["/l/c/a=1/day=20260130/a", "/l/c/a=2/day=20260131/b"], "/l/c/a=*/day={date:%Y%m%d}"),
        (["/l/c/2026/01/30/05/a", "/l/c/2026/01/31/a"], "/l/c/{date:%Y/%m/%d}"),
        (["/l/c/clicks-2026-01-30.csv", "/l/c/clicks-2026-01-31.csv"], "/l/c/clicks-{date}.csv"),
        (["/l/c/2026-01-30-a.csv", "/l/c/2026-01-31-b.csv"], "/l/c/{date}*.csv"),
        (["/l/c/date=2026-01-31/a", "/l/c/b"], None),
        (["/l/c/2026-02-31/a"], None),
        (["/l/c/date=2026-01-31/a", "/l/c/x/date=2026-01-30/a"], None),
        (["/l/c/part-1.parquet"], None),
    ],
)
def test_days_are_found_in_folders_and_names_of_files(files: list[str], path: str | None) -> None:
    found = days_of("/l/c", files)
    assert (found and found.path) == path
