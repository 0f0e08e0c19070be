"""What the runs of a job have cost: charts over its nights, and how large the next one should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from skewless.documents.bill import RunBill
from skewless.documents.savings import Savings
from skewless.errors import SkewlessError
from skewless.run.bill import rates_of
from skewless.run.sizing import Advice, advice_of
from skewless.spec.rates import Rates
from skewless_airflow.run_store import data_root
from skewless_airflow.web.run_folders import open_run
from skewless_airflow.web.views.history import HistoryView, RunLine, Series

#: So many nights tell what the next one should be like.
_LATEST = 7
_Figure = Callable[[RunBill, Savings | None], float | None]


@dataclass(frozen=True)
class CostsView:
    """The bills of some runs.

    Attributes:
        series: figures over the runs, oldest first; none if no run has a bill.
        advice: about the next run.
        note: what the prices are of, or why there are none.
        without: tries without a bill.
    """

    series: tuple[Series, ...] = ()
    advice: tuple[Advice, ...] = ()
    note: str = ""
    without: int = 0


def read_costs(dag_id: str, group: str, history: HistoryView) -> CostsView:
    """The bills of the runs of a DAG that are shown."""
    billed = [line for line in history.lines if line.bill is not None and line.bill.held]
    if not billed:
        return CostsView()
    try:
        rates = rates_of(data_root())
        note = f"Prices are of {rates.core_hour:g} {rates.currency} for a core and an hour." if rates else ""
    except SkewlessError as err:
        rates, note = None, f"Prices are not known: {err}"
    spec = open_run(dag_id, billed[0].run_id, group).job().spec
    bills = [line.bill for line in billed if line.bill is not None]
    return CostsView(
        series=tuple(_series(history, name, unit, of) for name, unit, of in _figures(rates)),
        advice=advice_of(spec, bills[:_LATEST]),
        note=note,
        without=sum(bill.unknown for bill in bills),
    )


def _figures(rates: Rates | None) -> list[tuple[str, str, _Figure]]:
    figures: list[tuple[str, str, _Figure]] = [
        ("core-seconds used", "rows", lambda bill, _: bill.counted.used),
        ("core-seconds idle", "rows", lambda bill, _: bill.counted.idle),
        ("core-seconds lost to skew", "rows", lambda bill, _: bill.counted.skew),
        ("core-seconds of lost tries", "rows", lambda bill, _: bill.lost_seconds),
        ("core-seconds that plain hashing would have added", "rows", _added),
    ]
    if rates:
        figures.append((f"price, {rates.currency}", "ratio", lambda bill, _: rates.price(bill.held)))
    return figures


def _added(bill: RunBill, savings: Savings | None) -> float | None:
    plain, _ = bill.replayed(savings)
    return plain.held - bill.held if plain else None


def _series(history: HistoryView, name: str, unit: str, of: _Figure) -> Series:
    def figure(line: RunLine) -> float | None:
        return of(line.bill, line.savings) if line.bill and line.bill.held else None

    return Series.of(name, unit, history, figure)
