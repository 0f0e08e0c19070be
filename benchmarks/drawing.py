"""Bars for figures, as SVG: the same figures give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure


class Bar(NamedTuple):
    """A bar; ours has a colour of its own."""

    label: str
    value: float
    ours: bool


def draw_bars(
    bars: Sequence[Bar], path: Path, salt: str, axis: str, *, height: float, form: str, line_at: float | None = None
) -> None:
    """Draw bars below each other; ids in the file come from the salt and not by chance, and text stays text."""
    with mpl.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(7, height), layout="constrained")
        axes = figure.add_subplot()
        colours = ["#1b6ca8" if bar.ours else "#b8b8b8" for bar in bars]
        drawn = axes.barh(range(len(bars)), [bar.value for bar in bars], color=colours)
        axes.bar_label(drawn, fmt=form, padding=3)
        axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_xlabel(axis)
        axes.spines[["top", "right"]].set_visible(False)
        if line_at is not None:
            axes.axvline(line_at, color="black", linewidth=0.8, linestyle=":")
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
