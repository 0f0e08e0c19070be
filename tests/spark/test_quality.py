import datetime as dt
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from html import escape
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from skewless.documents.job import Algebra, Job, Unit
from skewless.documents.quality import QualityReport, Quarantine
from skewless.documents.stage_report import Histogram, StageReport
from skewless.errors import RunDirectoryError, SpecError
from skewless.run.directory import RESULT_STEP, RunDirectory, stage_step
from skewless.spec.reading import load_spec
from skewless.spec.spec import JobSpec
from skewless_spark.quality.expectations import (
    ALLOWED,
    REFUSED,
    check_expectations,
    expectation_class,
    great_expectations,
)
from skewless_spark.quality.validate import validate
from skewless_spark.quality.verdict import Verdict
from tests.tiers import mostly_long

Row = tuple[str | None, int | None, int | None]

GOOD: list[Row] = [("self", 70, 9), ("the", 20, 4), ("", 6, 1), (None, 4, 2)]
PAYLOAD = "<img src=x onerror=alert(1)>"


@dataclass(frozen=True)
class Scene:
    """A run that has merged, whose documents may lie."""

    rows: Sequence[tuple[Any, ...]] = tuple(GOOD)
    schema: str = "token string, occurrences bigint, files bigint"
    key: tuple[str, ...] = ("token",)
    expectations: Sequence[dict[str, Any]] = ()
    counted_rows: int = 100
    counted_keys: int | None = None
    processed: tuple[int, int] = (35, 65)
    admitted: tuple[int, int] = (40, 60)
    backlog: tuple[int, int] = (5, 0)
    files: int = 2
    accept: tuple[tuple[str | None, ...], ...] = ()
    show: tuple[str, ...] = ()
    aggregates: dict[str, Any] = field(
        default_factory=lambda: {
            "occurrences": "count",
            "files": {"function": "approx_count_distinct", "column": "file"},
        }
    )

    def spec(self) -> JobSpec:
        return JobSpec.model_validate(self.raw())

    def raw(self) -> dict[str, Any]:
        return {
            "name": "tokens",
            "input": {"path": "in"},
            "key": self.key,
            "aggregates": self.aggregates,
            "quality": {"expectations": list(self.expectations), "accept": self.accept, "show": self.show},
            "output": {"path": "out"},
        }

    def lay_out(self, spark: SparkSession, folder: Path) -> RunDirectory:
        """Write the documents and the files of the run, as prepare, the stages and merge would."""
        run = RunDirectory(str(folder))
        run.write_once("job.json", self.job())
        for stage in range(2):
            attempt = run.new_attempt(stage_step(stage))
            attempt.write("report.json", self.report(stage))
            attempt.commit([], {})
        self.merge(spark, run)
        return run

    def job(self) -> Job:
        empty = not self.counted_rows and not self.rows
        return Job(
            spec=self.spec(),
            date=dt.date(2026, 11, 20),
            input_path="/in",
            output_path="/out",
            units=tuple(
                Unit(path=f"/in/{n}.parquet", rows=0 if empty else rows, size_bytes=1)
                for n, rows in enumerate((40, 60))
            ),
            waves=((0,), (1,)),
            key_types=dict.fromkeys(self.key, "string"),
            column_types={"file": "string"},
            algebra=dict.fromkeys(self.aggregates, Algebra(mergeable=True, ordered=False)),
        )

    def report(self, stage: int) -> StageReport:
        nothing = (0,) * 16
        return StageReport(
            stage=stage,
            waves=(stage, stage + 1),
            admitted_rows=self.admitted[stage],
            backlog_in_rows=self.backlog[0] if stage else 0,
            forwarded_rows=0,
            processed_rows=self.processed[stage],
            backlog_rows=self.backlog[stage],
            stage_seconds=1.0,
            tasks=(),
            histogram=Histogram(
                seen_rows=0, seen_null_rows=0, backlog_null_rows=0, head={}, seen_tail=nothing, backlog_tail=nothing
            ),
        )

    def merge(self, spark: SparkSession, run: RunDirectory) -> None:
        attempt = run.new_attempt(RESULT_STEP)
        frame = spark.createDataFrame(list(self.rows), self.schema).repartition(self.files)
        frame.write.parquet(attempt.path("kind=result"))
        files = [attempt.described("result", path, 0) for path in attempt.listed("kind=result")]
        keys = len(self.rows) if self.counted_keys is None else self.counted_keys
        attempt.commit(files, {"rows": self.counted_rows, "keys": keys})


def report_of(scene: Scene, spark: SparkSession, folder: Path) -> QualityReport:
    return validate(spark, scene.lay_out(spark, folder / "run"))


def failures(report: QualityReport) -> list[str]:
    return [check.sentence for check in report.checks if not check.success]


def expecting(kind: str, **kwargs: Any) -> Scene:
    return Scene(expectations=[{"type": kind, "kwargs": kwargs}])


def empty(**changes: Any) -> Scene:
    scene = Scene(rows=(), counted_rows=0, processed=(0, 0), admitted=(0, 0), backlog=(0, 0), files=1)
    return replace(scene, **changes)


def test_a_good_result_passes_and_the_report_says_so(spark: SparkSession, tmp_path: Path) -> None:
    report = report_of(Scene(), spark, tmp_path)
    assert failures(report) == []
    assert report.success
    assert report.keys == 4
    assert report.ledger.balanced
    sentences = [check.sentence for check in report.checks]
    assert "expect_column_sum_to_be_between(occurrences, min_value=100, max_value=100): observed 100" in sentences
    assert "each_key_once(token): holds" in sentences
    assert {check.subject for check in report.checks} == {"ledger", "result"}


def test_a_result_that_has_not_committed_is_not_validated(spark: SparkSession, tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path / "run"))
    run.write_once("job.json", Scene().job())
    with pytest.raises(RunDirectoryError, match="run the step before"):
        validate(spark, run)


#: Two key columns with odd names.
TWO_KEYS = Scene(key=("a.b", "key 2"), schema="`a.b` string, `key 2` string, occurrences bigint, files bigint")
_ONCE = "each_key_once"
#: Results, and what is told of them.
TOLD: dict[str, tuple[Scene, list[str]]] = {
    "a doubled key": (
        Scene(rows=[("self", 35, 9), ("self", 35, 9), ("the", 30, 4)]),
        [f"{_ONCE}(token): 1 keys occur more than once"],
    ),
    "a doubled null key": (
        Scene(rows=[("self", 70, 9), (None, 20, 4), (None, 10, 1)]), [f"{_ONCE}(token): 1 keys occur more than once"],
    ),
    "a null key and an empty one": (Scene(rows=[(None, 60, 1), ("", 40, 1)]), []),
    "two columns that are unique together": (
        replace(TWO_KEYS, rows=[("x", None, 40, 1), (None, "x", 30, 1), (None, None, 20, 1), ("x", "x", 10, 1)]), [],
    ),
    "two columns that are not": (
        replace(TWO_KEYS, rows=[("x", None, 40, 1), ("x", None, 30, 1), (None, None, 20, 1), (None, None, 10, 1)]),
        [f"{_ONCE}(a.b, key 2): 2 keys occur more than once"],
    ),
    "a count that does not add up": (
        Scene(rows=[("self", 70, 9), ("the", 29, 4)]),
        ["expect_column_sum_to_be_between(occurrences, min_value=100, max_value=100): observed 99"],
    ),
    "a lost file": (Scene(counted_keys=5), ["expect_table_row_count_to_equal(value=5): observed 4"]),
    "null counts": (
        Scene(rows=[("self", 100, 9), ("the", None, None)]),
        [
            f"expect_column_values_to_not_be_null({name}): 1 of 2 values unexpected (50.00%), for example null"
            for name in ("occurrences", "files")
        ],
    ),
    "a statistic": (
        expecting("expect_column_mean_to_be_between", column="occurrences", max_value=5),
        ["expect_column_mean_to_be_between(occurrences, max_value=5): observed 25"],
    ),
    "no rows where none are demanded": (
        empty(expectations=[
            {"type": f"expect_column_{what}_to_be_between", "kwargs": {"column": "occurrences", "min_value": 1}}
            for what in ("values", "mean")
        ]),
        [],
    ),
    "no rows where some are demanded": (
        empty(expectations=[{"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}}]),
        ["expect_table_row_count_to_be_between(min_value=1): observed 0"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", mostly_long(TOLD, "a doubled key"))
def test_what_is_wrong_with_a_result_is_told_and_nothing_else(spark: SparkSession, tmp_path: Path, name: str) -> None:
    scene, told = TOLD[name]
    report = report_of(scene, spark, tmp_path)
    assert failures(report) == told
    assert report.success == (not told)


def test_what_a_check_requires_ends_where_its_arguments_end() -> None:
    regex = expectation_class("expect_column_values_to_match_regex", "")(column="token", regex="x): y")
    result = {"unexpected_count": 1, "element_count": 1, "partial_unexpected_list": ["key): a"]}
    check = Verdict(regex, {"success": False, "result": result}).check("result")
    unexpected = "1 of 1 values unexpected (100.00%), for example 'key): a'"
    assert (check.required, check.found) == ("regex='x): y'", unexpected)


def test_lost_rows_fail_the_ledger(spark: SparkSession, tmp_path: Path) -> None:
    report = report_of(Scene(counted_rows=99), spark, tmp_path)
    assert not report.success
    assert not report.ledger.balanced
    (check,) = [check for check in report.checks if check.subject == "ledger"]
    assert "the states account for 99 rows of the 100 processed" in check.sentence
    assert check.fails


def test_a_failing_expectation_of_the_spec_says_name_column_and_numbers(spark: SparkSession, tmp_path: Path) -> None:
    scene = expecting("expect_column_values_to_be_between", column="occurrences", min_value=10)
    report = report_of(scene, spark, tmp_path)
    [sentence] = failures(report)
    call, _, numbers = sentence.partition(": ")
    assert call == "expect_column_values_to_be_between(occurrences, min_value=10)"
    assert numbers == "2 of 4 values unexpected (50.00%), for example 4, 6"
    check = next(check for check in report.checks if not check.success)
    assert [(one.key, one.found) for one in check.keys] == [("''", "6"), ("null", "4")], "the largest value first"
    assert check.found_in_keys == "2 of 4 values unexpected (50.00%); in '': 6; null: 4"
    assert (check.subject, check.column, check.observed) == ("result", "occurrences", "")


def test_whole_numbers_of_a_bound_are_compared_exactly(spark: SparkSession, tmp_path: Path) -> None:
    """Floats have 53 bits: below 2**53 no other value is rounded to a bound, and others are refused."""
    limit = 2**53 - 1
    bounds: dict[str, dict[str, Any]] = {
        "expect_column_max_to_be_between": {"max_value": limit},
        "expect_column_min_to_be_between": {"min_value": limit, "max_value": limit},
        "expect_column_values_to_be_between": {"max_value": limit},
        "expect_column_values_to_be_in_set": {"value_set": [limit, 2**60]},
        "expect_column_values_to_not_be_in_set": {"value_set": [limit, 2**60]},
    }
    scene = Scene(
        rows=[("a", limit + 2, Decimal(limit + 2))],
        schema="token string, big bigint, wide decimal(20,0)",
        aggregates={name: {"function": "max", "column": "file"} for name in ("big", "wide")},
        expectations=[
            {"type": kind, "kwargs": {"column": column, **given}}
            for column in ("big", "wide")
            for kind, given in bounds.items()
        ],
        files=1,
    )
    own = report_of(scene, spark, tmp_path).checks[-2 * len(bounds) :]
    assert [check.success for check in own] == [False, False, False, False, True] * 2


ODD = ["a\nb", "nul\0inside", "quote\"'", "k" * 10_000, "Zürich 雪 🙂", "$column ${x}", "{{ 7*7 }}", PAYLOAD]


@pytest.mark.long
def test_odd_keys_are_escaped_and_shortened_in_sentences(spark: SparkSession, tmp_path: Path) -> None:
    scene = Scene(
        rows=[(key, 1, 1) for key in ODD],
        counted_rows=len(ODD),
        expectations=[
            {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "token", "value_set": ["other"]}}
        ],
    )
    report = report_of(scene, spark, tmp_path)
    sentence = next(line for line in failures(report) if "in_set" in line)
    assert "8 of 8 values unexpected (100.00%), for example " in sentence
    examples = sentence.split("for example ")[1]
    assert "\n" not in examples
    assert "\0" not in examples
    assert len(examples) <= 3 * 40 + 4
    (check,) = (one for one in report.checks if "in_set" in one.sentence)
    assert len(check.keys) == len(ODD), "at most ten"
    assert all(one.key.isprintable() and len(one.key) <= 80 and not one.found for one in check.keys)


#: A call that cannot be meant: the expectation, its kwargs, and a part of the sentence.
UNMEANT: dict[str, tuple[str, dict[str, Any], str]] = {
    "typo": ("expect_column_values_to_be_betwen", {}, "did you mean 'expect_column_values_to_be_between'"),
    "query": ("expect_query_results_to_match_comparison", {}, "runs SQL of its own"),
    "other table": ("expect_table_row_count_to_equal_other_table", {}, "reads another table"),
    "driver": ("expect_column_distinct_values_to_equal_set", {}, "brings every distinct value to the driver"),
    "not on spark": ("expect_column_values_to_match_like_pattern", {}, "has for Spark"),
    "unknown kwarg": ("expect_column_values_to_not_be_null", {"colum": "files"}, "did you mean 'column'"),
    "missing kwarg": ("expect_column_values_to_not_be_null", {}, "kwargs.column: expected this kwarg"),
    "unknown column": ("expect_column_values_to_not_be_null", {"column": "filez"}, "did you mean 'files'"),
    "column list": (
        "expect_compound_columns_to_be_unique",
        {"column_list": ["token", "filez"]},
        "did you mean 'files'",
    ),
    "wrong type": (
        "expect_column_values_to_be_between",
        {"column": "files", "min_value": "many"},
        "a number or a date",
    ),
    "parameter": (
        "expect_column_values_to_be_between",
        {"column": "files", "min_value": {"$PARAMETER": "x"}},
        "a mapping",
    ),
    "neither bound": (
        "expect_column_values_to_be_between",
        {"column": "files"},
        "min_value and max_value cannot both be None",
    ),
    "silently cut": ("expect_table_row_count_to_equal", {"value": 1.5}, "but got 1.5, which is 1 to it"),
    "beyond floats": (
        "expect_column_max_to_be_between",
        {"column": "files", "max_value": 2**53},
        "expected a value that Great Expectations takes as it is",
    ),
    "no bool": (
        "expect_column_max_to_be_between",
        {"column": "files", "max_value": 1, "strict_max": "no"},
        "but got 'no', which is False to it",
    ),
    "sql": (
        "expect_column_values_to_not_be_null",
        {"column": "files", "row_condition": "1 = 1"},
        "unknown 'row_condition'",
    ),
    "quantiles": (
        "expect_column_quantile_values_to_be_between",
        {"column": "files", "quantile_ranges": {"quantiles": [0.5]}},
        "two lists of one length",
    ),
}


@pytest.mark.parametrize("call", UNMEANT)
def test_an_expectation_that_cannot_be_meant_is_refused_in_one_sentence(call: str) -> None:
    kind, kwargs, sentence = UNMEANT[call]
    with pytest.raises(SpecError, match=re.escape(sentence)) as caught:
        check_expectations(expecting(kind, **kwargs).spec(), "tokens.yaml")
    assert str(caught.value).startswith("tokens.yaml, field quality.expectations.0")
    assert "\n" not in str(caught.value)


def test_every_expectation_is_either_allowed_refused_or_not_for_spark() -> None:
    registry = great_expectations().expectations.registry
    known = set(registry.list_registered_expectation_implementations())
    assert known >= ALLOWED
    assert set(REFUSED) <= known
    assert not ALLOWED & set(REFUSED)


#: One call of each allowed expectation, on the columns of ``GOOD``.
CALLS: dict[str, dict[str, Any]] = {
    "expect_column_max_to_be_between": {"column": "files", "min_value": 9, "max_value": 9},
    "expect_column_mean_to_be_between": {"column": "files", "min_value": 4, "max_value": 4, "strict_max": False},
    "expect_column_median_to_be_between": {"column": "files", "min_value": 2, "max_value": 4},
    "expect_column_min_to_be_between": {"column": "files", "min_value": 1, "max_value": 1},
    "expect_column_pair_values_a_to_be_greater_than_b": {
        "column_A": "occurrences",
        "column_B": "files",
        "or_equal": True,
    },
    "expect_column_pair_values_to_be_equal": {"column_A": "occurrences", "column_B": "occurrences"},
    "expect_column_pair_values_to_be_in_set": {
        "column_A": "occurrences",
        "column_B": "files",
        "value_pairs_set": [[70, 9], [20, 4], [6, 1], [4, 2]],
    },
    "expect_column_proportion_of_non_null_values_to_be_between": {"column": "token", "min_value": 0.75},
    "expect_column_proportion_of_unique_values_to_be_between": {"column": "files", "min_value": 1},
    "expect_column_quantile_values_to_be_between": {
        "column": "files",
        "quantile_ranges": {"quantiles": [0, 1], "value_ranges": [[1, 1], [None, 9]]},
    },
    "expect_column_stdev_to_be_between": {"column": "files", "min_value": 1, "max_value": 9},
    "expect_column_sum_to_be_between": {"column": "files", "min_value": 16, "max_value": 16},
    "expect_column_to_exist": {"column": "files"},
    "expect_column_type_to_be": {"column": "files", "type_": "LongType"},
    "expect_column_unique_value_count_to_be_between": {"column": "files", "min_value": 4},
    "expect_column_value_lengths_to_be_between": {"column": "token", "max_value": 4},
    "expect_column_value_lengths_to_equal": {"column": "token", "value": 4, "mostly": 0.3},
    "expect_column_value_z_scores_to_be_less_than": {"column": "files", "threshold": 3, "double_sided": True},
    "expect_column_values_to_be_between": {"column": "files", "min_value": 1, "max_value": 9},
    "expect_column_values_to_be_in_set": {"column": "files", "value_set": [1, 2, 4, 9]},
    "expect_column_values_to_be_in_type_list": {"column": "files", "type_list": ["LongType", "IntegerType"]},
    "expect_column_values_to_be_json_parseable": {"column": "token", "mostly": 0},
    "expect_column_values_to_be_null": {"column": "token", "mostly": 0.25},
    "expect_column_values_to_be_of_type": {"column": "files", "type_": "LongType"},
    "expect_column_values_to_be_unique": {"column": "files"},
    "expect_column_values_to_match_regex": {"column": "token", "regex": "^[a-z]*$"},
    "expect_column_values_to_match_regex_list": {
        "column": "token",
        "regex_list": ["^[a-z]*$", "^$"],
        "match_on": "any",
    },
    "expect_column_values_to_match_strftime_format": {"column": "token", "strftime_format": "%Y", "mostly": 0},
    "expect_column_values_to_not_be_in_set": {"column": "files", "value_set": [3]},
    "expect_column_values_to_not_be_null": {"column": "files"},
    "expect_column_values_to_not_be_outliers": {"column": "files", "method": "iqr", "multiplier": 5},
    "expect_column_values_to_not_match_regex": {"column": "token", "regex": "[0-9]"},
    "expect_column_values_to_not_match_regex_list": {"column": "token", "regex_list": ["[0-9]", "x"]},
    "expect_compound_columns_to_be_unique": {
        "column_list": ["token", "files"],
        "ignore_row_if": "any_value_is_missing",
    },
    "expect_multicolumn_sum_to_equal": {"column_list": ["occurrences", "files"], "sum_total": 79, "mostly": 0.2},
    "expect_multicolumn_values_to_be_equal": {"column_list": ["files", "files"]},
    "expect_select_column_values_to_be_unique_within_record": {"column_list": ["occurrences", "files"]},
    "expect_table_column_count_to_be_between": {"min_value": 3, "max_value": 3},
    "expect_table_column_count_to_equal": {"value": 3},
    "expect_table_columns_to_match_ordered_list": {"column_list": ["token", "occurrences", "files"]},
    "expect_table_columns_to_match_set": {"column_set": ["files", "occurrences", "token"], "exact_match": True},
    "expect_table_row_count_to_be_between": {"min_value": 4, "max_value": 4},
    "expect_table_row_count_to_equal": {"value": 4},
}


@pytest.mark.long
def test_every_allowed_expectation_runs_on_spark_side_by_side(spark: SparkSession, tmp_path: Path) -> None:
    assert set(CALLS) == set(ALLOWED)
    scene = Scene(expectations=[{"type": kind, "kwargs": kwargs} for kind, kwargs in CALLS.items()])
    check_expectations(scene.spec(), "tokens.yaml")
    report = report_of(scene, spark, tmp_path)
    assert failures(report) == []
    assert len(report.checks) == len(CALLS) + 1 + 7


#: Of these rows, most of ``CALLS`` do not hold.
BAD: list[Row] = [("self", 70, 9), ("the", None, 9), ("x1", 6, None), (None, 24, 2), ("", 0, 30)]


def test_a_spec_without_expectations_is_checked_without_great_expectations() -> None:
    """Nor does a command that needs none import it, or pandas: a count of imports, as a time depends on the machine."""
    code = (
        "import sys, skewless_cli.running\nfrom skewless_spark.quality.expectations import check_expectations\n"
        "from skewless.spec.reading import parse_spec\n"
        "spec = parse_spec('name: a\\ninput: {path: in}\\nkey: k\\naggregates: {n: count}\\noutput: {path: out}')\n"
        "check_expectations(spec, 'here')\n"
        "print([name for name in ('great_expectations', 'pandas', 'airflow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


#: A suite as Great Expectations 1.x exports it.
SUITE = {
    "name": "tokens", "id": "76ff437b-1fa1-4f83-b9d0-17585f6bfd9c", "notes": None,
    "meta": {"great_expectations_version": "1.24.1"},
    "expectations": [
        {"type": "expect_column_values_to_be_between",
         "kwargs": {"column": "occurrences", "mostly": 0.9, "min_value": 10.0}, "meta": {"owner": "me"},
         "notes": "why", "id": "29f88916-ee0c-42ae-9ebb-5b095bb01f02", "description": "d", "severity": "warning"},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "files"}, "meta": {},
         "id": "ddec84a1-62db-419a-bc8e-6694925eec49", "severity": "critical"},
        {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "files", "value_set": [1]},
         "severity": "info", "rendered_content": None},
    ],
}  # fmt: skip


def test_a_suite_of_great_expectations_is_read_beside_the_spec_and_judged_as_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "suite.json").write_text(json.dumps(SUITE))
    raw = Scene().raw()
    own = {"type": "expect_column_to_exist", "kwargs": {"column": "token"}}
    raw["quality"] = {"suite": "suite.json", "expectations": [own], "show": ["occurrences", "token"]}
    (tmp_path / "spec.yaml").write_text(json.dumps(raw))
    spec = load_spec(tmp_path / "spec.yaml")
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec, "what is frozen needs no file"
    assert [one.severity for one in spec.quality.expectations] == ["warn", "fail", "warn", "fail"]
    first = spec.quality.expectations[0]
    ident = "29f88916-ee0c-42ae-9ebb-5b095bb01f02"
    assert first.meta == {"owner": "me", "id": ident, "notes": "why", "description": "d"}
    scene = Scene(
        expectations=[one.model_dump(mode="json") for one in spec.quality.expectations], show=("occurrences", "token")
    )
    report = report_of(scene, spark, tmp_path)
    assert [check.verdict for check in report.checks[-4:]] == ["warned", "passed", "warned", "passed"]
    assert [str(key) for key in report.checks[-2].keys] == [
        "self: 9; occurrences=70", "the: 4; occurrences=20", "null: 2; occurrences=4"
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"expectations": {}}', '{"expectations": [5]}'])
def test_what_is_no_suite_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "suite.json").write_text(text)
    raw = Scene().raw() | {"quality": {"suite": "suite.json"}}
    (tmp_path / "spec.yaml").write_text(json.dumps(raw))
    with pytest.raises(SpecError, match="field quality") as caught:
        load_spec(tmp_path / "spec.yaml")
    assert "\n" not in str(caught.value)


OWN = """
from great_expectations.expectations.expectation import ColumnMapExpectation
from great_expectations.expectations.metrics import map_metric_provider as of
from great_expectations.execution_engine import SparkDFExecutionEngine


class ColumnValuesOdd(of.ColumnMapMetricProvider):
    condition_metric_name = "column_values.odd"

    @of.column_condition_partial(engine=SparkDFExecutionEngine)
    def _spark(cls, column, **kwargs):
        return column % 2 == 1


class ExpectColumnValuesToBeOdd(ColumnMapExpectation):
    map_metric = "column_values.odd"
"""


def test_an_expectation_of_an_installed_package_is_found_by_its_entry_point(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "site" / "odd-1.dist-info"
    info.mkdir(parents=True)
    (info.parent / "odd_values.py").write_text(OWN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1\n")
    points = ("expect_column_values_to_be_odd = odd_values:ExpectColumnValuesToBeOdd",
              "expect_other = odd_values:ExpectColumnValuesToBeOdd")  # fmt: skip
    (info / "entry_points.txt").write_text("\n".join(["[skewless.expectations]", *points, ""]))
    monkeypatch.syspath_prepend(info.parent)
    odd = {"type": "expect_column_values_to_be_odd", "kwargs": {"column": "files"}}
    report = report_of(Scene(expectations=[{**odd, "severity": "quarantine", "at_most": 2}]), spark, tmp_path)
    assert report.success, report.failures(1)
    assert report.quarantine == Quarantine(keys=2, rows=24)
    with pytest.raises(SpecError, match="expected an expectation of type 'expect_other'"):
        check_expectations(expecting("expect_other", column="files").spec(), "tokens.yaml")
    with pytest.raises(SpecError, match="runs SQL of its own, which may read whatever Spark can"):
        check_expectations(expecting("unexpected_rows_expectation").spec(), "tokens.yaml")


def test_a_run_leaves_the_result_of_great_expectations_and_one_page_without_scripts_or_raw_keys(
    spark: SparkSession, tmp_path: Path
) -> None:
    scene = Scene(
        rows=[(PAYLOAD, 70, 9), (None, 30, 4)],
        expectations=[
            {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "token", "value_set": ["</td>"]},
             "severity": "warn", "meta": {"owner": "me"}},
            {"type": "expect_column_values_to_be_between", "kwargs": {"column": "files", "max_value": 8}},
        ],
    )  # fmt: skip
    run = scene.lay_out(spark, tmp_path / "run")
    report = validate(spark, run)
    assert not report.success
    paths = [run.path(file.path) for file in run.committed("quality").files]
    (page,) = [Path(path).read_text() for path in paths if path.endswith("report.html")]
    (validation,) = [json.loads(Path(path).read_text()) for path in paths if path.endswith("validation.json")]
    schema = great_expectations().core.expectation_validation_result.expectationSuiteValidationResultSchema
    parsed = schema.load(validation)
    assert (parsed["success"], len(parsed["results"])) == (False, 7)
    first, second = validation["results"][-2:]
    assert first["expectation_config"]["meta"] == {"owner": "me"}
    assert (first["expectation_config"]["severity"], second["expectation_config"]["severity"]) == (
        "warning",
        "critical",
    )
    assert second["result"]["unexpected_count"] == 1
    ours = validation["meta"]["skewless"]
    assert (ours["job"], ours["success"], len(ours["checks"])) == ("tokens", False, len(report.checks))
    assert escape(PAYLOAD) in page
    assert "<img" not in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.index("values between") < page.index("the ledger balances"), "what does not hold comes first"
