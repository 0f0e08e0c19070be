"""docs/spec.md and docs/spec.schema.json say what the models say, and what they say is true."""

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError

from docs.spec_reference import EXAMPLE, reference_page, schema_text, sections, spec_schema
from skewless.errors import SpecError
from skewless.spec.reading import load_spec, parse_spec
from skewless.spec.routing import Policy
from skewless.spec.spec import JobSpec

ROOT = Path(__file__).parents[2]
CATALOG = sorted((ROOT / "jobs/catalog").glob("*.yaml"))
SCHEMA = spec_schema()
PAGE = reference_page()
VALID = Draft202012Validator(SCHEMA)
SECTIONS = {section.path: section.schema for section in sections(SCHEMA)}

MINIMAL: dict[str, Any] = {
    "name": "small",
    "input": {"path": "rows"},
    "key": "country",
    "aggregates": {"NAME": {"function": "count"}},
    "output": {"path": "out"},
}
#: What an example needs beside it, by the field that it is of.
_BESIDE: dict[str, dict[str, Any]] = {
    **{f"routing.policy.{name}": {"name": Policy.takers(name)[0]} for name in Policy.told_apart()},
    "input.at": {"format": "iceberg", "path": "local.lake.clicks"},
    "input.options": {"format": "csv"},
    "schedule.partitioned": {"asset": "orders"},
    "map.where": {"select": ["ms"]},
    "aggregates.NAME.column": {"function": "max"},
    "quality.expectations[].kwargs": {"type": "expect_column_values_to_be_between"},
    **{f"shadow.{name}": {"with": "old"} for name in ("tolerance", "differences")},
    "quality.expectations[].meta": {"type": "expect_column_values_to_be_unique"},
    "quality.expectations[].severity": {"type": "expect_column_values_to_be_unique", "at_most": 9},
    "quality.expectations[].at_most": {"type": "expect_column_values_to_be_unique", "severity": "quarantine"},
    "quality.accept": {
        "expectations": [{"type": "expect_column_values_to_be_unique", "severity": "quarantine", "at_most": 9}]
    },
    "output.schema": {"format": "iceberg", "path": "local.marts.clicks"},
}


def _fields() -> dict[str, dict[str, Any]]:
    found = {}
    for path, model in SECTIONS.items():
        long_form = next((one for one in model.get("anyOf", ()) if "properties" in one), model)
        found.update({f"{path}.{name}".lstrip("."): field for name, field in long_form["properties"].items()})
    return found


FIELDS = _fields()


@pytest.mark.parametrize(
    ("file", "text"), [("spec.md", PAGE), ("spec.schema.json", schema_text())], ids=["page", "schema"]
)
def test_the_committed_file_is_what_the_models_say(file: str, text: str) -> None:
    assert (ROOT / "docs" / file).read_text(encoding="utf-8") == text, "run `make docs`, and commit what it wrote"


def test_all_models_of_a_spec_are_told_of() -> None:
    assert {model["title"] for path, model in SECTIONS.items() if path} == set(SCHEMA["$defs"])
    assert " ".join(SECTIONS).split() == [
        *("schedule", "input", "map", "window", "aggregates.NAME", "routing", "routing.policy", "spark"),
        *("airflow", "sharing"),
        *("quality", "quality.expectations[]", "output", "shadow"),
    ]


@pytest.mark.parametrize("path", FIELDS)
def test_a_field_has_a_sentence_examples_that_are_good_and_a_row_of_the_page(path: str) -> None:
    assert FIELDS[path]["description"].endswith(".")
    assert FIELDS[path]["examples"]
    for example in FIELDS[path]["examples"]:
        written = _with_example(path, example)
        JobSpec.model_validate(written)
        VALID.validate(written)
    section, _, name = path.rpartition(".")
    told = PAGE.split(f"\n## {f'`{section}`' if section else 'All of it'}\n")[1].split("\n## ")[0]
    (row,) = [line for line in told.splitlines() if line.startswith(f"| `{name}` |")]
    assert len(re.split(r"(?<!\\)\|", row)) == 7
    assert FIELDS[path]["description"].replace("|", "\\|") in row


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(schema_text()) == SCHEMA


@pytest.mark.parametrize("path", CATALOG, ids=lambda path: path.stem)
def test_a_spec_of_the_catalog_names_the_schema_and_keeps_to_it(path: Path) -> None:
    first = path.read_text().partition("\n")[0]
    assert first.startswith("# yaml-language-server: $schema=")
    assert (path.parent / first.partition("=")[2]).resolve() == ROOT / "docs/spec.schema.json"
    VALID.validate(_as_editors_read(path.read_text()))
    load_spec(path)


def test_the_page_s_spec_is_good() -> None:
    assert f"```yaml\n{EXAMPLE}```" in PAGE
    VALID.validate(_as_editors_read(EXAMPLE))
    VALID.validate(json.loads(parse_spec(EXAMPLE).to_json()))  # as it is frozen


@pytest.mark.parametrize(
    "changed",
    [
        {"polcy": "static"}, {"routing": {"polcy": "static"}}, {"routing": {"reducers": 0}},
        {"routing": {"waves": []}}, {"input": {"path": "x", "format": "cvs"}},
        {"map": {"mapper": "tokens", "nested": {"a": 1}}}, {"aggregates": {"a-b": "count"}},
        {"aggregates": {"a": {"column": "x"}}}, {"aggregates": {}}, {"key": 5}, {"version": 1},
        {"input": {"path": "x", "options": {"header": True}}},
        {"output": {"path": "x", "format": "delta", "grace_hours": 1}},
        {"routing": {"policy": {"name": "static", "threshold": 1}}}, {"window": 0},
        {"quality": {"expectations": [{"type": "no_expectation"}]}}, {"spark": {"conf": {"driver_memory": "2g"}}},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_wrong_in_a_spec_is_wrong_in_the_editor(changed: dict[str, Any]) -> None:
    VALID.validate(MINIMAL)
    written = {**MINIMAL, **changed}
    with pytest.raises(ValidationError):
        VALID.validate(written)
    with pytest.raises(SpecError):
        parse_spec(yaml.safe_dump(written))


def _with_example(path: str, example: Any) -> dict[str, Any]:
    """A small spec with an example in its place, and what it needs beside it."""
    *parents, name = path.split(".")
    written: dict[str, Any] = json.loads(json.dumps(MINIMAL))
    if path == "input.parts" or path.startswith("window"):
        written |= {"input": {"path": "rows/{date}"}, "window": {"length": 28}}
    if path in {"query", "tables", "input.as_of"}:
        written = {"name": "small", "output": {"path": "out"}, "tables": {"clicks": {"path": "rows/{date}"}}}
        join = {"query": "", "tables": " JOIN pages", "input.as_of": " JOIN p"}[path]
        written["query"] = f"SELECT country, count(*) AS n FROM clicks{join} GROUP BY country"
    if path == "input.as_of":
        written |= {"window": {"length": 28}}
        written["tables"]["p"], parents = {"path": "p"}, ["tables", "p"]
    target: Any = written
    for parent in parents:
        listed = parent.endswith("[]")
        target = target.setdefault(parent[:-2], [{}])[0] if listed else target.setdefault(parent, {})
    target.update(_BESIDE.get(path, {}))
    target[name] = example
    return written


def _as_editors_read(text: str) -> Any:
    return json.loads(json.dumps(yaml.safe_load(text), default=dt.date.isoformat))
