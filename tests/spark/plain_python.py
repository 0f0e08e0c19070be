"""What aggregates are of some rows, by nothing but Python: the rows of a key in the order of the input."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import Any, NamedTuple

Row = dict[str, Any]
#: Whether a result is right for these rows.
Holds = Callable[[Any, Sequence[Row]], bool]


class Case(NamedTuple):
    """A call as a spec has it, and whether its result is right."""

    call: dict[str, Any] | str
    holds: Holds


def values_of(rows: Iterable[Row], column: str) -> list[Any]:
    """Those that are not null, in order."""
    return [row[column] for row in rows if row[column] is not None]


def _equal(found: Callable[[Sequence[Row]], Any]) -> Holds:
    return lambda ours, rows: type(ours) is type(found(rows)) and ours == found(rows)


def _of(column: str, found: Callable[[list[Any]], Any]) -> Holds:
    """Exactly this of the values of a column; null where there are none."""
    return _equal(lambda rows: found(values) if (values := values_of(rows, column)) else None)


def _near(found: Callable[[Sequence[Row]], float | None], size: Callable[[Sequence[Row]], float]) -> Holds:
    """Up to rounding, relative to the size of what was added up."""

    def holds(ours: Any, rows: Sequence[Row]) -> bool:
        right = found(rows)
        if ours is None or right is None:
            return ours is right
        return bool(abs(ours - right) <= 1e-9 * size(rows))

    return holds


def _magnitude(rows: Sequence[Row]) -> float:
    return math.fsum(abs(value) for value in values_of(rows, "real"))


def _bits(operation: Callable[[int, int], int]) -> Callable[[list[int]], int]:
    def found(values: list[int]) -> int:
        one = values[0]
        for value in values[1:]:
            one = operation(one, value)
        return one

    return found


def _moment(power: int, ddof: int) -> Callable[[Sequence[Row]], float | None]:
    def found(rows: Sequence[Row]) -> float | None:
        values = values_of(rows, "real")
        if len(values) <= ddof:
            return None
        mean = math.fsum(values) / len(values)
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - ddof)
        return variance if power == 2 else math.sqrt(variance)

    return found


def _squares(rows: Sequence[Row]) -> float:
    return math.fsum(value * value for value in values_of(rows, "real")) + 1


def _covariance(kind: str) -> Callable[[Sequence[Row]], float | None]:
    def found(rows: Sequence[Row]) -> float | None:
        pairs = [(row["real"], row["value"]) for row in rows if row["real"] is not None and row["value"] is not None]
        if len(pairs) <= (0 if kind == "pop" else 1):
            return None
        means = [math.fsum(one) / len(pairs) for one in zip(*pairs, strict=True)]
        off = [(x - means[0], y - means[1]) for x, y in pairs]
        product = math.fsum(x * y for x, y in off)
        if kind == "corr":
            return product / math.sqrt(math.fsum(x * x for x, _ in off) * math.fsum(y * y for _, y in off))
        return product / (len(pairs) - (kind == "samp"))

    return found


def _by(column: str, by: str, sign: int) -> Holds:
    """Of rows with the extreme the first one counts."""

    def found(rows: Sequence[Row]) -> Any:
        ranked = [(sign * row[by], -at, row[column]) for at, row in enumerate(rows) if row[by] is not None]
        return max(ranked, key=lambda one: one[:2])[2] if ranked else None

    return _equal(found)


EDGES = [-100.0, 0.0, 250.0]


def _histogram(rows: Sequence[Row]) -> list[dict[str, Any]]:
    values, ends = values_of(rows, "real"), [-math.inf, *EDGES, math.inf]
    return [
        {"lower": low, "upper": high, "count": sum(low <= value < high for value in values)}
        for low, high in pairwise(ends)
    ]


def _distinct(column: str, share: float) -> Holds:
    """Five standard deviations of the sketch."""
    return lambda ours, rows: abs(ours - (right := len(set(values_of(rows, column))))) <= 5 * share * right


def _quantiles(ours: Any, rows: Sequence[Row]) -> bool:
    """Ranks that are off by twice ``1 / accuracy`` at most: one in a hundred may be off by more than that."""
    values = sorted(values_of(rows, "value"))
    if not values:
        return ours is None
    off = 2 * len(values) / 75 + 1
    return all(
        bisect.bisect_left(values, found) - off <= share * len(values) <= bisect.bisect_right(values, found) + off
        for found, share in zip(ours, QUANTILES, strict=True)
    )


QUANTILES = (0.1, 0.5, 0.9)
#: Fewer than the values of a hot key, so that its sketches forget some.
TRACKED, CAPACITY, BINS = 128, 20, 16


def _top(ours: Any, rows: Sequence[Row]) -> bool:
    counts = Counter(row["value"] for row in rows)
    error = 2.7 / TRACKED * len(rows) if len(counts) > TRACKED else 0
    right = [count for _, count in counts.most_common(3)]
    each = all(abs(counts[one["item"]] - one["count"]) <= error for one in ours)
    return each and all(abs(one["count"] - count) <= error for one, count in zip(ours, right, strict=True))


def _heavy(ours: Any, rows: Sequence[Row]) -> bool:
    values = values_of(rows, "value")
    counts, found = Counter(values), {one["item"]: one for one in ours or ()}
    bounded = all(
        one["count"] - one["error"] <= counts[item] <= one["count"] and one["error"] <= len(values) / CAPACITY
        for item, one in found.items()
    )
    return bounded and all(item in found for item, count in counts.items() if count > len(values) / CAPACITY)


def _points(ours: Any, rows: Sequence[Row]) -> bool:
    """Exact while there are few values; else all of them count, between the least and the greatest."""
    values = values_of(rows, "value")
    counts, points = Counter(values), [(one["x"], one["y"]) for one in ours or ()]
    if len(counts) < BINS:
        return points == sorted(counts.items())
    between = all(min(values) <= x <= max(values) for x, _ in points)
    return between and len(points) <= BINS and math.isclose(sum(y for _, y in points), len(values))


def _counts(ours: Any, rows: Sequence[Row]) -> bool:
    return {one["value"]: one["count"] for one in ours or ()} == Counter(values_of(rows, "word"))


def _column(function: str, column: str, **options: Any) -> dict[str, Any]:
    return {"function": function, "column": column, **options}


#: Every aggregate that can be merged, in two jobs. Those of the first are exact.
EXACT: dict[str, Case] = {
    "n": Case("count", _equal(len)),
    "values": Case(_column("count", "value"), _equal(lambda rows: len(values_of(rows, "value")))),
    "flagged": Case(_column("count_if", "flag"), _equal(lambda rows: sum(values_of(rows, "flag")))),
    "total": Case(_column("sum", "value"), _of("value", sum)),
    "paid": Case(_column("sum", "price"), _of("price", lambda found: sum(found, Decimal("0.00")))),
    "mean": Case(_column("avg", "value"), _of("value", lambda found: sum(found) / len(found))),
    "mean_price": Case(
        _column("avg", "price"),
        _of("price", lambda found: (sum(found) / len(found)).quantize(Decimal("0.000001"), ROUND_HALF_UP)),
    ),
    "least": Case(_column("min", "price"), _of("price", min)),
    "greatest": Case(_column("max", "word"), _of("word", max)),
    "newest": Case(_column("max_by", "word", by="value"), _by("word", "value", 1)),
    "oldest": Case(_column("min_by", "price", by="value"), _by("price", "value", -1)),
    "earliest": Case(_column("first", "word"), _equal(lambda rows: rows[0]["word"])),
    "latest_word": Case(_column("last", "word", ignore_nulls=True), _of("word", lambda found: found[-1])),
    "all_true": Case(_column("bool_and", "flag"), _of("flag", all)),
    "any_true": Case(_column("bool_or", "flag"), _of("flag", any)),
    "and_bits": Case(_column("bit_and", "value"), _of("value", _bits(lambda one, other: one & other))),
    "or_bits": Case(_column("bit_or", "value"), _of("value", _bits(lambda one, other: one | other))),
    "xor_bits": Case(_column("bit_xor", "value"), _of("value", _bits(lambda one, other: one ^ other))),
    "some_words": Case(_column("collect_set", "word"), _equal(lambda rows: sorted(set(values_of(rows, "word"))))),
    "listed": Case(_column("collect_list", "value"), _equal(lambda rows: values_of(rows, "value"))),
    "words": Case(_column("count_distinct", "word"), _equal(lambda rows: len(set(values_of(rows, "word"))))),
    "bars": Case(_column("histogram", "real", edges=EDGES), _equal(_histogram)),
    "by_word": Case(_column("value_counts", "word"), _counts),
}
ROUNDED: dict[str, Case] = {
    "n": Case("count", _equal(len)),
    "sum_real": Case(_column("sum", "real"), _near(lambda rows: math.fsum(values_of(rows, "real")), _magnitude)),
    "mean_real": Case(
        _column("avg", "real"),
        _near(lambda rows: math.fsum(found) / len(found) if (found := values_of(rows, "real")) else None, _magnitude),
    ),
    "var": Case(_column("var_samp", "real"), _near(_moment(2, 1), _squares)),
    "var_all": Case(_column("var_pop", "real"), _near(_moment(2, 0), _squares)),
    "dev": Case(_column("stddev_samp", "real"), _near(_moment(1, 1), _squares)),
    "dev_all": Case(_column("stddev_pop", "real"), _near(_moment(1, 0), _squares)),
    "co": Case(_column("covar_samp", "real", other="value"), _near(_covariance("samp"), _squares)),
    "co_all": Case(_column("covar_pop", "real", other="value"), _near(_covariance("pop"), _squares)),
    "together": Case(_column("corr", "real", other="value"), _near(_covariance("corr"), lambda _: 1.0)),
    "about": Case(_column("approx_count_distinct", "value"), _distinct("value", 0.02)),
    "theta": Case(_column("theta_sketch_estimate", "value"), _distinct("value", 0.016)),
    "ranks": Case(_column("approx_percentile", "value", percentages=list(QUANTILES)), _quantiles),
    "top": Case(_column("approx_top_k", "value", k=3, max_items_tracked=TRACKED), _top),
    "heavy": Case(_column("space_saving", "value", capacity=CAPACITY), _heavy),
    "points": Case(_column("streaming_histogram", "value", bins=BINS), _points),
}
