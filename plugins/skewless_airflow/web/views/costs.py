"""What the runs of a job have cost: charts over its nights, and how large the next one should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from skewless.documents.bill import RunBill
from skewless.documents.job import Sized
from skewless.documents.savings import Savings
from skewless.errors import SkewlessError
from skewless.run.bill import rates_of
from skewless.run.directory import SAVINGS, RunDirectory
from skewless.run.sizing import Advice, Measured, advice_of, measured
from skewless.run.step_names import COMPARE
from skewless.run.step_times import TIMES
from skewless.spec.rates import Rates
from skewless_airflow.run_store import data_root
from skewless_airflow.web.run_folders import kept_by, open_run
from skewless_airflow.web.views.history import READING_SECONDS, HistoryView, Series, in_time

#: What a run tells, its bill among it; what is known of it under plain hashing; and how the nights before sized it.
_Night = tuple[Measured, Savings | None, tuple[Sized, ...]]


@dataclass(frozen=True)
class CostsView:
    """The bills of some runs.

    Attributes:
        series: figures over the runs, oldest first; none if no run has a bill.
        sized: what was set of the latest run, or what its spec kept, by what was measured before it, in sentences.
        note: what the prices are of, or why there are none.
    """

    series: tuple[Series, ...] = ()
    advice: tuple[Advice, ...] = ()
    sized: tuple[str, ...] = ()
    note: str = ""
    without: int = 0


def read_costs(dag_id: str, group: str, history: HistoryView) -> CostsView:
    """The bills of the runs of a DAG that are shown."""
    runs = [open_run(dag_id, line.run_id, group) for line in history.oldest_first]
    read = [_night(run) for run in in_time(runs[::-1], READING_SECONDS)]
    nights = [None] * (len(runs) - len(read)) + read[::-1]
    billed = [night for night in nights if night]
    if not billed:
        return CostsView()
    try:
        rates = rates_of(data_root())
        note = f"Prices are of {rates.core_hour:g} {rates.currency} for a core and an hour." if rates else ""
    except SkewlessError as err:
        rates, note = None, f"Prices are not known: {err}"
    series = (
        Series(name, unit, tuple(of(night[0].bill, night[1]) if night else None for night in nights))
        for name, unit, of in _figures(rates)
    )
    return CostsView(
        series=tuple(one for one in series if one.latest is not None),
        advice=advice_of([night for night, _, _ in billed]),
        sized=tuple(one.words for one in billed[-1][2]),
        note=note,
        without=sum(night.bill.unknown for night, _, _ in billed),
    )


def _night(run: RunDirectory) -> _Night | None:
    """None for a run without a bill, or whose documents cannot be read: its line says so."""
    try:
        found = _published(run) or _compared(run) or _read(run)
    except SkewlessError:
        return None
    return found if found[0].bill.held else None


def _read(run: RunDirectory) -> _Night:
    job = run.job()
    return measured(run, job), run.savings(), job.sizing


#: Of a run that has ended: no step of it runs again, and its times are written.
_published = kept_by(SAVINGS)(_read)
_compared = kept_by(f"{TIMES}/{COMPARE.name}.json")(_read)


def _figures(rates: Rates | None) -> list[tuple[str, str, Callable[[RunBill, Savings | None], float | None]]]:
    figures: list[tuple[str, str, Callable[[RunBill, Savings | None], float | None]]] = [
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
