"""The bills of nights, as a table of days."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from skewless.documents.bill import Amounts
from skewless.errors import RunDirectoryError
from skewless.run.folder import runs_below
from skewless.run.run_bills import Night, Rates, nights, rates_of

_SECONDS = ("used", "idle", "skew", "lost")


def as_object(root: str, job: str | None, since: dt.date | None) -> dict[str, Any]:
    """The object of ``skewless costs --json``: seconds are core-seconds, but for those that were saved.

    Raises:
        RunDirectoryError: no run below the root has a bill.
        SpecError: the file of rates is wrong.
    """
    rates, folder = rates_of(root), runs_below(root)
    billed = sorted(nights(folder, job, since), key=lambda night: (night.date, night.job, night.run))
    if not billed:
        whose, late = f" of job {job}" if job else "", f" since {since}" if since else ""
        hint = "run one; runs of older releases have no bill"
        raise RunDirectoryError.saying(f"runs folder {folder}", f"no run{whose}{late} has a bill", hint)
    days = [{"day": day, **_sums(list(some), rates)} for day, some in groupby(billed, lambda night: night.date)]
    return {"job": job, "rates": rates.model_dump() if rates else None, "days": days, "total": _sums(billed, rates)}


def _sums(some: Sequence[Night], rates: Rates | None) -> dict[str, Any]:
    amounts = Amounts.total(night.bill.counted for night in some)
    saved = [night.savings.seconds_saved for night in some if night.savings is not None]
    known = [seconds for seconds in saved if seconds is not None]
    return {
        "runs": len(some),
        "used_seconds": round(amounts.used, 3),
        "idle_seconds": round(amounts.idle, 3),
        "skew_seconds": round(amounts.skew, 3),
        "lost_seconds": round(sum(night.bill.lost_seconds for night in some), 3),
        "tries_without_bill": sum(night.bill.unknown for night in some),
        "shuffle_bytes": amounts.shuffle_bytes,
        "spilled_bytes": amounts.spilled_bytes,
        "price": rates and round(rates.price(sum(night.bill.held for night in some)), 6),
        "saved_seconds": round(sum(known), 3) if known else None,
        "saved_runs": len(known),
    }


def lines(costs: Mapping[str, Any]) -> Iterator[str]:
    """The table, a line each, and what it does not hold."""
    rates = costs["rates"]
    price = [f"price, {rates['currency']}"] if rates else []
    head = ["day", "used", "idle", "skew", "lost tries", "shuffled", "spilled", *price, "saved"]
    table = [head, *(_cells(day["day"], day) for day in costs["days"]), _cells("total", costs["total"])]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join([first.strip().ljust(widths[0]), *others])
    hour = f"{rates['core_hour']:g} {rates['currency']} for a core and an hour" if rates else ""
    yield (
        "Used, idle, skew and lost tries are core-seconds; prices are of all four, at "
        f"{hour or 'no rate: costs.yaml at the data root has none'}. Saved are seconds that longest tasks were shorter "
        "than under plain hashing."
    )
    if without := costs["total"]["tries_without_bill"]:
        yield f"{without:,} tries have left no bill, as their driver was killed or is at work: they are not in it."


def _cells(day: str, sums: Mapping[str, Any]) -> list[str]:
    price = [] if sums["price"] is None else [f"{sums['price']:,.4f}"]
    some = "" if sums["saved_runs"] == sums["runs"] else f" ({sums['saved_runs']} of {sums['runs']} runs)"
    saved = "not known" if sums["saved_seconds"] is None else f"{sums['saved_seconds']:,.1f} s{some}"
    seconds = [f"{sums[f'{name}_seconds']:,.1f}" for name in _SECONDS]
    return [day, *seconds, f"{sums['shuffle_bytes']:,}", f"{sums['spilled_bytes']:,}", *price, saved]
