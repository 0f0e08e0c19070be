"""All rows that were measured as one page to read, and a plot of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

INTRODUCTION = """\
Each row runs all its peers by turns, in one process, on one input; the figures are medians, and a ratio counts, an
absolute time does not. Every peer reads the same Parquet files and writes its result as Parquet, and every answer was
held to ours: a wrong one fails the row. Costs per row are slept, so that W slots fit on two cores; T* is the total cost
over W. Of ours are timed `prepare`, the stages, the decisions between them and the merge: what any peer does from its
first line to its written result. `validate` and `publish` are timed apart.
"""

#: Figures of a table: their name in the documents, their head, and how they are written.
FIGURES = (
    ("wall_seconds", "wall, s", "{:.2f}"),
    ("wall_over_ideal", "wall / T*", "{:.3f}"),
    ("load_over_ideal", "largest loads / T*", "{:.3f}"),
    ("stages", "stages", "{:.0f}"),
    ("overhead_per_stage_seconds", "overhead per stage, s", "{:.2f}"),
    ("partial_states", "partial states", "{:,.0f}"),
    ("state_bytes", "bytes of states", "{:,.0f}"),
    ("shuffled_bytes", "bytes shuffled", "{:,.0f}"),
    ("rows_forwarded", "rows forwarded", "{:,.0f}"),
    ("set_ups", "set-ups", "{:,.0f}"),
    ("rows_read", "rows read", "{:,.0f}"),
    ("states_made", "states made", "{:,.0f}"),
    ("states_read", "states read", "{:,.0f}"),
)
#: Steps of a run that no peer has.
APART = ("validate_seconds", "publish_seconds")
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
    parts = ["# Skewless on Spark, and what people use", INTRODUCTION.strip(), "## Aims"]
    parts.append("\n".join(f"- {_ident(row)}: {one['words']}" for row in documents for one in row["verdicts"]))
    for row in documents:
        parts += _row(row)
    return "\n\n".join(parts) + "\n"


def _row(row: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {_ident(row)} {row['title']}"
    yield f"{row['text']} {_measured(row)}"
    yield f"![{row['row']}: {_AXES[row['plotted']]}, by peer]({file_name(row)}.svg)"
    yield _table_of(row)
    apart = [line for line in row["lines"] if line["profile"]]
    if apart:
        yield "Ours, step by step, in seconds:"
        yield _steps(apart)


def _ident(row: Mapping[str, Any]) -> str:
    return f"{row['row']} (long)" if row["long"] else str(row["row"])


def _measured(row: Mapping[str, Any]) -> str:
    setting = row["setting"]
    size = "" if row["scale"] == 1 else f" AT {row['scale']:g} OF THE FULL SIZE: no result, a look."
    return (
        f"Measured{size} on {setting['cores']} cores, {setting['memory_gib']:g} GiB, Python {setting['python']}, Spark"
        f" {setting['spark']}, Java {setting['java']}, with engines {', '.join(setting['engines'])};"
        f" {row['repetitions']} repetitions, but one of a peer that takes more than {row['patience_seconds']:g} s;"
        f" {row['took_seconds']:,} s in all."
    )


def _table_of(row: Mapping[str, Any]) -> str:
    shown = [figure for figure in FIGURES if any(figure[0] in line["figures"] for line in row["lines"])]
    lines = [
        [
            line["cell"], line["peer"], str(len(line["walls"])),
            *(form.format(line["figures"][name]) if name in line["figures"] else "" for name, _, form in shown),
        ]
        for line in row["lines"]
    ]  # fmt: skip
    return _table(["cell", "peer", "runs", *(head for _, head, _ in shown)], lines)


def _steps(lines: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(name for line in lines for name in line["profile"]))
    head = [
        "cell",
        "peer",
        *names,
        "prepare",
        "stages",
        "merge",
        "apart: " + ", ".join(name.split("_")[0] for name in APART),
    ]
    rows = []
    for line in lines:
        figures = line["figures"]
        apart = " / ".join(f"{figures[name]:.2f}" for name in APART)
        profile = [f"{line['profile'].get(name, 0.0):.2f}" for name in names]
        timed = [f"{figures[f'{step}_seconds']:.2f}" for step in ("prepare", "stages", "merge")]
        rows.append([line["cell"], line["peer"], *profile, *timed, apart])
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plot(document: Mapping[str, Any], path: Path) -> None:
    """A bar for each peer in each cell; the same figures give the same bytes."""
    name = document["plotted"]
    lines = [line for line in document["lines"] if name in line["figures"]]
    # Text stays text, and ids come from the row and not by chance.
    with mpl.rc_context({"svg.hashsalt": document["row"], "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(7, 0.6 + 0.27 * len(lines)), layout="constrained")
        axes = figure.add_subplot()
        labels = [f"{line['cell']}  {line['peer']}" for line in lines]
        values = [line["figures"][name] for line in lines]
        colours = ["#1b6ca8" if line["peer"].startswith("skewless") else "#b8b8b8" for line in lines]
        bars = axes.barh(range(len(lines)), values, color=colours)
        axes.bar_label(bars, fmt="{:.2f}", padding=3)
        axes.set_yticks(range(len(lines)), labels)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_xlabel(_AXES[name])
        axes.spines[["top", "right"]].set_visible(False)
        if name == "wall_over_ideal":
            axes.axvline(1.0, color="black", linewidth=0.8, linestyle=":")
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
