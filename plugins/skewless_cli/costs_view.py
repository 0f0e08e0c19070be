"""The bills of nights: a table of days."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from skewless.documents.bill import Amounts, OtherBill
from skewless.errors import RunDirectoryError
from skewless.run.bill import Night, nights, rates_of
from skewless.run.folder import runs_below
from skewless.spec.rates import Rates

_HEAD = ("day", "used", "idle", "skew", "lost tries", "shuffled", "spilled")


def as_object(root: str, job: str | None, since: dt.date | None) -> dict[str, Any]:
    """The object of ``skewless costs --json``: seconds are core-seconds.

    Raises:
        RunDirectoryError: no run below the root has a bill.
        SpecError: the file of rates is wrong.
    """
    rates, folder = rates_of(root), runs_below(root)
    found = sorted(nights(folder, job, since), key=lambda one: (one.date, one.job, one.run))
    if not found:
        whose = f" of job {job}" if job else ""
        late = f" since {since}" if since else ""
        hint = "run one; runs of older releases have no bill"
        raise RunDirectoryError.saying(f"runs folder {folder}", f"no run{whose}{late} has a bill", hint)
    days = [{"day": day, **_sums(list(some), rates)} for day, some in groupby(found, lambda one: one.date)]
    return {"job": job, "rates": rates.model_dump() if rates else None, "days": days, "total": _sums(found, rates)}


def _sums(some: Sequence[Night], rates: Rates | None) -> dict[str, Any]:
    amounts = Amounts.total(one.bill.counted for one in some)
    lost, held = (sum(found) for found in zip(*((one.bill.lost_seconds, one.bill.held) for one in some), strict=True))
    replayed = [one.bill.replayed(one.savings) for one in some]
    told: dict[str, Any] = {
        "runs": len(some),
        "used_seconds": round(amounts.used, 3),
        "idle_seconds": round(amounts.idle, 3),
        "skew_seconds": round(amounts.skew, 3),
        "lost_seconds": round(lost, 3),
        "tries_without_bill": sum(one.bill.unknown for one in some),
        "shuffle_bytes": amounts.shuffle_bytes,
        "spilled_bytes": amounts.spilled_bytes,
    }
    told["price"] = rates and round(rates.price(held), 6)
    others = zip(*replayed, strict=True)
    for name, bills in zip(("plain_hashing", "task_for_each_key"), others, strict=True):
        known = [(one.bill.held, other) for one, other in zip(some, bills, strict=True) if other is not None]
        told[name] = _beside(known, rates) if known else None
    return told


def _beside(known: Sequence[tuple[float, OtherBill]], rates: Rates | None) -> dict[str, Any]:
    """Bills under another routing, of the runs of which they are known, beside what these have held."""
    held = sum(other.held for _, other in known)
    saved = held - sum(ours for ours, _ in known)
    return {
        "runs": len(known),
        "held_seconds": round(held, 3),
        "saved_seconds": round(saved, 3),
        "error_seconds": round(sum(other.held * other.error for _, other in known), 3),
        "price": rates and round(rates.price(held), 6),
        "saved": rates and round(rates.price(saved), 6),
    }


def lines(told: Mapping[str, Any]) -> Iterator[str]:
    """The table, a line each, and what it does not hold."""
    rates = told["rates"]
    money = f"{rates['currency']}" if rates else ""
    head = [*_HEAD, *([f"price, {money}"] if rates else []), "plain hashing", "saved", "a task a key, at best"]
    rows = [_cells(day["day"], day, money) for day in told["days"]]
    table = [head, *rows, _cells("total", told["total"], money)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join([first.strip().ljust(widths[0]), *others])
    yield f"Used, idle, skew and lost tries are core-seconds; prices are of all four, at {_rate(rates)}."
    if without := told["total"]["tries_without_bill"]:
        yield f"{without:,} tries have left no bill, as their driver was killed or is at work: they are not in it."


def _rate(rates: Mapping[str, Any] | None) -> str:
    if rates is None:
        return "no rate: costs.yaml at the data root has none"
    return f"{rates['core_hour']:g} {rates['currency']} for a core and an hour"


def _cells(day: str, told: Mapping[str, Any], money: str) -> list[str]:
    seconds = [f"{told[f'{name}_seconds']:,.1f}" for name in ("used", "idle", "skew", "lost")]
    cells = [day, *seconds, f"{told['shuffle_bytes']:,}", f"{told['spilled_bytes']:,}"]
    if money:
        cells.append(f"{told['price']:,.4f}")
    plain, keys = told["plain_hashing"], told["task_for_each_key"]
    cells.append(_other(told, plain, money, "held_seconds", "price"))
    cells.append(_other(told, plain, money, "saved_seconds", "saved"))
    cells.append(_other(told, keys, money, "held_seconds", "price"))
    return cells


def _other(told: Mapping[str, Any], other: Mapping[str, Any] | None, money: str, seconds: str, price: str) -> str:
    """A figure of a replay, with its error; of some of the runs only where it says so."""
    if other is None:
        return "not known"
    off = other["error_seconds"] / other["held_seconds"] if other["held_seconds"] else 0.0
    figure = f"{other[price]:,.4f}" if money else f"{other[seconds]:,.1f}"
    error = f" \N{PLUS-MINUS SIGN} {off:.0%}" if seconds == "held_seconds" and off else ""
    some = "" if other["runs"] == told["runs"] else f" ({other['runs']} of {told['runs']} runs)"
    return f"{figure}{error}{some}"
