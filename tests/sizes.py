"""``python -m tests.sizes``: how much there is to read, and how many conditions stand on each axis of variation.

``tests/unit/test_sizes.py`` holds the figures below their ceilings.
"""

import ast
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PRODUCT = ("plugins", "jobs", "dags", "deploy")
#: Folders with Markdown files; that of the repository itself is not searched below.
_PAGES = ("docs", "benchmarks", "tests", "examples")
#: The names by which a condition is on an axis. Its own folder may have as many as it likes.
AXES: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {
    "windows": (frozenset({"window", "windows", "in_window"}), ("skewless_spark/windows", "skewless/standing")),
    "native or Python": (
        frozenset({"native", "python", "PYTHON", "NATIVE"}),
        ("aggregates/native", "skewless_spark/branches"),
    ),
    "tables": (
        frozenset({"iceberg", "delta", "ICEBERG", "DELTA", "pinned", "of_table", "table"}),
        # Tables of a query are of any format.
        ("skewless_lake", "sources/lake", "skewless/query"),
    ),
    # A table has staged results, which are no engine.
    "engine": (
        frozenset({"engine", "staged", "combine", "bypass", "combines", "bypasses"}),
        ("skewless_spark/engines", "skewless_lake"),
    ),
    "runner": (frozenset({"runner", "warm", "warm_driver", "submit", "submitted"}), ("skewless_airflow/runners",)),
    "sharing": (frozenset({"sharing", "shared"}), ("sharing",)),
    "budget": (frozenset({"budget", "budget_rows"}), ("planner",)),
    "forward": (frozenset({"forward", "forwards", "forwards_states"}), ()),
}


def lines_of(*folders: str) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in _modules(folders))


def words_of_pages() -> int:
    pages = [*ROOT.glob("*.md"), *(page for folder in _PAGES for page in (ROOT / folder).rglob("*.md"))]
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def spec_fields() -> int:
    """The fields of a job spec: of each section those that it may ever have, each once.

    A field counts once in whatever branches of its section's schema it stands: in the long one beside a short form,
    and of a section that is tagged, in what each tag allows.
    """
    schema = json.loads((ROOT / "docs" / "spec.schema.json").read_text(encoding="utf-8"))
    return sum(len(_fields_of(section)) for section in (schema, *schema["$defs"].values()))


def _fields_of(section: dict[str, Any]) -> set[str]:
    branches = [*section.get("anyOf", ()), *section.get("oneOf", ()), *section.get("allOf", ())]
    return set(section.get("properties", ())).union(*map(_fields_of, branches))


def conditions() -> Counter[str]:
    found = Counter[str]()
    for path in _modules(PRODUCT):
        place = path.relative_to(ROOT).as_posix()
        axes = {axis: names for axis, (names, own) in AXES.items() if not any(one in place for one in own)}
        for condition in _conditions_in(ast.parse(path.read_text(encoding="utf-8"))):
            named = {
                node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else node.value
                for node in ast.walk(condition)
                if isinstance(node, (ast.Attribute, ast.Name))
                or (isinstance(node, ast.Constant) and isinstance(node.value, str))
            }
            found.update(axis for axis, names in axes.items() if names & named)
    return found


def sizes() -> dict[str, int]:
    return {
        "lines of the product": lines_of(*PRODUCT),
        "lines of tests": lines_of("tests"),
        "words of pages": words_of_pages(),
        "fields of a spec": spec_fields(),
        "conditions on an axis": conditions().total(),
        # Each ties us to a version of another package: lines that ruff would refuse.
        "private names of others": sum(
            path.read_text(encoding="utf-8").count("# noqa: SLF001") for path in _modules((*PRODUCT, "benchmarks"))
        ),
    }


def _conditions_in(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.Match):
            yield node.subject


def _modules(folders: tuple[str, ...]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


if __name__ == "__main__":
    for what, figure in {**sizes(), **{f"conditions: {axis}": count for axis, count in conditions().items()}}.items():
        print(f"{figure:8,} {what}")  # noqa: T201  # this is a command
