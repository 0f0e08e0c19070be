"""Specs by somebody who means no good: each is read as what it says, or refused in one sentence, and soon."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from skewless.errors import SpecError
from skewless.spec.reading import LONGEST_TEXT, OPTIONS, load_spec, parse_spec, with_options
from skewless.spec.spec import JobSpec
from tests.tiers import mostly_long
from tests.unit.hostile import VALUES, fuzz, mutated, refused, require_sentence

GOOD: dict[str, Any] = {
    "name": "tokens",
    "description": "d",
    "schedule": {"cron": "0 2 * * *", "timezone": "Europe/Zurich"},
    "input": {"path": "corpus/{date}", "format": "csv", "columns": {"ms": "bigint"}, "options": {"header": True}},
    "map": {"select": ["explode(pages) AS page", "ms"], "where": "ms IS NOT NULL"},
    "key": ["site", "page"],
    "aggregates": {"n": "count", "slow": {"function": "approx_percentile", "column": "ms", "percentages": [0.5, 1]}},
    "routing": {"policy": {"name": "adaptive", "reducer_range": [8, 8]}, "reducers": 8, "waves": [1, 4], "tokens": 64},
    "quality": {"expectations": [{"type": "expect_x", "kwargs": {"column": "n", "min_value": 1}}]},
    "output": {"path": "results/tokens", "format": "csv", "files": 2},
}
TEXT = yaml.safe_dump(GOOD, sort_keys=False)
SPEC = parse_spec(TEXT)


def read(text: str) -> JobSpec | None:
    """What a spec is read as, if it is one; a run's frozen spec is the same."""
    try:
        spec = parse_spec(text)
    except SpecError as err:
        require_sentence(err)
        return None
    assert JobSpec.model_validate_json(spec.to_json()) == spec
    assert JobSpec.model_validate_json(spec.to_json()).to_json() == spec.to_json()
    return spec


@fuzz(12)
@given(mutated(GOOD))
def test_a_changed_spec_goes_both_ways_or_is_refused_in_one_sentence(tree: Any) -> None:
    read(json.dumps(tree))  # of which YAML is a superset; what is none of JSON's it tells


@fuzz(12)
@given(st.data())
def test_a_spec_with_some_letters_changed_is_read_or_refused(data: st.DataObject) -> None:
    text = TEXT
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        signs = st.sampled_from(
            ["", "&a ", "*a", "!!", "!", "<<: ", "? ", "- ", "{", "[", "'", "|", ">", "%", "\t", "\0"]
        )
        text = text[:at] + data.draw(signs | st.text(max_size=2)) + text[at + data.draw(st.integers(0, 2)) :]
    read(text)


BOMBS = {
    "a billion laughs": "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n", "an alias of itself": "a: &a [*a]",
    "a merge of itself": "a: &a {<<: *a}", "brackets": "[" * 600, "braces": "{a: " * 600, "dashes": "- " * 600,
    "questions": "? " * 600, "a huge scalar": "name: " + "x" * 10_000_000,
    "a huge quoted scalar": 'name: "' + "x" * 200_000 + '"', "a huge number": "name: " + "9" * 200_000,
    "a huge number by sixties": "name: " + "1" + ":1" * 100_000,
    "a huge hexadecimal number": "name: 0x" + "f" * 200_000,
    "many keys": "".join(f"k{number}: 1\n" for number in range(4_000)),
    "many list items": "key: [" + "a," * 15_000 + "]",
    "many waves": TEXT.replace("waves:", "waves: [" + "1," * 10_000 + "]\n  x:"),
    "many aggregates": TEXT.replace("  n: count", "".join(f"  n{number}: count\n" for number in range(2_000))),
}  # fmt: skip


@pytest.mark.parametrize(
    "bomb", mostly_long(BOMBS, *(one for one in BOMBS if one not in {"many keys", "many list items", "many waves"}))
)
def test_a_bomb_is_refused_soon(bomb: str) -> None:
    began = time.process_time()
    said = refused(SpecError, lambda: parse_spec(BOMBS[bomb]))
    assert said.startswith("spec")
    assert time.process_time() - began < 10.0


CODE = {
    "a call": "!!python/object/apply:os.system ['true']", "a new object": "!!python/object/new:os.system ['true']",
    "an object": "!!python/object:os.system {}", "a name": "!!python/name:os.system", "a module": "!!python/module:os",
    "a tuple": "!!python/tuple [1]", "a tag of its own": "!run true",
    "a tag by its address": "!<tag:yaml.org,2002:python/name:os.system> x", "a time that is none": "!!timestamp x",
    "a truth that is none": "!!bool x", "a number that is none": "!!int ''", "bytes": "!!binary aGk=",
    "a set": "!!set {a}",
}  # fmt: skip


@pytest.mark.parametrize("code", CODE)
@pytest.mark.parametrize("place", ["name: tokens", "ms: bigint", "n: count", "min_value: 1"])
def test_a_spec_that_names_code_names_nothing(code: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    ran: list[str] = []
    monkeypatch.setattr(os, "system", ran.append)
    said = refused(SpecError, lambda: parse_spec(TEXT.replace(place, f"{place.partition(':')[0]}: {CODE[code]}")))
    assert re.match(r"spec, line \d+: the tag '.+' is not allowed", said)
    assert not ran


def put(path: tuple[str, ...], value: Any) -> str:
    tree = json.loads(json.dumps(GOOD))
    place = tree
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return json.dumps(tree)


DEEP = json.loads("[" * 50 + "]" * 50)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        *yaml.safe_load(Path(__file__).with_name("hostile_values.yaml").read_text()),
        (("schedule", "timezone"), "x" * 5_000, "an IANA time zone"),
        (("output", "path"), "a" * 5_000, "field output.path: expected a path of at most 4,096 characters"),
        (("quality", "expectations"), [{"type": "expect_x", "kwargs": {"a": DEEP}}], "mappings at most 8 deep"),
    ],
)  # fmt: skip
def test_a_value_that_would_do_harm_later_is_refused_at_once(path: tuple[str, ...], value: Any, said: str) -> None:
    assert said in refused(SpecError, lambda: parse_spec(put(path, value)))


def test_a_character_that_json_escapes_as_two_halves_is_one_and_a_half_one_is_refused() -> None:
    spec = read(json.dumps({**GOOD, "description": "\U0001f642"}))
    assert spec is not None
    assert spec.description == "\U0001f642"
    for half in ("\\ud83d", "\\ude42", "\\ude42\\ud83d"):
        text = TEXT.replace("description: d", f'description: "{half}"')
        assert "half of a character" in refused(SpecError, lambda: parse_spec(text))  # noqa: B023


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf"])
def test_an_expectation_of_no_number_is_refused(value: str) -> None:
    text = TEXT.replace("min_value: 1", f"min_value: {value}")
    assert "finite numbers" in refused(SpecError, lambda: parse_spec(text))


def test_a_date_in_an_expectation_is_what_the_frozen_job_will_hold() -> None:
    """Or a run could not be taken up again: the spec would differ from the one that it was begun with."""
    spec = read(TEXT.replace("min_value: 1", "min_value: 2026-01-31"))
    assert spec is not None
    assert spec.quality.expectations[0].kwargs["min_value"] == "2026-01-31"


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    with large.open("wb") as out:
        out.truncate(10 << 30)  # takes no room
    assert f"more than {LONGEST_TEXT:,} characters" in refused(SpecError, lambda: load_spec(large))
    assert refused(SpecError, lambda: load_spec("/dev/zero"))


@fuzz(12)
@given(
    st.lists(st.sampled_from([*GOOD, "path", "0", "kwargs", "x", ""]), min_size=1, max_size=5).map(".".join),
    st.text(max_size=12) | st.sampled_from(["!!python/name:os.system", "[" * 500, "&a [*a]", "1e999", "{a: 1}"]),
)
def test_an_override_is_applied_or_refused_in_one_sentence(dotted: str, value: str) -> None:
    try:
        parse_spec(TEXT, "spec", (f"{dotted}={value}",))
    except SpecError as err:
        require_sentence(err)


@pytest.mark.parametrize("override", ["a." * 100_000 + "b=1", "x" * 100_000 + "=1", "routing=" + "[" * 600])
def test_an_endless_override_is_refused_in_one_sentence(override: str) -> None:
    refused(SpecError, lambda: parse_spec(TEXT, "spec", (override,)))


@fuzz()
@given(
    st.dictionaries(
        st.sampled_from([*OPTIONS, "input", "map", "select", "aggregates", "name", "shadow"]), VALUES, max_size=3
    )
)
def test_options_of_a_run_are_taken_or_refused_in_one_sentence(given_options: dict[str, Any]) -> None:
    try:
        found = with_options(SPEC, given_options, "conf")
    except SpecError as err:
        require_sentence(err)
        return
    for part in ("input", "map", "output", "aggregates"):
        assert getattr(found, part) == getattr(SPEC, part)
