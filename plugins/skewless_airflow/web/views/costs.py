"""What the runs of a job have cost, and what other policies would have made of one of them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from skewless.documents.bill import AS_IT_RAN, ERROR_WORDS, Replayed, RunBill
from skewless.errors import SkewlessError
from skewless.planner.policies import POLICIES
from skewless.run.directory import SAVINGS, RunDirectory
from skewless.run.run_bills import bill_of, rates_of
from skewless.run.step_names import COMPARE
from skewless.run.step_times import TIMES
from skewless_airflow.run_store import data_root
from skewless_airflow.web.run_folders import kept_by, open_run
from skewless_airflow.web.views.history import READING_SECONDS, HistoryView, Series, in_time


@dataclass(frozen=True)
class CostsView:
    """The bills of some runs.

    Attributes:
        series: figures over the runs, oldest first; none if no run has a bill.
        note: what the prices are of, or why there are none.
        without: tries that have left no bill.
    """

    series: tuple[Series, ...] = ()
    note: str = ""
    without: int = 0


def read_costs(dag_id: str, group: str, history: HistoryView) -> CostsView:
    """The bills of the runs of a DAG that are shown."""
    runs = [open_run(dag_id, line.run_id, group) for line in history.oldest_first]
    read = [_night(run) for run in in_time(runs[::-1], READING_SECONDS)]
    nights = [None] * (len(runs) - len(read)) + read[::-1]
    if not any(nights):
        return CostsView()
    try:
        rates = rates_of(data_root())
        note = f"Prices are of {rates.core_hour:g} {rates.currency} for a core and an hour." if rates else ""
    except SkewlessError as err:
        rates, note = None, f"Prices are not known: {err}"
    figures = {
        "core-seconds used": lambda bill: bill.counted.used,
        "core-seconds idle": lambda bill: bill.counted.idle,
        "core-seconds lost to skew": lambda bill: bill.counted.skew,
        "core-seconds of lost tries": lambda bill: bill.lost_seconds,
    }
    series = [
        Series(name, "rows", tuple(figure(night) if night else None for night in nights))
        for name, figure in figures.items()
    ]
    if rates:
        prices = (rates.price(night.held) if night else None for night in nights)
        series.append(Series(f"price, {rates.currency}", "ratio", tuple(prices)))
    return CostsView(
        series=tuple(one for one in series if one.latest is not None),
        note=note,
        without=sum(night.unknown for night in nights if night),
    )


def _night(run: RunDirectory) -> RunBill | None:
    """None for a run without a bill, or whose documents cannot be read: its line says so."""
    try:
        night = _published(run) or _compared(run) or bill_of(run)
    except SkewlessError:
        return None
    return night if night.held else None


#: Of a run that has ended: no step of it runs again, and its times are written.
_published = kept_by(SAVINGS)(bill_of)
_compared = kept_by(f"{TIMES}/{COMPARE.name}.json")(bill_of)


@dataclass(frozen=True)
class WhatIfView:
    """A run as it ran, and under other policies, as far as documents say so.

    Attributes:
        missing: policies that nobody has replayed it under.
        command: what writes their documents.
    """

    lines: tuple[Replayed, ...]
    missing: tuple[str, ...]
    command: str
    error_words: str = ERROR_WORDS


def read_what_if(run: RunDirectory) -> WhatIfView:
    """The replays of a run that were written down: by its publication, and by ``skewless replay``."""
    written = {policy: run.replayed(policy) for policy in (AS_IT_RAN, *POLICIES)}
    missing = tuple(policy for policy, line in written.items() if line is None and policy != AS_IT_RAN)
    command = shlex.join(["skewless", "replay", str(run), "--policies", ",".join(missing)])
    return WhatIfView(tuple(line for line in written.values() if line is not None), missing, command)
