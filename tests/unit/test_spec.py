# ruff: noqa: E501 - sentences are held to whole, one row of the table each
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import JsonValue

from skewless.document import LARGEST_COUNT
from skewless.errors import SpecError
from skewless.spec.calls import AggregateCall
from skewless.spec.reading import (
    OPTIONS,
    load_spec,
    option_schema,
    parse_options,
    parse_spec,
    refuse_more_waves,
    with_options,
)
from skewless.spec.result import Expectation, Window
from skewless.spec.routing import Policy
from tests.unit.synthetic import spec

GOOD = """
name: tokens
input: {path: corpus/tokens}
key: token
aggregates:
  occurrences: count
  files: {function: approx_count_distinct, column: file}
  columns: {function: streaming_histogram, column: column, bins: 16}
output: {path: results/tokens}
"""


BAD: dict[str, list[str]] = yaml.safe_load(Path(__file__).with_name("bad_specs.yaml").read_text())
BAD_OVERRIDES: dict[str, list[str]] = yaml.safe_load(Path(__file__).with_name("bad_overrides.yaml").read_text())


@pytest.mark.parametrize(("old", "new", "sentence"), BAD.values(), ids=BAD)
def test_a_bad_spec_gets_one_clear_sentence(old: str, new: str, sentence: str) -> None:
    assert GOOD.count(old) == 1
    with pytest.raises(SpecError) as raised:
        parse_spec(GOOD.replace(old, new))
    assert str(raised.value) == sentence
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "came"), [("", "nothing"), ("- a", "a list"), ("word", "a str")], ids=["empty", "a list", "a word"]
)
def test_a_file_that_is_no_mapping_is_refused(text: str, came: str) -> None:
    with pytest.raises(SpecError, match=f"^spec: expected a YAML mapping, but got {came}.$"):
        parse_spec(text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe4")
    for name, reason in (("none", r"No such file or directory"), ("latin", "it is no text in UTF-8")):
        with pytest.raises(SpecError, match=rf"{name}.yaml: the file cannot be read \({reason}\)"):
            load_spec(tmp_path / f"{name}.yaml")


def test_a_policy_of_another_name_has_nothing_of_the_folders_default(tmp_path: Path) -> None:
    (tmp_path / "_defaults.yaml").write_text("routing: {policy: {name: adaptive, reducer_range: [2, 8]}, reducers: 4}")
    for given, policy in (
        ("", Policy(name="adaptive", reducer_range=(2, 8))),
        ("routing: {policy: adaptive}", Policy(name="adaptive", reducer_range=(2, 8))),
        ("routing: {policy: {reducer_range: [1, 9]}}", Policy(name="adaptive", reducer_range=(1, 9))),
        ("routing: {policy: static}", Policy(name="static")),
    ):
        (tmp_path / "small.yaml").write_text(f"name: small\n{given}\ninput: {{path: x}}\nkey: k\n{_REST}")
        routing = load_spec(tmp_path / "small.yaml").routing
        assert (routing.policy, routing.reducers) == (policy, 4)


_REST = "aggregates: {n: count}\noutput: {path: y}\n"


def test_states_of_jobs_that_publish_no_sketch_keep_their_fingerprint() -> None:
    """A field that others do not have must not change what their states are known by."""
    call = AggregateCall.model_validate({"function": "approx_percentile", "column": "ms", "percentage": 0.5})
    assert call.model_dump(mode="json") == {"function": "approx_percentile", "column": "ms", "percentage": 0.5}
    published = {"function": "approx_top_k", "column": "ms", "publish": "state"}
    assert AggregateCall.model_validate(published).model_dump(mode="json") == published


def test_overrides_are_read_as_yaml() -> None:
    spec = parse_spec(GOOD, "spec", (
        "routing.policy=static", "routing.waves=[1, 9]", "routing.waves.1=8", "aggregates.columns.bins=32",
        "key=[a, b]", "description=a = b", "schedule.cron=null",
    ))  # fmt: skip
    assert (spec.routing.policy.name, spec.routing.waves, spec.key) == ("static", (1, 8), ("a", "b"))
    assert (spec.aggregates["columns"].options, spec.description) == ({"bins": 32}, "a = b")


def test_an_override_may_step_into_what_is_written_as_one_value() -> None:
    given = GOOD.replace("{path: corpus/tokens}", "{path: 'corpus/{date}'}") + "window: 7\nrouting: {policy: halving}\n"
    spec = parse_spec(given, "spec", ("window.late=fail", "routing.policy.threshold=2"))
    assert (spec.window, spec.routing.policy) == (Window(length=7, late="fail"), Policy(name="halving", threshold=2))


@pytest.mark.parametrize(("override", "sentence"), BAD_OVERRIDES.values(), ids=BAD_OVERRIDES)
def test_a_bad_override_gets_one_clear_sentence(override: str, sentence: str) -> None:
    with pytest.raises(SpecError) as raised:
        parse_spec(GOOD, "spec", (override,))
    assert str(raised.value) == sentence


def test_an_override_of_a_list_names_a_position_it_has() -> None:
    with pytest.raises(SpecError, match="expected a position below 2, but got '7'"):
        parse_spec(GOOD, "spec", ("routing.waves=[1, 2]", "routing.waves.7=3"))


def test_a_value_that_yaml_cannot_hold_is_told_in_one_sentence() -> None:
    with pytest.raises(SpecError, match=r"^spec: a value cannot be read \(day is out of range"):
        parse_spec("description: 2026-02-30")


@pytest.mark.parametrize("cron", ["'0 99 * * *'", "daily", "'0 0 30 2 *'", "['0 2 * * *', '0 2 * *']"])
def test_a_cron_that_airflow_refuses_is_refused_in_the_spec(cron: str) -> None:
    with pytest.raises(
        SpecError, match=r"field schedule\.cron: expected a cron expression that Airflow takes, but got"
    ):
        parse_spec(
            f"{{name: x, schedule: {{cron: {cron}}}, input: {{path: i}}, key: k, aggregates: {{n: count}}, output: {{path: o}}}}"
        )


WINDOWED: dict[str, Any] = {
    "name": "visits",
    "input": {"path": "/lake/visits/date={date}"},
    "window": 28,
    "key": "page",
    "aggregates": {"n": "count"},
    "output": {"path": "marts/visits"},
}


@pytest.mark.parametrize(
    ("changed", "sentence"), yaml.safe_load(Path(__file__).with_name("bad_windows.yaml").read_text())
)
def test_a_window_that_cannot_be_is_one_sentence(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_spec(yaml.safe_dump({**WINDOWED, **changed}))
    assert sentence in str(refused.value)


def test_the_lengths_of_windows_are_said_in_one_place() -> None:
    cases: list[tuple[dict[str, Any], tuple[int | None, ...], int | None]] = [
        ({"window": 28}, (28,), 35),
        ({"window": "all"}, (None,), None),
        ({"window": [1, 7]}, (1, 7), 14),
        ({"window": 1000}, (1000,), 1007),
        ({"window": [*range(1, 17)]}, tuple(range(1, 17)), 23),
        ({"window": {"length": 1, "keep": 3}}, (1,), 3),
        ({}, (), 0),
    ]
    for given, lengths, kept in cases:
        spec = parse_spec(yaml.safe_dump({**WINDOWED, "window": None, **given}))
        assert (spec.covered.lengths, spec.covered.kept_parts) == (lengths, kept)
        assert spec.result_key == (("page", "window") if len(lengths) > 1 else ("page",))


# What may be chosen for one run, and what may not.


def test_options_become_fields_of_the_spec() -> None:
    changed = with_options(spec(), {"policy": "halving", "reducers": 2}, "form")
    assert (changed.routing.policy.name, changed.routing.reducers) == ("halving", 2)


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
    given = spec(policy="halving", threshold=9)
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


@pytest.mark.parametrize(("at_most", "keys", "most"), [(0.29, 100, 29), (0.1, 39, 3), (1, 9, 1), (LARGEST_COUNT,) * 3])
def test_more_keys_than_may_fail_are_counted_by_the_number_as_it_was_written(
    at_most: float, keys: int, most: int
) -> None:
    given = {"type": "expect_x", "severity": "warn", "at_most": at_most, "id": "7", "meta": None}
    expectation = Expectation.model_validate(given)
    assert [expectation.too_many(failing, keys) for failing in (most, most + 1)] == [False, True]
    assert expectation.meta == {"id": "7"}
