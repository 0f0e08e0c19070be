"""Bars for figures, as SVG: the same figures give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

#: The part of the longest bar from which on a part of one has its seconds written in it.
LEAST_TOLD = 0.03
#: The same for a colour of its own.
LEAST_SHOWN = 0.005


class Bar(NamedTuple):
    """A bar; ours has a colour of its own."""

    label: str
    value: float
    ours: bool


class Parts(NamedTuple):
    """A bar of parts one after the other."""

    label: str
    seconds: Mapping[str, float]


def draw_parts(bars: Sequence[Parts], path: Path, salt: str) -> None:
    """Draw bars below each other, of which each part has its colour, its seconds, and a line of the legend.

    Parts that are small in all bars are one.
    """
    longest = max(sum(bar.seconds.values()) for bar in bars)
    large = {name for bar in bars for name, seconds in bar.seconds.items() if seconds > longest * LEAST_SHOWN}
    bars = [_joined(bar, large) for bar in bars]
    names = list(dict.fromkeys(name for bar in bars for name in bar.seconds))
    with _style(salt):
        figure = Figure(figsize=(9, 1.2 + 0.3 * len(bars) + 0.18 * len(names)), layout="constrained")
        axes = figure.add_subplot()
        begun = [0.0] * len(bars)
        for number, name in enumerate(names):
            seconds = [bar.seconds.get(name, 0.0) for bar in bars]
            colour = mpl.colormaps["tab20"](number % 20)
            drawn = axes.barh(range(len(bars)), seconds, left=begun, color=colour, label=name)
            told = [f"{one:.1f}" if one > longest * LEAST_TOLD else "" for one in seconds]
            axes.bar_label(drawn, told, label_type="center", fontsize=7)
            begun = [sum(two) for two in zip(begun, seconds, strict=True)]
        axes.set_yticks(range(len(bars)), [f"{bar.label}: {sum(bar.seconds.values()):.1f} s" for bar in bars])
        axes.invert_yaxis()
        axes.set_xlabel("seconds (means)")
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=2, fontsize=7)
        _save(figure, path)


def _joined(bar: Parts, large: set[str]) -> Parts:
    found = {name: seconds for name, seconds in bar.seconds.items() if name in large}
    return Parts(bar.label, {**found, "all else": sum(bar.seconds.values()) - sum(found.values())})


def draw_bars(
    bars: Sequence[Bar], path: Path, salt: str, axis: str, *, height: float, form: str, line_at: float | None = None
) -> None:
    """Draw bars below each other; ids in the file come from the salt and not by chance, and text stays text."""
    with _style(salt):
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
        _save(figure, path)


def draw_lines(lines: Mapping[str, Mapping[float, float]], path: Path, salt: str, across: str, upwards: str) -> None:
    """Draw lines of points over a logarithmic axis; their names stand below."""
    with _style(salt):
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot(xscale="log", xlabel=across, ylabel=upwards)
        for name, points in lines.items():
            axes.plot([*points], [*points.values()], marker="o", label=name)
        ticks = sorted({at for points in lines.values() for at in points})
        axes.set_xticks(ticks, [f"{at:g}" for at in ticks], minor=False)
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=2, fontsize=7)
        _save(figure, path)


def _style(salt: str) -> AbstractContextManager[None]:
    return mpl.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none", "font.size": 9})


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
