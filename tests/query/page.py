"""The table of ``docs/queries.md``: which queries are in the class, and why the others are not."""

import re
from pathlib import Path

_PAGE = Path(__file__).parents[2] / "docs" / "queries.md"


def decided(corpus: str) -> dict[int, str]:
    """By the number of a query with one aggregation over one large table, why it is out; empty if it is in."""
    rows = re.findall(rf"^\| {corpus} \| (in|out: [^|]+) \| ([\d ]+) \|", _PAGE.read_text(), re.MULTILINE)
    return {
        int(number): why.removeprefix("in").removeprefix("out: ") for why, numbers in rows for number in numbers.split()
    }


def shares() -> dict[str, tuple[int, int]]:
    """By set of queries, how many are in the class, of how many."""
    rows = re.findall(r"^\| (TPC-H|TPC-DS|public) \| (\d+) of (\d+),", _PAGE.read_text(), re.MULTILINE)
    return {name: (int(some), int(all_of)) for name, some, all_of in rows}
