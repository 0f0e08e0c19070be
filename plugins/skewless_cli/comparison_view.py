"""A comparison with another job's result in words: first how many keys differ, then where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The report of a comparison, a line each.

    Args:
        found: the attributes of ``skewless_spark.comparison.compare.Comparison``.
    """
    yield f"{found['keys']:,} keys, {found['differ']:,} differ"
    for name, told in (
        ("only_here", "are not in the other result"),
        ("only_there", "are in the other result only"),
        ("twice_there", "have several rows in the other result"),
    ):
        if found[name]:
            yield f"{found[name]:,} keys {told}"
    for name, count in found["columns"].items():
        within = " by more than both stated errors" if name in found["within_error"] else ""
        yield f"{name}: {count:,} keys differ{within}"
    for name in found["lacking"]:
        yield f"{name}: the other result has no such column"
    for name, (ours, theirs) in found["types"].items():
        yield f"{name}: {theirs} in the other result, {ours} here, which cannot be compared (a query may cast it)"
    if found["more"]:
        yield f"not compared: {', '.join(found['more'])}, which only the other result has"
    yield from found["concentrated"]
    for one in found["worst"]:
        yield f"{_key(one['key'])}: {_values(one)}"


def _key(key: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in key.items())


def _values(one: Mapping[str, Any]) -> str:
    columns = [f"{name} {both['here']} here, {both['there']} there" for name, both in one["columns"].items()]
    return "; ".join([*([one["state"]] if "state" in one else []), *columns])
