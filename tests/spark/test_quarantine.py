"""What an expectation does that does not hold: it fails the run, warns, or has keys published apart from all others."""

import datetime as dt
import json
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake
from pyarrow import csv, orc
from pyspark.sql import SparkSession

from skewless.documents.quality import Quarantine
from skewless.history import BETWEEN
from skewless.publication.records import manifest_of, record_of
from skewless.run.directory import RunDirectory
from skewless.run.step_times import run_facts
from skewless.spec.part import Part
from skewless.spec.reading import load_spec
from skewless_lake.catalogs import open_catalog
from skewless_lake.iceberg_tables import make_namespace
from skewless_lake.publication import published_parts
from skewless_lake.staged_files import OutputPart
from skewless_spark.comparison import OtherSide, compare
from skewless_spark.prepare.freezing import needs_session
from skewless_spark.quality.expectations import expectation_class, is_of_rows
from skewless_spark.quality.quarantine import values_as_text
from skewless_spark.quality.validate import validate
from skewless_spark.sources.locations import output_location
from tests.spark.scenario import Told
from tests.spark.test_own_names import NAMES as FROM_INSIDE
from tests.spark.test_quality import BAD, CALLS, Scene, expecting, report_of
from tests.tiers import mostly_long

#: The total of each key on each night; each key has two rows.
NIGHTS: dict[str, dict[str, int | None]] = {
    "2026-11-20": {"a": 10, "b": 20, "pen": 900, "n": None, "c": 30},
    "2026-11-21": {"a": 10, "b": 20, "pen": 800, "n": 5, "c": 30},
    "2026-11-22": {"a": 10, "b": 20, "pen": 40, "n": 5, "c": 30},
}
FIRST, SECOND, THIRD = NIGHTS
BOUND: dict[str, Any] = {
    "type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "max_value": 100},
    "severity": "quarantine", "at_most": 2,
}  # fmt: skip
NOT_NULL: dict[str, Any] = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "total"}}
Command = Callable[..., Told]


class Shop:
    """Nights of a job by its command line, and what readers see of each."""

    def __init__(self, folder: Path, command: Command) -> None:
        self.folder, self._command = folder, command
        for day, totals in NIGHTS.items():
            (folder / "in" / day).mkdir(parents=True)
            rows = [(key, value) for key, total in totals.items() for value in (total, None if total is None else 0)]
            pq.write_table(
                pa.table({"k": [key for key, _ in rows], "v": pa.array([value for _, value in rows], "int64")}),
                folder / "in" / day / "rows.parquet",
            )

    def spec(self, *expectations: dict[str, Any], **fields: Any) -> str:
        written = {
            "name": "shop", "input": {"path": "in/{date}"}, "key": "k", "engine": "combine",
            "aggregates": {"n": "count", "total": {"function": "sum", "column": "v"}},
            "quality": {"expectations": [*expectations], "input": fields.pop("of_input", [])},
            "output": {"path": "out", "files": 2}, **fields,
        }  # fmt: skip
        (self.folder / "spec.yaml").write_text(yaml.safe_dump(written, sort_keys=False))
        return str(self.folder / "spec.yaml")

    def tell(self, command: str, day: str, *words: str) -> Told:
        spec = str(self.folder / "spec.yaml")
        return self._command(command, spec, *words, "--date", day, "--root", str(self.folder))

    def day(self, day: str) -> Path:
        return self.folder / "out" / f"date={day}"

    def published(self, day: str) -> dict[str, int | None]:
        found = ds.dataset(self.day(day), format="parquet").to_table()
        return dict(zip(found["k"].to_pylist(), found["total"].to_pylist(), strict=True))

    def held(self, day: str) -> dict[str, tuple[str, str]]:
        files = sorted((self.day(day) / "_quarantine").glob("part-*"))
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        return {row["k"]: (row["quarantine_reason"], row["quarantine_value"]) for row in rows}

    def run(self, day: str) -> RunDirectory:
        manifest = manifest_of(self.day(day))
        assert manifest is not None
        return RunDirectory(manifest.by.run)

    def part(self, day: str) -> OutputPart:
        spec, part = load_spec(self.folder / "spec.yaml"), Part(dt.date.fromisoformat(day))
        return OutputPart(spec.output, output_location(spec, part, str(self.folder), ""), str(self.folder), part)


class TableShop(Shop):
    """The same with a table, of which the table beside has the keys in quarantine."""

    def __init__(self, kind: str, folder: Path, command: Command) -> None:
        super().__init__(folder, command)
        self._output = {"format": kind, "path": {"iceberg": "local.marts.shop", "delta": "marts/shop"}[kind]}

    def spec(self, *expectations: dict[str, Any], **fields: Any) -> str:
        return super().spec(*expectations, **{"output": self._output, **fields})

    def _rows(self, day: str, beside: str = "") -> list[dict[str, Any]]:
        if self._output["format"] == "delta":
            found = DeltaTable(f"{self.folder}/marts/shop{beside}").to_pyarrow_table()
        else:
            found = open_catalog("local", str(self.folder)).load_table(f"marts.shop{beside}").scan().to_arrow()
        return [row for row in found.to_pylist() if str(row["date"]) == day]

    def published(self, day: str) -> dict[str, int | None]:
        return {row["k"]: row["total"] for row in self._rows(day)}

    def run(self, day: str) -> RunDirectory:
        _, by = published_parts(self.part(day))[day]
        return RunDirectory(by.run)

    def held(self, day: str) -> dict[str, tuple[str, str]]:
        rows = self._rows(day, "_quarantine")
        return {row["k"]: (row["quarantine_reason"], row["quarantine_value"]) for row in rows}


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path, command_here: Command) -> Shop:  # noqa: ARG001  # it has the session
    return Shop(tmp_path, command_here)


@pytest.fixture(params=["iceberg", "delta"])
def table(request: pytest.FixtureRequest, shop: Shop, command_here: Command) -> TableShop:
    (shop.folder / "table").mkdir()
    return TableShop(request.param, shop.folder / "table", command_here)


def test_each_severity_is_told_on_a_real_run_and_every_key_is_published_or_in_quarantine(shop: Shop) -> None:
    held = {**BOUND, "type": "expect_column_values_to_be_unique", "kwargs": {"column": "k"}, "severity": "fail"}
    del held["at_most"]
    of_input = [{**NOT_NULL, "kwargs": {"column": "v"}, "severity": "warn"}, {"type": BETWEEN}]
    shop.spec(BOUND, {**NOT_NULL, "severity": "warn"}, held, of_input=of_input)
    told = shop.tell("run", FIRST)
    assert told.returncode == 0, told.stderr
    assert "1 key in quarantine, of 2 rows of the input" in told.stdout
    assert (
        "quarantined: total: values between, max_value=100 (1 of 4 values unexpected (25.00%); in pen: 900)"
        in told.stdout
    )
    assert "warned: v: values not null (2 of 10 rows are null (20.00%))" in told.stdout
    assert "warned: total: values not null (1 of 5 values unexpected (20.00%); in n: null)" in told.stdout
    assert shop.published(FIRST) == {"a": 10, "b": 20, "n": None, "c": 30}
    assert shop.held(FIRST) == {"pen": ("expect_column_values_to_be_between(total, max_value=100)", "900")}
    run = shop.run(FIRST)
    report, facts = run.quality(), run_facts(run)["quality"]
    assert report is not None
    assert (report.success, report.keys, report.published_keys) == (True, 5, 4)
    assert [check.verdict for check in report.checks[-3:]] == ["quarantined", "warned", "passed"]
    assert report.checks[-4].sentence == "keys_balance: 5 keys of the result, 4 published, 1 in quarantine"
    assert isinstance(facts, dict)
    assert (facts["passed"], facts["failed"], facts["quarantined_keys"]) == (True, 0, 1)
    warnings = facts["warnings"]
    assert isinstance(warnings, list)
    assert len(warnings) == 4
    assert report.checks[1].found == "10 rows"
    assert not any("900" in str(one) for one in warnings), "an event has counts, and no values of keys"
    # More keys than may fail: nothing is published, and nothing written that would be.
    shop.spec({**BOUND, "kwargs": {"column": "total", "max_value": 15}})
    told = shop.tell("run", FIRST)
    assert told.returncode == 3
    assert "3 of 4 values unexpected" in told.stderr
    assert "at most 2" in told.stderr
    assert shop.published(FIRST) == {"a": 10, "b": 20, "n": None, "c": 30}


@pytest.mark.long
def test_a_key_that_fails_for_several_nights_is_left_out_of_each_and_a_window_has_all_of_its_rows(shop: Shop) -> None:
    shop.spec(BOUND, window=2, output={"path": "out", "files": 2, "sort": ["total desc"]})
    for day in (FIRST, SECOND, THIRD):
        told = shop.tell("run", day)
        assert told.returncode == 0, told.stderr
    assert [set(shop.held(day)) for day in (FIRST, SECOND, THIRD)] == [{"pen"}] * 3
    assert shop.published(SECOND) == {"a": 20, "b": 40, "n": 5, "c": 60}
    assert [shop.held(day)["pen"][1] for day in (FIRST, SECOND, THIRD)] == ["900", "1700", "840"], "of two days each"
    assert shop.published(THIRD) == {"a": 20, "b": 40, "n": 10, "c": 60}
    for file in shop.day(THIRD).glob("part-*"):
        totals = pq.read_table(file)["total"].to_pylist()
        assert totals == sorted(totals, reverse=True)


@pytest.mark.long
@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_result_of_another_format_has_its_keys_in_quarantine_as_parquet(shop: Shop, form: str) -> None:
    shop.spec({**BOUND, "at_most": 0.2}, output={"path": "out", "format": form})
    assert shop.tell("run", FIRST).returncode == 0
    lines = "".join(file.read_text() for file in shop.day(FIRST).glob(f"part-*.{form}"))
    assert set(re.findall(r"\b(?:[abc]|pen)\b", lines)) == {"a", "b", "c"}
    assert set(shop.held(FIRST)) == {"pen"}


def test_accepted_keys_are_published_by_a_run_again_and_keys_that_fail_nothing_are_told(shop: Shop) -> None:
    shop.spec({**BOUND, "kwargs": {"column": "total", "max_value": 25}})
    shop.tell("run", FIRST)
    assert set(shop.held(FIRST)) == {"pen", "c"}
    told = shop.tell("run", FIRST, "--set", "quality.accept=[pen, a, x]")
    assert (
        "1 key in quarantine, of 2 rows of the input; 1 that fail are accepted; 2 that are accepted fail nothing"
        in (told.stdout)
    ), told
    assert shop.published(FIRST) == {"a": 10, "b": 20, "n": None, "pen": 900}
    assert set(shop.held(FIRST)) == {"c"}
    told = shop.tell("run", FIRST, "--set", "quality.accept=all")
    assert "0 keys in quarantine; 2 that fail are accepted" in told.stdout, told
    assert shop.published(FIRST) == {"a": 10, "b": 20, "n": None, "pen": 900, "c": 30}
    assert not (shop.day(FIRST) / "_quarantine").exists()
    # More fail than may: accepting them does not raise what the expectation allows.
    shop.spec({**BOUND, "at_most": 1, "kwargs": {"column": "total", "max_value": 25}})
    assert shop.tell("run", FIRST, "--set", "quality.accept=all").returncode == 3


#: Names that a result may have, though they look like ours; longer than any of ours, and as short as a name can be.
NAMES = ("row", "_", "0", "a" * 80, "quarantine")


@pytest.mark.parametrize("name", mostly_long(NAMES, "0"))
def test_no_name_of_a_result_is_one_of_ours(spark: SparkSession, tmp_path: Path, name: str) -> None:
    other = "a" if name != "a" else "row"
    bound = {"type": "expect_column_values_to_be_between", "kwargs": {"column": other, "max_value": 10}}
    scene = Scene(
        key=(name,), schema=f"`{name}` string, `{other}` bigint", rows=[("x", 99), (None, 2), ("y", 3)],
        aggregates={other: {"function": "max", "column": "file"}},
        expectations=[{**bound, "severity": "quarantine", "at_most": 2}],
    )  # fmt: skip
    report = report_of(scene, spark, tmp_path)
    assert report.success, report.failures(1)
    assert report.quarantine == Quarantine(keys=1)


def test_every_name_from_inside_at_once_is_an_aggregate_of_a_result_that_is_cut_and_compared(
    spark: SparkSession, tmp_path: Path
) -> None:
    key = ("k0", "row")
    inside = {*FROM_INSIDE, "ago", "k1", "k_0", "h_a0", "t_a0", "d_a0", "here", "times", "state", "differs", "nulls_0"}
    names = sorted(inside - {*key} - {one.upper() for one in inside})
    bound = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "ago", "max_value": 0}}
    rows = [(f"{number}", "x", *[number] * len(names)) for number in range(100)]
    scene = Scene(
        key=key, schema=f"k0 string, row string, {', '.join(f'`{name}` bigint' for name in names)}", rows=rows,
        aggregates={name: {"function": "max", "column": "file"} for name in names},
        expectations=[{**bound, "severity": "quarantine", "at_most": 100}],
        accept=tuple((f"{number}", "x") for number in range(40, 3040)),
    )  # fmt: skip
    run = scene.lay_out(spark, tmp_path / "run")
    report = validate(spark, run)
    assert report.success, report.failures(1)
    assert report.quarantine == Quarantine(keys=39, accepted=60, unmatched=2940)
    theirs = spark.createDataFrame(rows[1:], scene.schema)
    types = {field.name: field.dataType.simpleString() for field in theirs.schema.fields}
    found = compare(spark, run, OtherSide(theirs, types), 0.0, 3)
    assert (found.keys, found.differ, found.only_here) == (100, 1, 1)
    assert set(found.columns) == set(names)


def test_what_fails_stands_beside_its_key_as_text_whatever_it_is(spark: SparkSession) -> None:
    row = (b"\xff\x00", None, {"at": b"\xff", "no": None}, [b"\xff", None], 1.5)
    schema = "raw binary, gone string, nested struct<at: binary, no: int>, many array<binary>, n double"
    frame = spark.createDataFrame([row], schema)
    (told,) = frame.select(values_as_text(frame.schema, frame.columns)).collect()
    assert told[0] == '/wA=, null, {"at":"/w==","no":null}, ["/w==",null], 1.5'


#: Keys by type: those that fail, and how three of them are accepted.
KEYS: dict[str, tuple[str, list[Any], list[str | None]]] = {
    "text": ("string", ["a", None, "", "null", " b"], [None, "null", " b"]),
    "bytes": ("binary", [b"\xff\x00", None, b"", b"ff00", b"\x80"], ["FF00", "", "80"]),  # the null stays
    "double": ("double", [float("nan"), None, 0.0, 1e300, float("inf")], ["NaN", None, "Infinity"]),
    "decimal": ("decimal(38,18)", [Decimal("1.5"), None, Decimal(0), Decimal(2), Decimal(3)],
                ["1.500000000000000000", None, "3.000000000000000000"]),
    "bool": ("boolean", [True, False, None], ["true", "false", None]),
}  # fmt: skip


@pytest.mark.parametrize("kind", mostly_long(KEYS, "bytes", "double"))
def test_each_kind_of_key_is_in_quarantine_or_accepted_by_its_text(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    form, keys, accept = KEYS[kind]
    low = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "max_value": 0}}
    scene = Scene(
        rows=[(key, 1, {"at": b"\xff"}) for key in keys], schema=f"token {form}, n bigint, nested struct<at: binary>",
        aggregates={name: {"function": "max", "column": "file"} for name in ("n", "nested")},
        expectations=[{**low, "severity": "quarantine", "at_most": 9}], accept=tuple((key,) for key in accept),
    )  # fmt: skip
    run = scene.lay_out(spark, tmp_path / "run")
    report = validate(spark, run)
    assert report.success, report.failures(1)
    assert report.quarantine == Quarantine(keys=len(keys) - 3, accepted=3)
    held = run.committed("quality").of_kind("quarantined")
    rows = [row for file in held for row in pq.read_table(run.path(file.path)).to_pylist()]
    assert all(row["quarantine_value"] == "1" for row in rows)
    assert len(rows) == len(keys) - 3


def test_a_table_has_the_keys_that_hold_and_the_one_beside_it_all_others_until_they_are_accepted(
    table: TableShop,
) -> None:
    table.spec({**BOUND, "kwargs": {"column": "total", "max_value": 25}})
    told = table.tell("run", FIRST)
    assert told.returncode == 0, told.stderr
    assert "2 keys in quarantine, of 4 rows of the input" in told.stdout
    assert table.published(FIRST) == {"a": 10, "b": 20, "n": None}
    reason = "expect_column_values_to_be_between(total, max_value=25)"
    assert table.held(FIRST) == {"pen": (reason, "900"), "c": (reason, "30")}
    first = table.run(FIRST)
    record, report = record_of(first), first.quality()
    assert record is not None
    assert report is not None
    assert (record.keys, record.quarantined, report.keys) == (3, 2, 5)
    assert table.tell("run", FIRST, "--set", "quality.accept=[pen]").returncode == 0
    assert (table.published(FIRST), set(table.held(FIRST))) == ({"a": 10, "b": 20, "n": None, "pen": 900}, {"c"})
    table.tell("rollback", FIRST)
    assert (str(table.run(FIRST)), set(table.held(FIRST))) == (str(first), {"pen", "c"})
    assert table.tell("run", FIRST, "--set", "quality.accept=all").returncode == 0
    assert (len(table.published(FIRST)), table.held(FIRST)) == (5, {})


@pytest.mark.parametrize("severity", ["quarantine", pytest.param("warn", marks=pytest.mark.long)])
def test_an_expectation_that_raised_fails_the_run_whatever_its_severity(
    spark: SparkSession, tmp_path: Path, severity: str
) -> None:
    odd = expecting("expect_column_values_to_be_between", column="token", min_value=1)
    (one,) = odd.expectations
    report = report_of(replace(odd, expectations=[{**one, "severity": severity, "at_most": 4}]), spark, tmp_path)
    assert not report.success
    assert [(check.severity, check.success) for check in report.checks[-1:]] == [("fail", False)]
    assert report.quarantine is None


@pytest.mark.long
def test_the_keys_apart_are_those_that_great_expectations_counts(spark: SparkSession, tmp_path: Path) -> None:
    held = [
        {
            "type": kind,
            "kwargs": {k: v for k, v in kwargs.items() if k != "mostly"},
            "severity": "quarantine",
            "at_most": 9,
        }
        for kind, kwargs in CALLS.items()
        if is_of_rows(expectation_class(kind, ""))
    ]
    for ignored in ("both_values_are_missing", "either_value_is_missing", "neither"):
        kwargs = {"column_A": "occurrences", "column_B": "files", "or_equal": True, "ignore_row_if": ignored}
        held.append({**held[0], "type": "expect_column_pair_values_a_to_be_greater_than_b", "kwargs": kwargs})
    for ignored in ("all_values_are_missing", "any_value_is_missing", "never"):
        kwargs = {"column_list": ["occurrences", "files"], "sum_total": 79, "ignore_row_if": ignored}
        held.append({**held[0], "type": "expect_multicolumn_sum_to_equal", "kwargs": kwargs})
    bound = {"column": "share", "min_value": 0, "max_value": 1}
    held.append({**held[0], "type": "expect_column_values_to_be_between", "kwargs": bound})
    rows = [(*row, share) for row, share in zip(BAD, (0.5, float("nan"), None, 2.0, 1.0), strict=True)]
    scene = Scene(
        rows=rows, expectations=held, files=1, schema="token string, occurrences bigint, files bigint, share double",
        aggregates={name: {"function": "max", "column": "file"} for name in ("occurrences", "files", "share")},
    )  # fmt: skip
    report = report_of(scene, spark, tmp_path)
    (balance,) = [check for check in report.checks if check.expectation == "keys_balance"]
    assert balance.success, balance.sentence
    assert len([check for check in report.checks[-len(held) :] if check.verdict == "quarantined"]) > 15
    assert report.success


@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta"])
def test_an_input_that_is_not_as_expected_fails_before_any_of_it_is_read(
    tmp_path: Path, command_here: Command, kind: str
) -> None:
    shop = Shop(tmp_path, command_here)  # no Spark is needed
    given: dict[str, Any] = {"path": "in/{date}"}
    if kind != "parquet":
        rows = pq.read_table(tmp_path / "in" / FIRST / "rows.parquet")
        if kind == "iceberg":
            make_namespace(catalog := open_catalog("local", str(tmp_path)), ("raw",))
            catalog.create_table("raw.rows", rows.schema).append(rows)
        else:
            write_deltalake(str(tmp_path / "raw"), rows)
        given = {"format": kind, "path": {"iceberg": "local.raw.rows", "delta": "raw"}[kind]}
    nulls = {**NOT_NULL, "kwargs": {"column": "v", "mostly": 0.8}}
    shop.spec(input=given, of_input=[nulls, {"type": "expect_column_to_exist", "kwargs": {"column": "w"}}])
    for command in ("check", "run"):
        told = shop.tell(command, FIRST)
        assert told.returncode == 3
        assert "1 of 2 checks of the input failed: w: to exist" in told.stderr, told.stderr
    assert not list(tmp_path.glob("runs/*/*/plans"))
    shop.spec(input=given, of_input=[{**nulls, "kwargs": {"column": "v"}, "severity": "warn"}])
    told = shop.tell("check", FIRST)
    assert (told.returncode, "warned: v: values not null" in told.stdout) == (0, True), told
    assert "2 of 10 rows are null (20.00%)" in told.stdout
    if kind == "parquet":
        shop.spec(of_input=[{**NOT_NULL, "kwargs": {"column": "_metadata.file_path"}}])
        told = shop.tell("check", FIRST)
        assert (told.returncode, "nulls are not counted" in told.stderr) == (3, True), told


#: How the rows of a day are written such that no footer counts their rows or nulls.
UNTOLD: dict[str, Callable[[pa.Table, str], object]] = {
    "orc": orc.write_table,
    "csv": csv.write_csv,
    "json": lambda rows, path: Path(path).write_text("\n".join(map(json.dumps, rows.to_pylist()))),
    "parquet": lambda rows, path: pq.write_table(rows, path, write_statistics=False),
}


@pytest.mark.parametrize(("kind", "window"), [*((kind, None) for kind in UNTOLD), ("csv", 2)])
def test_what_no_footer_tells_of_an_input_is_counted_before_anything_is_computed(
    tmp_path: Path, command_here: Command, kind: str, window: int | None
) -> None:
    shop = Shop(tmp_path, command_here)
    for day in NIGHTS:
        UNTOLD[kind](pq.read_table(file := tmp_path / "in" / day / "rows.parquet"), str(file.with_name(f"rows.{kind}")))
        if kind != "parquet":
            file.unlink()
    columns = {} if kind in {"parquet", "orc"} else {"columns": {"k": "string", "v": "bigint"}}
    given = {"path": "in/{date}", "format": kind, **columns}
    nulls = [] if window else [{**NOT_NULL, "kwargs": {"column": "v"}, "severity": "warn"}]
    rows: dict[str, Any] = {"type": BETWEEN, "kwargs": {"min_value": 10, "max_value": 10}}
    fields = {"input": given, **({"window": window} if window else {})}
    given_spec = shop.spec(of_input=[*nulls, rows], **fields)
    assert needs_session(load_spec(given_spec)) == (kind != "parquet"), "of the master that the caller asks for"
    for day in (FIRST, SECOND):  # of the second night of a window, the rows of the first are not counted
        told = shop.tell("check", day)
        assert told.returncode == 0, told
        assert ("2 of 10 rows are null (20.00%)" in told.stdout) == (day == FIRST and not window)
        assert shop.tell("run", day).returncode == 0
    assert shop.published(FIRST)["b"] == 20
    shop.spec(of_input=[{**rows, "kwargs": {"max_value": 9}}], **fields)
    told = shop.tell("run", THIRD)
    assert (told.returncode, "10 rows" in told.stderr, shop.day(THIRD).exists()) == (3, True, False), told


def test_to_what_spark_logs_of_a_refused_input_the_command_adds_one_sentence(
    tmp_path: Path, command_here: Command
) -> None:
    shop = Shop(tmp_path, command_here)
    (tmp_path / "in" / FIRST / "rows.json").write_text('{"k": "a", "v": 1.5}\n')
    given = {"path": "in/{date}/*.json", "format": "json", "columns": {"k": "string", "v": "bigint"}}
    shop.spec(input=given, of_input=[{**NOT_NULL, "kwargs": {"column": "v"}}])
    told = shop.tell("check", FIRST)
    assert (told.returncode, "skewless_cli" in told.stderr) == (2, False), told.stderr
    sentence = told.stderr.splitlines()[-1]
    assert "rows.json: expected records as the spec declares them, but got " in sentence
    assert "the value 1.5" in sentence


#: What a spec may not expect of an input: an expectation and other fields, and a part of the sentence.
NOT_OF_AN_INPUT: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "quarantine": ({**NOT_NULL, "severity": "quarantine", "at_most": 1}, {}, "an input has no keys to leave out yet"),
    "a mean": ({"type": "expect_column_mean_to_be_between"}, {}, "what is known before an input is read"),
    "other arguments": ({"type": BETWEEN, "kwargs": {"column": "v"}}, {}, "expected min_value, max_value, names as"),
    "nulls of a window": (NOT_NULL, {"window": 2}, "expected no window, as kept states do not know nulls"),
}


@pytest.mark.parametrize("name", NOT_OF_AN_INPUT)
def test_what_cannot_be_expected_of_an_input_is_refused_in_one_sentence(
    tmp_path: Path, command_here: Command, name: str
) -> None:
    expected, fields, sentence = NOT_OF_AN_INPUT[name]
    shop = Shop(tmp_path, command_here)
    shop.spec(of_input=[expected], **fields)
    told = shop.tell("check", FIRST)
    assert (told.returncode, len(told.stderr.splitlines())) == (2, 1), told.stderr
    assert sentence in told.stderr


#: What a spec may not say: changes of it, and a part of the sentence.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no threshold": ({"at_most": None}, "at_most with severity quarantine"),
    "two thresholds": ({"kwargs": {**BOUND["kwargs"], "mostly": 0.9}}, "at_most in place of mostly"),
    "a threshold of fail": ({"severity": "fail"}, "severity warn or quarantine with at_most, or mostly"),
    "nobody": ({"at_most": 0}, "a number of keys, at least 1, or a share between 0 and 1"),
    "no key": ({}, "keys of 1 columns in quality.accept"),
    "a mapping": ({}, "all, or a list of keys, each a text"),
    "half a key": ({"at_most": 1.5}, "a number of keys, at least 1, or a share between 0 and 1"),
    "of a statistic": (
        {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "total", "max_value": 1}},
        "an expectation of single rows",
    ),
}


@pytest.mark.parametrize("name", [*REFUSED, "a column of its own"])
def test_what_cannot_be_meant_is_refused_in_one_sentence(tmp_path: Path, command_here: Command, name: str) -> None:
    shop = Shop(tmp_path, command_here)  # no Spark is needed
    changes, sentence = REFUSED.get(name, ({}, ""))
    fields: dict[str, Any] = {}
    if name == "a column of its own":
        fields, sentence = (
            {"aggregates": {"total": "count", "quarantine_reason": "count"}},
            "a column of the quarantine",
        )
    shop.spec({**BOUND, **changes}, **fields)
    more = {"no key": ["--set", "quality.accept=[[a, b]]"], "a mapping": ["--set", "quality.accept={a: 1}"]}
    told = shop.tell("check", FIRST, *more.get(name, []))
    assert told.returncode == 2
    assert sentence in told.stderr
    assert len(told.stderr.splitlines()) == 1
