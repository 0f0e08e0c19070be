"""The DPA load balancer's Table 1 and Figure 3, the paper's and ours: ``python -m benchmarks.dpa_table [--json]``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.dpa.experiments import CELLS, MOST_ROUNDS, OTHER_SPEEDS, PLANNERS, bound, misses, results
from benchmarks.result_files import RESULTS, table, write_results

TABLE = ("workload", "start", "paper without", "paper with", "ours without", "ours with", *PLANNERS)
SPEEDS_TABLE = ("workload", "start", "at most", *OTHER_SPEEDS)
FIGURE = ("workload", "start", "method", *map(str, range(MOST_ROUNDS + 1)))


def main(arguments: Sequence[str] | None = None, folder: Path = RESULTS) -> None:
    """Measure, write ``dpa_table.json`` and ``dpa_table.md`` into the folder, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON document instead of tables")
    options = parser.parse_args(arguments)
    found = results()
    write_results(folder, "dpa_table", found, markdown(found))
    if options.json:
        print(json.dumps(found, indent=1))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)  # a pipe or a log has no width, and takes long lines
    for title, head, rows in (
        ("S, at most one round per reducer", TABLE, table_rows(found)),
        ("The same at other speeds", SPEEDS_TABLE, speed_rows(found)),
        ("S by rounds per reducer", FIGURE, figure_rows(found)),
    ):
        shown = Table(*head, title=title)
        for row in rows:
            shown.add_row(*row)
        console.print(shown)
    for line in remarks(found):
        console.print(f"- {line}", highlight=False)


def table_rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """The ten cells, two decimals as in the paper."""
    return [
        (
            cell["workload"],
            cell["start"],
            f"{cell['published']['start']:.2f}",
            f"{cell['published']['balanced']:.2f}",
            f"{cell['skew_without']:.2f}",
            *(f"{skew:.2f}" for skew in cell["skew_with"].values()),
        )
        for cell in found["cells"]
    ]


def speed_rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """S of the planner in each cell at each of the other speeds; one above its bound has a mark."""
    return [
        (
            *place,
            f"{bound(*place):.2f}",
            *(
                f"{skews[' '.join(place)]:.2f}{' (!)' if _is_above(skews[' '.join(place)], *place) else ''}"
                for skews in found["at_other_speeds"].values()
            ),
        )
        for place in CELLS
    ]


def _is_above(skew: float, workload: str, start: str) -> bool:
    """Whether S is above its bound, to two decimals as in the paper; one letter can be split exactly."""
    return skew > 0 if workload == "WL3" else round(skew, 2) > bound(workload, start)


def figure_rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """One row per curve."""
    return [
        (cell["workload"], cell["start"], method, *(f"{skew:.2f}" for skew in curve))
        for cell in found["cells"]
        for method, curve in cell["skew_by_rounds"].items()
    ]


def remarks(found: dict[str, Any]) -> list[str]:
    """Which aims are missed, here and at other speeds; what is lost is said like what is won."""
    lines = []
    for method in PLANNERS:
        lost = [
            f"{cell['workload']} {cell['start']} ({', '.join(aims)})"
            for cell in found["cells"]
            if (aims := misses(cell, method))
        ]
        lines.append(f"{method}: {'; '.join(lost) if lost else 'all aims are met'}")
    for speeds, skews in found["at_other_speeds"].items():
        lost = [f"{cell} {skew:.3f}" for cell, skew in skews.items() if _is_above(skew, *cell.split())]
        lines.append(f"{speeds}: {'; '.join(lost) if lost else 'none'}")
    return lines


def markdown(found: dict[str, Any]) -> str:
    """The readable table."""
    setting = found["setting"]
    tokens = setting["tokens_at_start"]
    text = (
        f"{setting['mappers']} mappers, {setting['reducers']} reducers, 100 items, threshold {setting['threshold']}. "
        f"Halving starts with {tokens['halving']} tokens each, doubling with {tokens['doubling']}, the planner with "
        f"the same ring. In a tick a mapper pushes {setting['pushes_per_mapper_and_tick']} items and a reducer reduces "
        f"one; the queues are looked at in tick {setting['first_look_tick']} and every {setting['look_every_ticks']} "
        "after it. The paper publishes neither speeds nor letters: the letters were searched for by its own figures. "
        "`dpa_table.json` has the other speeds and the paper's Figure 3, S by rounds."
    )
    parts = [
        "# The DPA load balancer's Table 1",
        text,
        "## S, at most one round per reducer",
        table(TABLE, table_rows(found)),
        "## Aims missed",
        (
            "At most the paper's S with its move, to two decimals; 0 on WL3; never above the start; never worse by "
            "more rounds, beyond one item. At other speeds the bound is the lesser of the paper's S with its move and "
            "without."
        ),
        "\n".join(f"- {line}" for line in remarks(found) if not line.endswith(": none")),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
