"""What an expectation does that does not hold: it fails the run, warns, or has keys published apart from all others."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from deploy import PROJECT
from skewless.run.directory import RunDirectory
from skewless.run.publication.places import turns_folder
from skewless.run.publication.records import manifest_of
from skewless.run.publication.release import begin_release, published_run
from skewless.run.summary import run_facts
from skewless_leases import Turns, open_store
from skewless_spark.quality.expectations import OF_ROWS, great_expectations
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
            "quality": {"expectations": [*expectations]}, "output": {"path": "out", "files": 2}, **fields,
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

    def held(self, day: str) -> dict[str, tuple[str, str]]:
        """Reason and value of each key in quarantine."""
        files = sorted((self.day(day) / "_quarantine").glob("part-*"))
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        return {row["k"]: (row["quarantine_reason"], row["quarantine_value"]) for row in rows}

    def run(self, day: str) -> RunDirectory:
        return published_run(self.day(day))


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path, command_here: Command) -> Shop:  # noqa: ARG001  # it has the session
    return Shop(tmp_path, command_here)


def test_each_severity_is_told_on_a_real_run_and_every_key_is_published_or_in_quarantine(shop: Shop) -> None:
    held = {**BOUND, "type": "expect_column_values_to_be_unique", "kwargs": {"column": "k"}, "severity": "fail"}
    del held["at_most"]
    shop.spec(BOUND, {**NOT_NULL, "severity": "warn"}, held)
    told = shop.tell("run", FIRST)
    assert told.returncode == 0, told.stderr
    assert "1 keys in quarantine, of 2 rows of the input" in told.stdout
    assert (
        "quarantined: total: values between, max_value=100 (1 of 4 values unexpected (25.00%); in pen: 900)"
        in told.stdout
    )
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
    assert len(warnings) == 3
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


@pytest.mark.parametrize("form", ["json", pytest.param("csv", marks=pytest.mark.long)])
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
    turns = Turns(open_store(turns_folder(first.job().output_path)))
    begun = begin_release(first, [("pen",)], turns, "")
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
    written = yaml.safe_load(Path(shop.spec()).read_text()) | yaml.safe_load(page.split("```")[1].removeprefix("yaml"))
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


@pytest.mark.parametrize("name", [*REFUSED, "a table", "a column of its own"])
def test_what_cannot_be_meant_is_refused_in_one_sentence(tmp_path: Path, command_here: Command, name: str) -> None:
    shop = Shop(tmp_path, command_here)  # no Spark is needed
    changes, sentence = REFUSED.get(name, ({}, ""))
    fields: dict[str, Any] = {}
    if name == "a table":
        fields, sentence = (
            {"output": {"path": "out", "format": "delta"}},
            "severity fail or warn where the output is a table",
        )
    elif name == "a column of its own":
        fields, sentence = (
            {"aggregates": {"total": "count", "quarantine_reason": "count"}},
            "a column of the quarantine",
        )
    shop.spec({**BOUND, **changes}, **fields)
    told = shop.tell("check", FIRST)
    assert told.returncode == 2
    assert sentence in told.stderr
    assert len(told.stderr.splitlines()) == 1
