"""One page with the aims of all benchmarks that were measured: how many are met, and which are missed by what."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.result_files import table

NAME = "README.md"
#: The page of a document, where it is not called like the document.
_PAGES = {"spark": "spark.md"}


def write_all_aims(folder: Path) -> None:
    """Write the page from the documents that the folder has."""
    (folder / NAME).write_text(page(folder), encoding="utf-8")


def page(folder: Path) -> str:
    """The page, in Markdown."""
    aims, met, missed = Counter[str](), Counter[str](), list[str]()
    for name, one in _aims(folder):
        aims[name] += 1
        met[name] += one["met"]
        if not one["met"]:
            missed.append(f"- {name}: {_words(one)}")
    words = (
        f"{aims.total()} aims, {met.total()} of them met. The aims are our own. The pages are summaries; the JSON files"
    )
    return "\n".join([
        "# All aims",
        "",
        words,
        "have all figures, and the limit and the figure of each aim. `python -m benchmarks` writes both.",
        "",
        table(("benchmark", "aims", "met"), [(name, str(aims[name]), str(met[name])) for name in aims]),
        "",
        "## Missed",
        "",
        *missed,
        "",
    ])  # fmt: skip


def _aims(folder: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The aims, each with the benchmark that it belongs to."""
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        name = document.get("row", path.stem) + (" (60 s)" if document.get("long") else "")
        page_name = _PAGES.get(path.stem.split("_")[0], f"{path.stem}.md")
        for verdict in document.get("verdicts", ()):
            if verdict["met"] is not None:
                yield f"[{name}]({page_name})", verdict


def _words(one: Mapping[str, Any]) -> str:
    if "limit" not in one:  # an aim over many cells, of which the worst is told
        return f"{one['aim']}; missed in {len(one['missed'])} of {one['cells']} cells, at worst {one['worst']}"
    figure = "not measured" if one["figure"] is None else f"{one['figure']:.3g}"
    side = "at least" if one["at_least"] else "at most"
    return f"{one['cell']}: {one['aim']}: {figure} (aim: {side} {one['limit']:g})"
