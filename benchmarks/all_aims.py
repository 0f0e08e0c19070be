"""One page with the aims of all benchmarks that were measured: limit, figure, and whether each is met."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

NAME = "README.md"
#: The page of a document, where it is not called like the document.
_PAGES = {"spark": "spark.md"}


def write_all_aims(folder: Path) -> None:
    """Write the page from the documents that the folder has."""
    (folder / NAME).write_text(page(folder), encoding="utf-8")


def page(folder: Path) -> str:
    """The page, in Markdown."""
    lines = list(_lines(folder))
    missed = sum(line.startswith("| **missed**") for line in lines)
    return "\n".join([
        "# All aims",
        "",
        f"{len(lines)} aims, {len(lines) - missed} of them met. Each benchmark's page has all its figures, and says",
        "how they were measured. The aims are our own. Made by `python -m benchmarks`.",
        "",
        "| | benchmark | where | what | aim | measured |",
        "|---|---|---|---|---|---|",
        *lines,
        "",
    ])  # fmt: skip


def _lines(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        name = document.get("row", path.stem) + (" (60 s)" if document.get("long") else "")
        page_name = _PAGES.get(path.stem.split("_")[0], f"{path.stem}.md")
        for verdict in document.get("verdicts", ()):
            if verdict["met"] is not None:
                yield f"| {'met' if verdict['met'] else '**missed**'} | [{name}]({page_name}) | {_cells(verdict)} |"


def _cells(verdict: Mapping[str, Any]) -> str:
    if "limit" not in verdict:  # an aim over many cells, of which the worst is told
        return f"{verdict['cells']} cells | {verdict['aim']} | in all | {verdict['worst']}"
    side = "at least" if verdict["at_least"] else "at most"
    figure = "not measured" if verdict["figure"] is None else f"{verdict['figure']:.3g}"
    return f"{verdict['cell']} | {verdict['aim']} | {side} {verdict['limit']:g} | {figure}"
