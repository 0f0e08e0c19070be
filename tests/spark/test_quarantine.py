"""What an expectation does that does not hold: it fails the run, warns, or has keys published apart from all others."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake
from pyarrow import csv, orc
from pyspark.sql import SparkSession

from benchmarks.simulation import simulated_job
from deploy import PROJECT
from skewless.history.input_checks import BETWEEN, USUAL
from skewless.run.directory import RunDirectory
from skewless.run.publication.records import manifest_of, record_of
from skewless.run.publication.release import begin_release
from skewless.run.summary import run_facts
from skewless.spec.part import Part
from skewless.spec.reading import load_spec
from skewless_lake.catalogs import open_catalog
from skewless_lake.formats import table_format
from skewless_lake.iceberg.tables import make_namespace
from skewless_lake.publication import next_turn, published_run
from skewless_lake.staged import OutputPart
from skewless_spark.prepare.freezing import needs_session
from skewless_spark.quality.expectations import OF_ROWS, great_expectations
from skewless_spark.quality.last_good import parts_before
from skewless_spark.sources.locations import output_location
from tests.spark.scenario import Told
from tests.spark.test_quality import BAD, CALLS, Scene, expecting, report_of

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
            "quality": {
                "expectations": [*expectations], "input": fields.pop("of_input", []),
                "in_place": fields.pop("in_place", "none"),
            },
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
        """What pyarrow reads of the folder of a day."""
        found = ds.dataset(self.day(day), format="parquet").to_table()
        return dict(zip(found["k"].to_pylist(), found["total"].to_pylist(), strict=True))

    def origins(self, day: str) -> dict[str, str]:
        """Of which earlier part the row of a key is, of keys with such a row."""
        rows = ds.dataset(self.day(day), format="parquet").to_table().to_pylist()
        return {row["k"]: row["row_of"] for row in rows if row["row_of"] is not None}

    def held(self, day: str) -> dict[str, tuple[str, str]]:
        """Reason and value of each key in quarantine."""
        files = sorted((self.day(day) / "_quarantine").glob("part-*"))
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        return {row["k"]: (row["quarantine_reason"], row["quarantine_value"]) for row in rows}

    def run(self, day: str) -> RunDirectory:
        return published_run(self.part(day))[0]

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

    def origins(self, day: str) -> dict[str, str]:
        return {row["k"]: row["row_of"] for row in self._rows(day) if row["row_of"] is not None}

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
    of_input = [{**NOT_NULL, "kwargs": {"column": "v"}, "severity": "warn"}, {"type": USUAL}]
    shop.spec(BOUND, {**NOT_NULL, "severity": "warn"}, held, of_input=of_input)
    told = shop.tell("run", FIRST)
    assert told.returncode == 0, told.stderr
    assert "1 keys in quarantine, of 2 rows of the input" in told.stdout
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
    assert report.checks[1].found == "10 rows; 0 nights are too few to say what is usual"
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


def test_released_keys_are_published_once_more_whatever_was_killed(shop: Shop) -> None:
    shop.spec({**BOUND, "kwargs": {"column": "total", "max_value": 25}})
    shop.tell("run", FIRST)
    first = shop.run(FIRST)
    assert set(shop.held(FIRST)) == {"pen", "c"}
    told = shop.tell("release", FIRST, "x")
    assert told.returncode == 2
    assert "expected keys in quarantine in" in told.stderr
    told = shop.tell("release", FIRST, "a")
    assert (told.returncode, "nothing was published" in told.stdout) == (0, True), "it is published already"
    # Killed when the run of the release had begun, and had a turn: it is the same run that goes on.
    begun = begin_release(first, [("pen",)], next_turn, "")
    told = shop.tell("release", FIRST, "pen")
    assert "1 keys were released, 1 stay in quarantine" in told.stdout
    assert str(shop.run(FIRST)) == str(begun)
    assert shop.published(FIRST) == {"a": 10, "b": 20, "n": None, "pen": 900}
    assert set(shop.held(FIRST)) == {"c"}
    before = manifest_of(shop.day(FIRST))
    assert shop.tell("release", FIRST, "pen").returncode == 0
    assert manifest_of(shop.day(FIRST)) == before, "it was published once"
    told = shop.tell("release", FIRST, '["c"]')
    assert "1 keys were released, 0 stay in quarantine" in told.stdout
    assert shop.published(FIRST) == {"a": 10, "b": 20, "n": None, "pen": 900, "c": 30}
    assert not (shop.day(FIRST) / "_quarantine").exists()
    assert "no keys are in quarantine" in shop.tell("release", FIRST).stdout
    last = shop.run(FIRST).quality()
    assert last is not None
    assert last.quarantine is not None
    assert (last.quarantine.keys, last.quarantine.released) == (0, 2)
    # What was released then is of an older turn than a run of today, which has its own keys in quarantine.
    shop.tell("run", FIRST)
    assert set(shop.held(FIRST)) == {"pen", "c"}


def test_a_table_has_the_keys_that_hold_and_the_one_beside_it_all_others_until_they_are_released(
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
    told = table.tell("release", FIRST, "pen")
    assert "1 keys were released, 1 stay in quarantine" in told.stdout, told.stderr
    assert (table.published(FIRST), set(table.held(FIRST))) == ({"a": 10, "b": 20, "n": None, "pen": 900}, {"c"})
    assert "none of these keys is in quarantine" in table.tell("release", FIRST, "pen").stdout
    table.tell("rollback", FIRST)
    assert (str(table.run(FIRST)), set(table.held(FIRST))) == (str(first), {"pen", "c"})
    # The same key of the same run once more: what was released before the rollback is not shown any more.
    assert "1 keys were released" in table.tell("release", FIRST, "pen").stdout
    assert set(table.held(FIRST)) == {"c"}
    assert "1 keys were released, 0 stay" in table.tell("release", FIRST).stdout
    assert (len(table.published(FIRST)), table.held(FIRST)) == (5, {})


@pytest.mark.long
def test_a_key_of_a_table_that_fails_for_a_week_is_left_out_of_each_day_and_no_window_lacks_its_rows(
    table: TableShop,
) -> None:
    days = [f"2026-11-{day}" for day in range(20, 27)]
    for day in days[len(NIGHTS) :]:
        shutil.copytree(table.folder / "in" / SECOND, table.folder / "in" / day)
    table.spec(BOUND, window=2)
    for day in days:
        assert table.tell("run", day).returncode == 0
    totals = [900, 1700, 840, 840, 1600, 1600, 1600]
    assert [table.held(day) for day in days] == [
        {"pen": ("expect_column_values_to_be_between(total, max_value=100)", str(total))} for total in totals
    ]
    assert [set(table.published(day)) for day in days] == [{"a", "b", "n", "c"}] * 7
    file = table.folder / "in" / THIRD / "rows.parquet"
    rows = pq.read_table(file)
    pq.write_table(rows.filter(pc.not_equal(rows["k"], "pen")), file)
    table.spec({**BOUND, "kwargs": {"column": "total", "max_value": 2000}}, window=2)
    assert table.tell("run", THIRD).returncode == 0
    assert (table.published(THIRD)["pen"], table.held(THIRD)) == (800, {}), "its day has none any more"
    if isinstance(beside := table_format((part := table.part(THIRD).quarantine).output).find_table(part), DeltaTable):
        beside.alter.add_constraint({"few": "n < 100"})
        told, refused = table.tell("run", THIRD), "no rules of its rows but those that the result was held to"
        assert (told.returncode, refused in told.stderr) == (2, True), told


@pytest.mark.parametrize(
    "kind", ["parquet", pytest.param("delta", marks=pytest.mark.long), pytest.param("iceberg", marks=pytest.mark.long)]
)
def test_the_last_good_row_of_a_key_takes_its_place_until_it_is_released(
    kind: str, shop: Shop, command_here: Command
) -> None:
    (shop.folder / "of").mkdir()
    if kind != "parquet":
        shop = TableShop(kind, shop.folder / "of", command_here)
    days = [f"2026-11-{day}" for day in range(22, 28)]
    for day, of in zip(days[1:], (FIRST, SECOND, SECOND, FIRST, SECOND), strict=True):
        shutil.copytree(shop.folder / "in" / of, shop.folder / "in" / day)
    without = shop.folder / "in" / days[1] / "rows.parquet"
    rows = pq.read_table(without)
    pq.write_table(rows.filter(pc.not_equal(rows["k"], "pen")), without)
    new = pa.table({"k": ["new"], "v": pa.array([500], "int64")})
    pq.write_table(new, shop.folder / "in" / days[2] / "more.parquet")
    shop.spec({**BOUND, "at_most": 3}, {**NOT_NULL, "severity": "quarantine", "at_most": 1}, in_place="last")
    told = shop.tell("run", days[0])
    assert told.returncode == 0, told.stderr
    assert (shop.published(days[0])["pen"], shop.origins(days[0])) == (40, {})
    shop.tell("run", days[1])
    assert (shop.origins(days[1]), shop.published(days[1])["n"]) == ({"n": days[0]}, 5), "its own is null"
    told = shop.tell("run", days[2])
    assert "2 keys in quarantine, of 3 rows of the input; an earlier row is in the place of 1" in told.stdout
    assert shop.published(days[2]) == {"a": 10, "b": 20, "n": 5, "c": 30, "pen": 40}, "a new key has no earlier row"
    assert shop.origins(days[2]) == {"pen": days[0]}, "the day before lacks it"
    record, report = record_of(shop.run(days[2])), shop.run(days[2]).quality()
    assert record is not None
    assert report is not None
    assert (record.keys, record.quarantined, report.keys, report.published_keys) == (5, 2, 6, 5)
    shop.tell("run", days[3])
    assert shop.origins(days[3]) == {"pen": days[0]}, "the row of the day before is not its own"
    assert "1 keys were released" in shop.tell("release", days[3], "pen").stdout
    assert (shop.published(days[3])["pen"], shop.origins(days[3])) == (800, {})
    shop.tell("run", days[4])
    assert shop.origins(days[4]) == {"pen": days[3], "n": days[3]}, "one that was released is good"
    assert (shop.published(days[4])["pen"], set(shop.held(days[4]))) == (800, {"pen", "n"})
    assert "1 keys were released" in shop.tell("release", days[4], "n").stdout
    assert (shop.origins(days[4]), shop.published(days[4])["n"]) == ({"pen": days[3]}, None)
    assert "1 keys were released, 0 stay" in shop.tell("release", days[4]).stdout
    assert (shop.origins(days[4]), shop.published(days[4])["pen"], shop.held(days[4])) == ({}, 900, {})
    shutil.rmtree(str(shop.run(days[4])))
    shop.tell("run", days[5])
    assert shop.origins(days[5]) == {"pen": days[3]}, "the run of the day before was pruned"
    if kind == "parquet":
        changed = {"n": "count", "total": {"function": "sum", "column": "v"}, "rows": "count"}
        shop.spec({**BOUND, "at_most": 3}, in_place="last", aggregates=changed)
        assert shop.tell("run", days[5]).returncode == 0
        assert ("pen" in shop.published(days[5]), shop.origins(days[5])) == (False, {}), "all others lack a column"


def test_seven_parts_are_searched_hours_too_in_a_night_that_the_clock_is_set_back() -> None:
    job = simulated_job([1]).model_copy(update={"date": dt.date(2026, 10, 25)})
    assert [part.name for part in parts_before(job)] == [f"2026-10-{day}" for day in range(24, 17, -1)]
    schedule = {"part": "hour", "timezone": "Europe/Zurich"}
    spec = job.spec.model_copy(update={"schedule": job.spec.schedule.model_copy(update=schedule)})
    names = [part.name for part in parts_before(job.model_copy(update={"hour": "03", "spec": spec}))]
    assert names == [
        *(f"2026-10-25T{hour}" for hour in ("02b", "02", "01", "00")),
        *(f"2026-10-24T{h}" for h in (23, 22, 21)),
    ]


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
    """For each expectation of rows, with nulls, NaN, and rows that it does not consider."""
    held = [
        {
            "type": kind,
            "kwargs": {k: v for k, v in kwargs.items() if k != "mostly"},
            "severity": "quarantine",
            "at_most": 9,
        }
        for kind, kwargs in CALLS.items()
        if kind in OF_ROWS
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


def test_expectations_of_rows_are_those_that_great_expectations_maps() -> None:
    gx = great_expectations()
    kinds = gx.expectations.expectation
    maps = (kinds.ColumnMapExpectation, kinds.ColumnPairMapExpectation, kinds.MulticolumnMapExpectation)
    of = {kind for kind in CALLS if issubclass(gx.expectations.registry.get_expectation_impl(kind), maps)}
    assert of - OF_ROWS == {"expect_column_values_to_be_of_type", "expect_column_values_to_be_in_type_list"}
    assert of >= OF_ROWS


def test_the_tutorial_of_the_page_does_what_it_says(shop: Shop) -> None:
    told = (PROJECT / "docs/operate.md").read_text().partition("\n## When an expectation does not hold\n")[2]
    page = told.partition("\n## ")[0]
    shop.spec()
    of_input, of_result = [yaml.safe_load(block.removeprefix("yaml"))["quality"] for block in page.split("```")[1:4:2]]
    written = yaml.safe_load(Path(shop.spec()).read_text()) | {"quality": of_input | of_result}
    (shop.folder / "spec.yaml").write_text(yaml.safe_dump(written, sort_keys=False))
    for pattern in re.findall(r"^out/\S+", page, re.MULTILINE):
        assert not list(shop.folder.glob(pattern))
    commands = re.findall(
        r"skewless (run|release) shop\.yaml --date (2026-11-20)(?: (\w+))?$", page.replace("`", "\n"), re.MULTILINE
    )
    assert [(name, key) for name, _, key in commands] == [("run", ""), ("release", "pen"), ("release", "")]
    for name, day, key in commands:
        assert shop.tell(name, day, *filter(None, [key])).returncode == 0
        assert ("pen" in shop.published(day)) == (name == "release")
        assert all(list(shop.folder.glob(path)) for path in re.findall(r"^out/\S+", page, re.MULTILINE)) == (
            name == "run"
        )


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
    assert "line 1: expected a bigint in field 'v', but got 1.5" in told.stderr.splitlines()[-1]


#: What a spec may not expect of an input: an expectation and other fields, and a part of the sentence.
NOT_OF_AN_INPUT: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "quarantine": ({**NOT_NULL, "severity": "quarantine", "at_most": 1}, {}, "an input has no keys to leave out yet"),
    "a mean": ({"type": "expect_column_mean_to_be_between"}, {}, "what is known before an input is read"),
    "other arguments": ({"type": USUAL, "kwargs": {"min_value": 1}}, {}, "expected no arguments, names as texts"),
    "nulls of a window": (NOT_NULL, {"window": 2}, "expected no window, as kept states do not know nulls"),
    "what a map makes": ({"type": USUAL}, {"map": {"select": ["k", "v"]}}, "earlier nights know the rows behind it"),
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
    told = shop.tell("check", FIRST)
    assert told.returncode == 2
    assert sentence in told.stderr
    assert len(told.stderr.splitlines()) == 1
