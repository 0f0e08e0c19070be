"""What is understood of a query, without Spark: in words of the spec, or as a sentence that names what cannot be."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic_core import PydanticCustomError

from skewless.errors import SpecError
from skewless.query.understood import understood
from skewless.spec import JobSpec, parse_spec

CASES = yaml.safe_load(Path(__file__).with_name("queries.yaml").read_text())


def tables_of(query: str) -> frozenset[str]:
    return frozenset(name for name in ("clicks", "pages", "w") if name == "clicks" or f" {name}" in query)


@pytest.mark.parametrize("case", CASES["understood"], ids=lambda case: case["query"][:60])
def test_a_query_is_understood_as_the_other_fields_of_a_spec(case: dict[str, Any]) -> None:
    found = understood(case["query"], tables_of(case["query"]))
    assert (found.input, found.rows) == ("clicks", case["rows"])
    assert list(found.key) == case["key"]
    assert found.aggregates == case["aggregates"]
    assert (found.select and list(found.select)) == case["select"]
    assert found.where == case.get("where")
    assert list(found.order) == case.get("order", [])


@pytest.mark.parametrize(("query", "said"), CASES["refused"], ids=lambda text: text[:60])
def test_a_query_that_cannot_be_computed_from_states_is_refused_by_its_part(query: str, said: str) -> None:
    with pytest.raises(PydanticCustomError) as told:
        understood(query, tables_of(query))
    context = told.value.context or {}
    assert re.search(said, f"{context['required']}, but got {context['came']}; {context.get('hint', '')}"), context


@pytest.mark.parametrize("case", CASES["joined"], ids=lambda case: case["query"][:60])
def test_states_are_joined_in_place_of_rows(case: dict[str, Any]) -> None:
    joined = understood(case["query"], tables_of(case["query"])).joined
    assert joined is not None
    assert (joined.rows, list(joined.key), joined.query) == (case["rows"], case["key"], case["states"])


@pytest.mark.parametrize(("query", "said"), CASES["unjoined"], ids=lambda text: text[:60])
def test_it_is_said_why_rows_are_joined(query: str, said: str) -> None:
    found = understood(query, tables_of(query))
    assert found.joined is None
    assert re.search(said, found.unjoined), found.unjoined


SPEC = """
name: clicks_by_category
query: SELECT p.category, count(*) AS n FROM clicks c JOIN pages p ON c.page = p.page GROUP BY ALL
tables:
  clicks: {path: "clicks/{date}"}
  pages: {format: delta, path: pages}
output: {path: marts}
"""


@pytest.mark.parametrize(("more", "key"), [("", "category"), ("window: 2\n", "page"), ("state: join\n", "page")])
def test_a_spec_with_a_query_is_the_same_after_a_round_trip(more: str, key: str) -> None:
    spec = parse_spec(f"{SPEC}{more}")
    assert JobSpec.model_validate(spec.model_dump(mode="json")) == spec
    assert (spec.input.path, list(spec.lookups)) == ("clicks/{date}", ["pages"])
    assert (spec.key, spec.result_key, spec.published) == ((key,), ("category",), ("category", "n"))
    assert spec.joining.key == ("page",)
    assert "key" not in spec.model_dump()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{SPEC}key: page\n", "expected either query or key, but got both"),
        (SPEC.replace("delta", "detla"), r"field tables\.pages\.format.*'detla'"),
        (SPEC.replace("ALL", "ALL ORDER BY m"), "field query: expected ORDER BY what is published"),
        (SPEC.replace("tables:", "table:"), "field table: there is no such field"),
        (
            SPEC.replace("marts}", "marts, sort: [n]}").replace("ALL", "ALL ORDER BY n"),
            "either ORDER BY or output.sort",
        ),
        (SPEC.replace("path: pages}", "path: pages, as_of: night}"), "as_of: night only with a window"),
    ],
)
def test_a_spec_with_a_query_says_what_is_wrong_with_it(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_spec(text)
