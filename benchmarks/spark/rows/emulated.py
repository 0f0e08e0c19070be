"""Cells whose cost is slept: rows that take so long, on slots of which the machine need not have as many."""

from __future__ import annotations

from typing import Any

from benchmarks.spark.cell import TOTAL

#: Slots, W: tasks side by side.
SLOTS = 8


def rows_for(ideal_seconds: float, seconds_per_row: float, slots: int = SLOTS) -> int:
    """How many rows keep all slots busy for so long."""
    return round(ideal_seconds * slots / seconds_per_row)


def paced(seconds_per_row: float, function: str = "paced_sum", **options: Any) -> dict[str, dict[str, Any]]:
    """The sum that takes so long per row."""
    return {TOTAL: {"function": function, "column": "value", "seconds_per_row": seconds_per_row, **options}}
