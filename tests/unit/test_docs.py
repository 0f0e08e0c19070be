"""What the pages say of documents and numbers is what the code has, and their links lead somewhere."""

import doctest
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from skewless.aggregates import RegisteredAggregates
from skewless.documents.stage_report import Candidate, Certificate, Decision
from skewless.planner.forecast.observed_waves import TASK_COST_ROWS
from skewless.planner.policies import POLICIES
from skewless.planner.priced_plan import FORWARD_COST_ROWS, STATE_COST_ROWS
from skewless.spec import parse_spec
from skewless.testing import check_aggregate

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
PACKAGES = {
    "skewless": "plugins", "skewless_airflow": "plugins", "skewless_cli": "plugins", "skewless_leases": "plugins",
    "skewless_spark": "jobs", "benchmarks": "", "deploy": "", "examples": "", "tests": "",
}  # fmt: skip
#: A name that begins so is a path of the repository.
FOLDERS = ("plugins", "jobs", "dags", "deploy", "examples", "benchmarks", "docs", "tests", "docker")
METRICS = "plugins/skewless_airflow/observability/metrics.py"
#: Look like names of ours, and are a file of the reader's, a group of entry points, metrics and pages of the docs.
NAMES_OF_OTHER_THINGS = {
    "jobs/catalog/clicks_by_page.yaml",
    "skewless.mappers",
    *re.findall(r'"(skewless\.\w+)":', (ROOT / METRICS).read_text(encoding="utf-8")),
    *(f"{page.stem}.md" for page in DOCS.glob("*.md")),
}
#: More than that is for a page of the docs.
README_LINES = 130
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
def test_links_lead_somewhere_and_files_and_modules_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in _anchors(found), f"{target} leads to a page without that heading"
    files = set(re.findall(rf"(?<![\w/.~-])(?:{'|'.join(FOLDERS)})/(?!DAG)[\w./-]*\w", text)) - NAMES_OF_OTHER_THINGS
    assert {name for name in files if not (ROOT / name).exists()} == set()
    modules = set(re.findall(rf"(?<![\w/.:\"-])((?:{'|'.join(PACKAGES)})(?:\.\w+)+)(?![\w*/])", text))
    assert {name for name in modules - NAMES_OF_OTHER_THINGS if not _is_there(name)} == set()


def wrong_examples(*packages: str) -> dict[str, int]:
    """The modules whose docstrings have an example that does not hold, each with how many."""
    paths = (path for package in packages for path in sorted((ROOT / package).rglob("*.py")))
    with_some = (path for path in paths if ">>> " in path.read_text(encoding="utf-8"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts[1:]).removesuffix(".__init__") for path in with_some]
    assert names
    return {name: failed for name in names if (failed := doctest.testmod(import_module(name)).failed)}


def test_examples_in_docstrings_are_true() -> None:
    ours = (f"plugins/{name}" for name in ("skewless", "skewless_cli", "skewless_lake"))
    assert wrong_examples(*ours, "jobs/skewless_spark") == {}


def test_modules_and_files_that_code_names_exist() -> None:
    gone = set()
    for folder in ("plugins", "jobs", "dags", "deploy", "examples", "benchmarks"):
        for module in (ROOT / folder).rglob("*.py"):
            text = module.read_text(encoding="utf-8")
            modules = set(re.findall(rf"``((?:{'|'.join(PACKAGES)})(?:\.\w+)+)", text)) - NAMES_OF_OTHER_THINGS
            files = set(re.findall(rf"``((?:{'|'.join(FOLDERS)})/[\w./-]*\w)", text)) - NAMES_OF_OTHER_THINGS
            gone |= {f"{module.relative_to(ROOT)}: {name}" for name in modules if not _is_there(name)}
            gone |= {f"{module.relative_to(ROOT)}: {name}" for name in files if not (ROOT / name).exists()}
    assert gone == set()


def test_the_readme_is_short_and_its_job_is_a_good_spec() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= README_LINES
    (spec,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert parse_spec(spec).output.path == "/lake/marts/clicks_by_category"


def test_every_policy_has_a_page_and_a_line_in_the_table() -> None:
    table = (DOCS / "policies" / "README.md").read_text(encoding="utf-8")
    assert {name for name in POLICIES if not (DOCS / "policies" / f"{name}.md").exists()} == set()
    assert {name for name in POLICIES if f"| [`{name}`]({name}.md) |" not in table} == set()


def test_the_page_on_aggregates_has_every_shipped_one() -> None:
    page = (DOCS / "aggregates.md").read_text(encoding="utf-8")
    shipped = list(RegisteredAggregates())
    assert shipped
    assert {name for name in shipped if f"| `{name}` |" not in page} == set()


def test_the_index_leads_to_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()


def _is_there(name: str) -> bool:
    """Whether a dotted name is a package, a module, or something that a module has."""
    package, *rest = name.split(".")
    at = ROOT / PACKAGES[package] / package
    for number, part in enumerate(rest):
        if any((at / part).glob("*.py")):  # what is only left of a package has none
            at /= part
            continue
        module = at / f"{part}.py"
        source = module if module.exists() else at / "__init__.py"
        wanted = rest[number + 1 :] if module.exists() else rest[number:]
        text = source.read_text(encoding="utf-8") if source.exists() else ""
        return all(re.search(rf"\b{one}\b", text) for one in wanted)
    return True


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# The code of docs/write_an_aggregate.md runs, and is as short as the page says.

PAGE = (Path(__file__).parents[2] / "docs/write_an_aggregate.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in BLOCKS:
        exec(block, names)
    return names


def test_the_first_one_has_fifteen_lines() -> None:
    assert len([line for line in BLOCKS[0].splitlines() if line]) <= 15


def test_the_page_s_test_passes(page: dict[str, Any]) -> None:
    page["test_longest_keeps_the_laws"]()


def test_the_other_aggregates_of_the_page_keep_the_laws(page: dict[str, Any]) -> None:
    numbers = [0.5 * value for value in range(20)]
    check_aggregate(page["TOTAL"], numbers, tolerance=1e-9, seeds=[0])
    check_aggregate(page["CHANGES"], ["on", "on", "off", "idle"] * 5, seeds=[0])
    pairs = [{"column": value, "weight": value + 1} for value in numbers]
    check_aggregate(page["WEIGHTED_SUM"], pairs, {"weight": "w"}, tolerance=1e-9, seeds=[0])


def test_the_page_names_the_entry_point_group() -> None:
    assert '[project.entry-points."skewless.aggregates"]' in PAGE
