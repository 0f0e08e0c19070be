"""B10: windows of up to four weeks, night by night."""

from __future__ import annotations

from typing import Any

from benchmarks.result_files import Figures, Verdict
from benchmarks.spark.cell import COUNT_AND_SUM, Cell, Peer, Row, Size
from benchmarks.spark.datasets import VALUES, LakeOfDays
from benchmarks.spark.peers.nights import DailyPartials, MovingLake, NightsOfSkewless, Recompute
from benchmarks.spark.setting import CORES

WINDOWS = (1, 7, 28)
_, SHORT, WINDOW = WINDOWS
OURS, ANEW, BY_HAND = "skewless", "recompute", "daily partials"
SKETCHES: dict[str, dict[str, Any]] = {
    "n": {"function": "count"},
    "visitors": {"function": "approx_count_distinct", "column": "visitor"},
    "median": {"function": "approx_percentile", "column": "value", "percentage": 0.5},
    "top": {"function": "approx_top_k", "column": "item", "k": 5},
}
LATE = {f"one late file, window {window}": window for window in (SHORT, WINDOW)}


def _cells(size: Size) -> list[Cell]:
    data = LakeOfDays(rows=size.rows(1_000_000), keys=size.keys(200_000), exponent=1.2, files=4)
    return [
        Cell("sums", data, COUNT_AND_SUM, CORES),
        # As in B3: five standard deviations of a distinct count; ranks are off by 1.33 % at most, in each of the two.
        Cell(
            "sketches", data, SKETCHES, CORES,
            tolerances={"visitors": 0.10, "median": 0.06}, spans={"median": float(VALUES)},
        ),
        *(Cell(name, data, COUNT_AND_SUM, CORES) for name in LATE),
    ]  # fmt: skip


def _peers(cell: Cell) -> list[Peer]:
    if cell.name in LATE:
        return [NightsOfSkewless(MovingLake("late"), (LATE[cell.name],))]
    lake = MovingLake()
    return [NightsOfSkewless(lake, WINDOWS), Recompute(lake, WINDOWS), DailyPartials(lake, WINDOWS)]


def _judge(cell: Cell, of: Figures) -> list[Verdict]:
    if cell.name == "sums":
        return [of.at_least("times as fast as recomputing", of.ratio(ANEW, OURS), 8.0)]
    if cell.name == "sketches":
        return [of.at_least("gain over recomputing, over that of daily partials", of.ratio(BY_HAND, OURS), 0.87)]
    short = next(iter(LATE))
    if cell.name == short:
        return []
    found = []
    for figure, words in (("rows_read", "rows read"), ("states_made", "states made")):
        much, little = of.value(OURS, figure), Figures(short, of.medians).value(OURS, figure)
        more = much / little if much is not None and little else None
        found.append(of.at_most(f"{words}, over those with window {SHORT}", more, 1.0))
    return found


B10 = Row(
    ident="B10",
    title="Nights: what do windows of up to four weeks cost that build on the nights before?",
    text="Windows of 1, 7 and 28 days in one result; a day has 1 M rows, 200 k possible keys, Zipf z=1.2. Each night a "
    "new day comes, and 2 % of a day's rows come late for each of the last three days. `recompute` is plain Spark "
    "over all rows. `daily partials` is a table of partial aggregates by hand: days that may have changed are "
    "computed anew, and all are merged. One late file: 1 % of a day, three days old, and no new day. Runs are the "
    "nights, one after the other; what was kept of the days before the first night is made beforehand. Rows and "
    "states read are Spark's metrics.",
    slots=CORES,
    cells=_cells,
    peers=_peers,
    judge=_judge,
)
