"""What benchmarks were meant to show, whether they do, and the files that say so: figures as JSON, and a page."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.waterfalls import waterfall_of, write_waterfalls

PROJECT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
#: Inputs are drawn once and kept here; a look at less than the full size is written here too.
DATA = PROJECT / "data" / "bench"
#: The page of all aims.
ALL_AIMS = "README.md"
#: The page of a document, where it is not called like the document.
_PAGES = {"spark": "spark.md"}
#: Figures (medians) by cell and peer.
Medians = Mapping[tuple[str, str], Mapping[str, float]]


@dataclass(frozen=True)
class Verdict:
    """One aim in one cell, and how it went.

    Attributes:
        aim: in words.
        cell: where.
        figure: what was measured; null where a peer or a figure is missing.
        limit: inclusive.
        at_least: whether the limit is a lower one.
    """

    aim: str
    cell: str
    figure: float | None
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the limit is kept; a figure that could not be measured keeps none."""
        if self.figure is None or math.isnan(self.figure):
            return False
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit

    @property
    def words(self) -> str:
        """The verdict in one line."""
        side = "at least" if self.at_least else "at most"
        came = "not measured" if self.figure is None else f"{self.figure:.3g}"
        return f"{'met' if self.met else 'MISSED'}: {self.cell}: {self.aim}, {side} {self.limit:g}; {came}"


def as_documents(verdicts: Iterable[Verdict]) -> list[dict[str, Any]]:
    """The verdicts as the documents of results have them."""
    return [{**asdict(one), "met": one.met, "words": one.words} for one in verdicts]


class Figures(NamedTuple):
    """The figures of all peers in a cell, and how aims are judged by them."""

    cell: str
    medians: Medians

    def value(self, peer: str, figure: str) -> float | None:
        """A figure of a peer, if it was measured."""
        return self.medians.get((self.cell, peer), {}).get(figure)

    def ratio(self, over: str, under: str, figure: str = "wall_seconds") -> float | None:
        """A figure of one peer over that of another."""
        above, below = self.value(over, figure), self.value(under, figure)
        return above / below if above is not None and below else None

    def at_most(self, aim: str, figure: float | None, limit: float) -> Verdict:
        """An aim with an upper limit."""
        return Verdict(aim, self.cell, figure, limit)

    def at_least(self, aim: str, figure: float | None, limit: float) -> Verdict:
        """An aim with a lower limit."""
        return Verdict(aim, self.cell, figure, limit, at_least=True)


def write_results(folder: Path, name: str, document: Mapping[str, Any], page: str, *, by_line: bool = False) -> None:
    """Write all figures into ``NAME.json``, on request with a line for each entry of its lists, and the page."""
    folder.mkdir(parents=True, exist_ok=True)
    text = as_lines(document) if by_line else json.dumps(document, indent=1)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(page, encoding="utf-8")


def as_lines(document: Mapping[str, Any]) -> str:
    """The document as JSON, with a line of text for each entry of its lists."""
    parts = []
    for name, value in document.items():
        entries = value if isinstance(value, list) else [value]
        words = ",\n".join(map(json.dumps, entries))
        parts.append(f"{json.dumps(name)}: " + (f"[\n{words}\n]" if isinstance(value, list) else words))
    return "{\n" + ",\n".join(parts) + "\n}"


def machine(**packages: str) -> dict[str, Any]:
    """Where a benchmark ran: cores, Python, and the versions of some packages by the names that results give them."""
    versions = {name: version(package) for name, package in packages.items()}
    return {"cores": os.cpu_count(), "python": platform.python_version(), **versions}


def in_words(setting: Mapping[str, Any]) -> str:
    """A setting as pages tell it."""
    return ", ".join(f"{name} {value}" for name, value in setting.items())


def page_of(title: str, *parts: str) -> str:
    """A page in Markdown."""
    return "\n\n".join((f"# {title}", *parts)) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(line)} |" for line in (head, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(head)}", *lines[1:]])


def write_all_aims(folder: Path) -> None:
    """Write the page from the documents that the folder has, and the waterfalls of what they missed."""
    write_waterfalls(folder)
    (folder / ALL_AIMS).write_text(_all_aims(folder), encoding="utf-8")


def _all_aims(folder: Path) -> str:
    """The page, in Markdown."""
    aims, met, missed = 0, 0, dict[str, list[str]]()
    for name, drawn, one in _aims(folder):
        aims += 1
        met += one["met"]
        if not one["met"]:
            aim, figure = _missed(one)
            where = f" ([waterfall]({drawn}))" if (folder / drawn).exists() else ""
            missed.setdefault(f"- {name}{where}: {aim}: ", []).append(figure)
    words = f"{aims} aims, {met} of them met. The pages are summaries; the JSON files"
    return "\n".join([
        "# All aims",
        "",
        words,
        "have all figures, and the limit and the figure of each aim. `python -m benchmarks` writes both.",
        "",
        "## Missed",
        "",
        *(aim + "; ".join(figures) for aim, figures in missed.items()),
        "",
    ])  # fmt: skip


def _aims(folder: Path) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The aims, each with the benchmark that it belongs to, and what a waterfall of that is called."""
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        name = document.get("row", path.stem) + (" (60 s)" if document.get("long") else "")
        page_name = _PAGES.get(path.stem.split("_")[0], f"{path.stem}.md")
        for verdict in document.get("verdicts", ()):
            if verdict["met"] is not None:
                yield f"[{name}]({page_name})", waterfall_of(path.stem), verdict


def _missed(one: Mapping[str, Any]) -> tuple[str, str]:
    """An aim, and what was measured in a cell that missed it."""
    if "limit" not in one:  # an aim over many cells, of which the worst is told
        return one["aim"], f"missed in {len(one['missed'])} of {one['cells']} cells, at worst {one['worst']}"
    figure = "not measured" if one["figure"] is None else f"{one['figure']:.3g}"
    side = "at least" if one["at_least"] else "at most"
    return f"{one['aim']}, {side} {one['limit']:g}", f"{one['cell']}, {figure}"
