"""What a spec expects of its input, by what is known of it before it is read."""

from __future__ import annotations

from typing import Any

import pytest

from skewless.documents.job import InputFacts
from skewless.documents.quality import Check
from skewless.errors import SpecError
from skewless.history.bands import NULLS, check_input_expectations, input_checks
from skewless.spec.result import Quality
from skewless.spec.spec import JobSpec
from tests.unit import synthetic

FACTS = InputFacts(columns={"user": "string", "n": "decimal(10,2)"}, nulls={"user": 30}, rows=1000)
TYPED, ROWS = "expect_column_values_to_be_of_type", "expect_table_row_count_to_be_between"
EXISTS = "expect_column_to_exist"


def checked(kind: str, kwargs: dict[str, Any], facts: InputFacts = FACTS) -> Check:
    quality = Quality.model_validate({"input": [{"type": kind, "kwargs": kwargs, "severity": "warn"}]})
    job = synthetic.job([])
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"quality": quality}), "facts": facts})
    (check,) = input_checks(job)
    return check


@pytest.mark.parametrize(
    ("kind", "kwargs", "verdict", "observed"),
    [
        (EXISTS, {"column": "user"}, "passed", "string"),
        (EXISTS, {"column": "User"}, "warned", "none"),
        (TYPED, {"column": "n", "type_": "DECIMAL(10, 2)"}, "passed", "decimal(10,2)"),
        (TYPED, {"column": "n", "type_": "decimal(10,3)"}, "warned", "decimal(10,2)"),
        (TYPED, {"column": "m", "type_": "none"}, "warned", "none"),
        (NULLS, {"column": "user", "mostly": 0.97}, "passed", "30"),
        (NULLS, {"column": "user", "mostly": 0.971}, "warned", "30"),
        (NULLS, {"column": "m"}, "warned", "none"),
        (NULLS, {"column": "n", "mostly": 0}, "failed", ""),
        (ROWS, {"min_value": 1000, "max_value": 1000}, "passed", "1,000"),
        (ROWS, {"min_value": 1001}, "warned", "1,000"),
        (ROWS, {"max_value": 999}, "warned", "1,000"),
    ],
)
def test_each_expectation_holds_or_does_as_its_severity_says_and_what_is_not_known_fails(
    kind: str, kwargs: dict[str, Any], verdict: str, observed: str
) -> None:
    check = checked(kind, kwargs)
    assert (check.verdict, check.observed, check.subject) == (verdict, observed, "input")


def test_rows_that_nobody_has_counted_fail() -> None:
    assert checked(ROWS, {}, InputFacts()).verdict == "failed"


def test_rows_behind_a_map_are_not_compared_with_those_of_kept_states() -> None:
    given = {"window": 3, "map": {"select": ["key"]}, "quality": {"input": [{"type": ROWS, "kwargs": {}}]}}
    spec = JobSpec.model_validate({**synthetic.spec().model_dump(mode="json"), "input": {"path": "in/{date}"}, **given})
    with pytest.raises(SpecError, match=r"quality.input.0.type: expected no map, as kept states"):
        check_input_expectations(spec, "spec")
    check_input_expectations(spec.model_copy(update={"map": None}), "spec")
