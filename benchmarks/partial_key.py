"""Partial Key Grouping's figures 4, 6, 8 and 9 played again: ``make bench ONLY=partial_key``.

Nasir et al., "Partial Key Grouping", section 6.2. Its Wikipedia, Twitter and graph streams are not public in that form,
so figure 8 has edges between Zipf vertices. The paper prints curves: what it says of them in words is the aim here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from benchmarks.outcome import Outcome
from benchmarks.peers import measurement
from benchmarks.peers.measurement import Stream
from benchmarks.peers.routes import hashing, pkg_global, pkg_local
from benchmarks.result_files import Verdict, as_documents, machine, page_of, table
from benchmarks.workloads import Keys, lognormal_1, lognormal_2, zipf

NAME = "partial_key"
TASKS, SOURCES = (5, 10, 50, 100), (5, 10, 15, 20)
#: Of figure 6, with 10,000 keys and five workers.
EXPONENTS, MOST_SOURCES = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2), (2, 5, 10, 20, 50)
#: Of figure 9, with Zipf 1.2 of a million keys. The paper: balanced again from four choices on for five workers, from
#: nine for forty; for 50 and 100 from "a few tens".
CHOICES, WIDE = (2, 3, 4, 6, 9, 12, 20, 30, 50), (5, 10, 40, 50, 100)
PUBLISHED_CHOICES = {5: 4, 40: 9, 50: 50, 100: 50}
#: An average imbalance of this part of the messages is none to speak of.
BALANCED = 1e-3
#: "Always less than one order of magnitude" from the true loads, with local ones.
ORDER_OF_MAGNITUDE = 10.0


class Size(NamedTuple):
    """How long the streams are, and how many keys figure 9 has."""

    messages: int = 10_000_000
    keys: int = 1_000_000


def measure(size: Size | None = None) -> dict[str, Any]:
    """All four figures."""
    size = size or Size()
    found = {
        "figure_4": list(_sources(size)), "figure_6": list(_disagreement(size)), "figure_8": list(_skewed(size)),
        "figure_9": list(_choices(size)),
    }  # fmt: skip
    document = {"size": size._asdict(), **found, "setting": machine(numpy="numpy")}
    return {**document, "verdicts": as_documents(verdicts(document))}


def _sources(size: Size) -> Iterator[dict[str, Any]]:
    """Figure 4: hashing, true loads, and the loads that each of S sources knows."""
    streams: Mapping[str, Callable[[int], Keys]] = {"LN1": lognormal_1, "LN2": lognormal_2}
    for name, draw in streams.items():
        keys = draw(size.messages)
        for tasks in TASKS:
            stream = Stream.of(keys, tasks)
            line = {"H": _fraction("hashing", stream, hashing), "G": _fraction("G", stream, pkg_global)}
            line |= {f"L{s}": _fraction("L", replace(stream, sources=s), pkg_local) for s in SOURCES}
            yield _told("figure_4", {"stream": name, "tasks": tasks, **line})


def _disagreement(size: Size) -> Iterator[dict[str, Any]]:
    """Figure 6: the part of the messages that sources send elsewhere than who knows the true loads."""
    for exponent in EXPONENTS:
        stream = Stream.of(zipf(10_000, exponent, size.messages, 6), 5)
        true = pkg_global(stream)
        for sources in MOST_SOURCES:
            local = replace(stream, sources=sources)
            targets = pkg_local(local)
            line = {
                "elsewhere": float(np.mean(targets != true)),
                "L": measurement.measure("L", local, targets).imbalance_fraction,
            }
            yield _told("figure_6", {"exponent": exponent, "sources": sources, **line})


def _skewed(size: Size) -> Iterator[dict[str, Any]]:
    """Figure 8: sources that take turns, or have the edges that begin at their vertices."""
    begins = zipf(100_000, 1.0, size.messages, 8)
    ends = zipf(100_000, 0.8, size.messages, 9)
    for tasks in TASKS:
        for sources in SOURCES:
            even = Stream.of(ends, tasks, sources)
            uneven = replace(even, uneven=hashing(Stream.of(begins, sources, 1, seed=1)))
            largest = np.bincount(uneven.senders).max() / size.messages * sources
            line = {"even": _fraction("L", even, pkg_local), "uneven": _fraction("L", uneven, pkg_local)}
            yield _told("figure_8", {"tasks": tasks, "sources": sources, "largest": float(largest), **line})


def _choices(size: Size) -> Iterator[dict[str, Any]]:
    """Figure 9: more choices than two."""
    keys = zipf(size.keys, 1.2, size.messages, 9)
    for tasks in WIDE:
        stream = Stream.of(keys, tasks)
        for choices in CHOICES:
            found = _outcome("L", stream, lambda one, d=choices: pkg_local(one, d))  # type: ignore[misc]
            line = {"L5": found.imbalance_fraction, "states_per_key": found.states_per_key}
            yield _told("figure_9", {"tasks": tasks, "choices": choices, **line})


def _outcome(name: str, stream: Stream, route: Callable[[Stream], Any]) -> Outcome:
    return measurement.measure(name, stream, route(stream))


def _fraction(name: str, stream: Stream, route: Callable[[Stream], Any]) -> float:
    return _outcome(name, stream, route).imbalance_fraction


def _told(figure: str, line: dict[str, Any]) -> dict[str, Any]:
    sys.stderr.write(f"{figure}: {line}\n")
    return line


def verdicts(found: Mapping[str, Any]) -> list[Verdict]:
    """What the paper says of each figure."""
    local = [max(line[f"L{s}"] for s in SOURCES) / line["G"] for line in found["figure_4"]]
    even = [line["uneven"] / line["even"] for line in found["figure_8"]]
    by_skew = {
        exponent: max(line["elsewhere"] for line in found["figure_6"] if line["exponent"] == exponent)
        for exponent in EXPONENTS
    }
    return [
        Verdict("average imbalance with local over that with true loads", "figure 4", max(local), ORDER_OF_MAGNITUDE),
        Verdict("messages sent elsewhere, most over least skew", "figure 6", by_skew[1.2] / by_skew[0.2], 1.0),
        Verdict("average imbalance, uneven over even sources", "figure 8", max(even), ORDER_OF_MAGNITUDE),
        *(
            Verdict("fewest choices that balance", f"figure 9, {tasks} workers", _enough(found, tasks), published)
            for tasks, published in PUBLISHED_CHOICES.items()
        ),
    ]


def _enough(found: Mapping[str, Any], tasks: int) -> float:
    """The fewest choices that balance so many tasks."""
    good = (line["choices"] for line in found["figure_9"] if line["tasks"] == tasks and line["L5"] < BALANCED)
    return min(good, default=float("inf"))


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    size = Size(**document["size"])
    about = (
        f"Some of all cells: fractions of average imbalance, of {size.messages:,} messages. H: hashing; G: two choices"
        " by true loads; L5: by what each of five sources has sent itself. elsewhere: the part of the messages that"
        " sources send elsewhere than G, of 10,000 keys. largest: the largest source over its fair share, where"
        f" each has the edges of its vertices. Figure 9 has Zipf 1.2 of {size.keys:,} keys. The paper has streams of"
        " Wikipedia, Twitter and LiveJournal too, which are not here; what it says of its curves is the aim."
    )
    shown = {
        "Figure 4": ("stream", "tasks", "H", "G", "L5", "L20"),
        "Figure 6": ("exponent", "sources", "elsewhere", "L"),
        "Figure 8": ("tasks", "sources", "largest", "even", "uneven"),
        "Figure 9": ("tasks", "choices", "L5", "states_per_key"),
    }
    kept = {"exponent": (0.2, 0.8, 1.2), "sources": (20,), "choices": (2, 4, 9, 20), "tasks": (5, 40, 100)}
    tables = {
        figure: table(columns, [
            [f"{one[name]:.2g}" if isinstance(one[name], float) else str(one[name]) for name in columns]
            for one in document[figure.lower().replace(" ", "_")]
            if all(one[name] in some for name, some in kept.items() if name in columns)
        ])
        for figure, columns in shown.items()
    }  # fmt: skip
    return page_of("Partial Key Grouping", about, *(f"## {title}\n\n{body}" for title, body in tables.items()))
