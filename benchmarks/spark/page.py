"""All rows that were measured as one page to read, and a plot of each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.drawing import Bar, draw_bars
from benchmarks.result_files import table

INTRODUCTION = """\
All peers of a benchmark run by turns, in one process, on one input. They read the same Parquet files and write their
result as Parquet; a wrong answer fails the benchmark. Each figure is a median; a peer that takes more than 30 s
(`--patience`) runs once. Costs per row are slept, so that W slots fit on two cores; T* is the total cost over W. Ours
is timed from `prepare` to the merge: what a peer does from its first line to its result. [All aims](README.md) tells
what is missed; the JSON files have loads, states, bytes and the seconds of each step.
"""

_AXES = {"wall_seconds": "wall time in seconds (median)", "wall_over_ideal": "wall time over T* (median)"}


def write(document: Mapping[str, Any], folder: Path) -> None:
    """Write a row's document and plot, and the page of all rows that the folder has."""
    folder.mkdir(parents=True, exist_ok=True)
    name = file_name(document)
    (folder / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    plot(document, folder / f"{name}.svg")
    found = sorted(folder.glob("spark_b*.json"), key=lambda path: (len(path.stem.split("_")[1]), path.stem))
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in found]
    (folder / "spark.md").write_text(page(documents), encoding="utf-8")


def file_name(document: Mapping[str, Any]) -> str:
    """What the files of a row are called, without their ending."""
    return f"spark_{document['row'].lower()}{'_long' if document['long'] else ''}"


def page(documents: Sequence[Mapping[str, Any]]) -> str:
    """The page, in Markdown."""
    parts = ["# Skewless on Spark, and what people use", INTRODUCTION.strip(), *dict.fromkeys(map(_setting, documents))]
    for row in documents:
        size = "" if row["scale"] == 1 else f" AT {row['scale']:g} OF THE FULL SIZE (no result, a look)"
        parts += [f"## {_ident(row)} {row['title']}{size}", *([] if row["long"] else [row["text"]])]
        parts += [f"![{_ident(row)}]({file_name(row)}.svg)", _table_of(row)]
    return "\n\n".join(parts) + "\n"


def _ident(row: Mapping[str, Any]) -> str:
    return f"{row['row']} (long)" if row["long"] else str(row["row"])


def _setting(row: Mapping[str, Any]) -> str:
    setting = row["setting"]
    return f"{row['repetitions']} repetitions on {setting['cores']} cores, Spark {setting['spark']}."


def _table_of(row: Mapping[str, Any]) -> str:
    """The plotted figure of each peer in each cell."""
    name = row["plotted"]
    found = {(line["peer"], line["cell"]): line["figures"].get(name) for line in row["lines"]}
    cells = dict.fromkeys(cell for _, cell in found)
    lines = [
        (peer, *("" if found.get((peer, cell)) is None else f"{found[peer, cell]:.2f}" for cell in cells))
        for peer in dict.fromkeys(peer for peer, _ in found)
    ]
    return table((_AXES[name], *cells), lines)


def plot(document: Mapping[str, Any], path: Path) -> None:
    """A bar for each peer in each cell."""
    name = document["plotted"]
    bars = [
        Bar(f"{line['cell']}  {line['peer']}", line["figures"][name], line["peer"].startswith("skewless"))
        for line in document["lines"]
        if name in line["figures"]
    ]
    line_at = 1.0 if name == "wall_over_ideal" else None
    height = 0.6 + 0.27 * len(bars)
    draw_bars(bars, path, document["row"], _AXES[name], height=height, form="{:.2f}", line_at=line_at)
