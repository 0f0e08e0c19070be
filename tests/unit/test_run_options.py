"""What may be chosen for one run, and what may not."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from skewless.errors import SpecError
from skewless.spec.options import OPTIONS, option_schema, option_values, parse_options, refuse_more_waves, with_options
from skewless.spec.routing import Policy
from tests.unit.synthetic import spec


def test_options_become_fields_of_the_spec() -> None:
    changed = with_options(spec(), {"policy": "halving", "waves": [1, 2], "mode": "observe", "cores": 8}, "form")
    assert (changed.routing.policy.name, changed.routing.waves, changed.mode) == ("halving", (1, 2), "observe")
    assert changed.spark.cores == 8


def test_the_specs_own_values_change_nothing() -> None:
    assert with_options(spec(), option_values(spec()), "form") == spec()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param({"polcy": "static"}, "did you mean 'policy'", id="misspelt"),
        pytest.param({"input.path": "/etc"}, "expected known options, but got 'input.path'", id="path"),
        pytest.param({"map": {"select": ["1"]}}, "got 'map'", id="sql"),
        pytest.param({"aggregates": {"a": "x"}}, "got 'aggregates'", id="code"),
        pytest.param({"policy": "eval"}, "form, field routing.policy.name: expected", id="unknown-policy"),
        pytest.param({"reducers": 0}, "at least 1, but got 0", id="too-few"),
        pytest.param({"reducers": {"$ref": 1}}, "form, field routing.reducers", id="mapping"),
        pytest.param({"budget": 101}, "at most 100", id="too-large"),
        pytest.param({"driver_memory": "2g; rm -rf /"}, "spark.driver_memory", id="shell"),
        pytest.param({"driver_memory": "2g\n"}, "spark.driver_memory", id="newline"),
        pytest.param({"waves": []}, "at least 1 item", id="no-waves"),
        pytest.param(
            {"late": "fail"}, "expected late only of a job with a window, but got one without", id="no-window"
        ),
    ],
)
def test_anything_else_is_refused_in_one_sentence(given: dict[str, JsonValue], words: str) -> None:
    with pytest.raises(SpecError) as refused:
        with_options(spec(), given, "form")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_another_policy_has_its_own_defaults_and_the_same_one_keeps_what_the_spec_says() -> None:
    given = spec(policy="halving", rounds=9)
    assert with_options(given, {"policy": "halving"}, "form") == given
    assert with_options(given, {"policy": "doubling"}, "form").routing.policy == Policy(name="doubling")


def test_options_are_one_json_object() -> None:
    assert parse_options('{"policy": "static"}', "--options") == {"policy": "static"}
    for text in ("[1]", "policy=static", "", "nan", "\ud800", "[" * 100_000, '{"a":' * 100_000, '"' + "x" * 100_000):
        with pytest.raises(SpecError, match="a JSON object of options"):
            parse_options(text, "--options")


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_has_a_schema_without_references_and_says_what_it_is(name: str) -> None:
    schema = option_schema(name)
    assert schema["type"]
    assert schema["description"]
    assert "$ref" not in str(schema)
    assert "anyOf" not in schema


def test_more_waves_than_stages_are_refused() -> None:
    refuse_more_waves(spec(), None, "form")
    refuse_more_waves(spec(), 4, "form")
    with pytest.raises(SpecError, match="at most 3 waves"):
        refuse_more_waves(spec(), 3, "form")
