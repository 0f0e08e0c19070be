"""What the pages say of documents and numbers is what the code has, and their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from skewless.documents.certificate import Certificate
from skewless.documents.decision import Candidate, Decision
from skewless.planner.planner import FORWARD_COST_ROWS, STATE_COST_ROWS, TASK_COST_ROWS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
DECIDE = (DOCS / "decide.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("document", [Decision, Candidate, Certificate], ids=lambda document: document.__name__)
def test_the_page_on_decisions_tells_of_every_field(document: type) -> None:
    fields = set(getattr(document, "model_fields", {})) - {"version"}
    assert fields
    assert {field for field in fields if f"`{field}`" not in DECIDE} == set()


def test_the_page_on_decisions_has_the_planner_s_prices() -> None:
    (cost,) = [line for line in DECIDE.splitlines() if line.startswith("| `cost_rows` |")]
    prices = [float(price) for price in re.findall(r"\b\d+(?:\.\d+)?(?= for each)", cost)]
    assert prices == [FORWARD_COST_ROWS, STATE_COST_ROWS, TASK_COST_ROWS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in _anchors(found), f"{target} leads to a page without that heading"


def test_the_index_leads_to_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as its renderers make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
