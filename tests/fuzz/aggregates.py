"""Random calls of every aggregate, each with what plain Python says of its result."""

import bisect
import datetime as dt
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from tests.fuzz.values import NUMBERS, REAL, WHOLE, Kind, Row, canonical, rank

#: Says whether a result is right for these rows of a key, in the order of the input.
Holds = Callable[[Any, Sequence[Row]], bool]


class Call(NamedTuple):
    """An aggregate of a spec.

    Attributes:
        by_order: whether the order of the input matters.
        kind: of the column that the result has the type of, if it has one.
    """

    call: dict[str, Any] | str
    holds: Holds
    by_order: bool = False
    nested: bool = False
    kind: Kind | None = None


def _values(rows: Sequence[Row], column: str) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


def _equal(found: Callable[[Sequence[Row]], Any]) -> Holds:
    return lambda ours, rows: canonical(ours) == canonical(found(rows))


def _of(column: str, found: Callable[[list[Any]], Any]) -> Holds:
    return _equal(lambda rows: found(values) if (values := _values(rows, column)) else None)


def _near(found: Callable[[Sequence[Row]], float | None], size: Callable[[Sequence[Row]], float]) -> Holds:
    def holds(ours: Any, rows: Sequence[Row]) -> bool:
        right = found(rows)
        if ours is None or right is None:
            return ours is right
        if math.isnan(ours) or math.isnan(right):
            return math.isnan(ours) and math.isnan(right)
        return abs(ours - right) <= 1e-9 * size(rows) + 1e-300

    return holds


def _floats(rows: Sequence[Row], column: str) -> list[float]:
    return [float(value) for value in _values(rows, column)]


def _sum(column: str, kind: Kind) -> Holds:
    if kind.name in REAL:
        return _near(
            lambda rows: math.fsum(found) if (found := _floats(rows, column)) else None,
            lambda rows: math.fsum(map(abs, _floats(rows, column))),
        )
    return _of(column, sum)


def _avg(column: str, kind: Kind) -> Holds:
    if "decimal" in kind.name:
        scale = int(kind.spark.rstrip(")").split(",")[1]) + 4

        def mean(values: list[Decimal]) -> Decimal:
            with localcontext(prec=60):
                return (sum(values, Decimal(0)) / len(values)).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)

        return _of(column, mean)
    if kind.name in REAL:
        return _near(
            lambda rows: math.fsum(found) / len(found) if (found := _floats(rows, column)) else None,
            lambda rows: math.fsum(map(abs, _floats(rows, column))),
        )
    return _of(column, lambda values: sum(values) / len(values))


def _moment(column: str, *, ddof: int, root: bool) -> Holds:
    def found(rows: Sequence[Row]) -> float | None:
        values = _floats(rows, column)
        if len(values) <= ddof:
            return None
        mean = math.fsum(values) / len(values)
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - ddof)
        return math.sqrt(variance) if root else variance

    return _near(found, lambda rows: math.fsum(value * value for value in _floats(rows, column)) + 1)


def _shape(column: str, power: int) -> Holds:
    """Skewness and kurtosis: of values that are nearly alike, rounding decides."""

    def found(rows: Sequence[Row]) -> float | None:
        values = _floats(rows, column)
        mean = math.fsum(values) / len(values)
        second, ours = (math.fsum((value - mean) ** exponent for value in values) for exponent in (2, power))
        return ours * len(values) ** (power / 2 - 1) / second ** (power / 2) - (3 if power == 4 else 0)

    def holds(ours: Any, rows: Sequence[Row]) -> bool:
        values = _floats(rows, column)
        alike = not values or max(values) - min(values) <= 1e-4 * max(map(abs, values))
        return alike or _near(found, lambda _: 1e6)(ours, rows)

    return holds


#: Functions of two numbers, and of the value beside the largest or the smallest other one, by its sign.
PAIRS = (
    "covar_samp", "covar_pop", "corr", "regr_count", "regr_sxx", "regr_syy", "regr_sxy", "regr_slope", "regr_intercept",
    "regr_r2",
)  # fmt: skip
EXTREMES = {1: "max_by", -1: "min_by"}


def covariance(column: str, other: str, how: str) -> Holds:
    def pairs(rows: Sequence[Row]) -> list[tuple[float, float]]:
        return [(float(row[column]), float(row[other])) for row in rows if None not in (row[column], row[other])]

    def found(rows: Sequence[Row]) -> float | None:
        both = pairs(rows)
        if how == "regr_count":
            return len(both)
        if not both:
            return None
        y, x = (math.fsum(one) / len(both) for one in zip(*both, strict=True))
        off = [(one - y, other - x) for one, other in both]
        product, of_y, of_x = (math.fsum(one[a] * one[b] for one in off) for a, b in ((0, 1), (0, 0), (1, 1)))
        slope = product / of_x if of_x else None
        return {
            "regr_sxy": product,
            "regr_syy": of_y,
            "regr_sxx": of_x,
            "covar_pop": product / len(both),
            "covar_samp": product / (len(both) - 1) if len(both) > 1 else None,
            "regr_slope": slope,
            "regr_intercept": None if slope is None else y - slope * x,
            "regr_r2": None if slope is None else product * slope / of_y if of_y else 1.0,
            "corr": product / math.sqrt(of_y * of_x) if of_y * of_x else None,
        }[how]

    def size(rows: Sequence[Row]) -> float:
        return math.fsum(x * x + y * y for x, y in pairs(rows)) + 1

    if how not in {"corr", "regr_slope", "regr_intercept", "regr_r2"}:
        return _near(found, size)

    def holds(ours: Any, rows: Sequence[Row]) -> bool:
        both = pairs(rows)
        alike = [max(one) - min(one) <= 1e-6 * (max(map(abs, one)) + 1e-300) for one in zip(*both, strict=True)]
        # Of values that are nearly alike, rounding decides.
        scale = 1000.0 if how in {"corr", "regr_r2"} else 1e3 * (1 + abs(found(rows) or 0.0) + size(rows))
        return any(alike) or _near(found, lambda _: scale)(ours, rows)

    return holds


def by_extreme(column: str, by: str, sign: int) -> Holds:
    def found(rows: Sequence[Row]) -> Any:
        having = [row for row in rows if row[by] is not None]
        if not having:
            return None
        extreme = (max if sign > 0 else min)(rank(row[by]) for row in having)
        return next(row[column] for row in having if rank(row[by]) == extreme)

    return _equal(found)


def _bits(operation: Callable[[int, int], int]) -> Callable[[list[int]], int]:
    def found(values: list[int]) -> int:
        one = values[0]
        for value in values[1:]:
            one = operation(one, value)
        return one

    return found


def _distinct(values: Sequence[Any]) -> dict[Any, Any]:
    return {canonical(value): value for value in values}


def _set(values: Sequence[Any]) -> list[Any]:
    return sorted(_distinct(values).values(), key=rank)


def _about(column: str, share: float) -> Holds:
    """Five standard deviations of the sketch, and one that a small count may be off by."""

    def holds(ours: Any, rows: Sequence[Row]) -> bool:
        right = len(_distinct(_values(rows, column)))
        return bool(abs(ours - right) <= 5 * share * right + (right > 10))

    return holds


def _quantiles(column: str, shares: Sequence[float], accuracy: int, *, one: bool) -> Holds:
    def holds(ours: Any, rows: Sequence[Row]) -> bool:
        values = sorted(value for value in _values(rows, column) if value == value)  # noqa: PLR0124 - not NaN
        if not values:
            return ours is None
        off = (3 * len(values) / accuracy if len(values) >= accuracy else 0) + 1
        return all(
            bisect.bisect_left(values, found) - off <= share * len(values) <= bisect.bisect_right(values, found) + off
            and (len(values) >= accuracy or found in values)
            for found, share in zip([ours] if one else ours, shares, strict=True)
        )

    return holds


def _histogram(column: str, edges: Sequence[float]) -> Holds:
    def found(rows: Sequence[Row]) -> list[dict[str, Any]]:
        values, ends = _values(rows, column), [-math.inf, *edges, math.inf]
        return [
            {
                "lower": low,
                "upper": high,
                "count": sum(low <= value < high or value == high == math.inf for value in values),
            }
            for low, high in pairwise(ends)
        ]

    return _equal(found)


def _top(column: str, k: int) -> Holds:
    def holds(ours: Any, rows: Sequence[Row]) -> bool:
        counts = Counter(canonical(row[column]) for row in rows)
        told = [(canonical(one["item"]), one["count"]) for one in ours]
        right = [count for _, count in counts.most_common(k)]
        return all(counts[item] == count for item, count in told) and [count for _, count in told] == right

    return holds


def _counts(column: str) -> Holds:
    def holds(ours: Any, rows: Sequence[Row]) -> bool:
        told = [(canonical(one["value"]), one["count"]) for one in ours or ()]
        in_order = all(one[1] >= other[1] for one, other in pairwise(told))
        return (
            in_order and len(told) == len(dict(told)) and dict(told) == Counter(map(canonical, _values(rows, column)))
        )

    return holds


def _points(column: str, bins: int) -> Holds:
    def holds(ours: Any, rows: Sequence[Row]) -> bool:
        values = _floats(rows, column)
        counts, points = Counter(values), [(one["x"], one["y"]) for one in ours or ()]
        if len(counts) < bins:
            return points == sorted(counts.items())
        slack = 1e-9 * max(map(abs, values))
        between = all(min(values) - slack <= x <= max(values) + slack for x, _ in points)
        return between and len(points) <= bins and math.isclose(sum(y for _, y in points), len(values), rel_tol=1e-6)

    return holds


def _median(column: str) -> Holds:
    def found(rows: Sequence[Row]) -> float | None:
        values = sorted(_floats(rows, column), key=rank)
        return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2 if values else None

    return _near(found, lambda rows: max(map(abs, _floats(rows, column)), default=0.0) + 1)


def _exact_quantiles(column: str, shares: Sequence[float]) -> Holds:
    def found(rows: Sequence[Row], share: float) -> float:
        values = sorted(_floats(rows, column), key=rank)
        place = (len(values) - 1) * share
        low, high = values[math.floor(place)], values[math.ceil(place)]
        return low + (high - low) * (place % 1)

    def holds(ours: Any, rows: Sequence[Row]) -> bool:
        if not _floats(rows, column):
            return ours is None
        size = max(map(abs, _floats(rows, column))) + 1
        return all(abs(one - found(rows, share)) <= 1e-9 * size for one, share in zip(ours, shares, strict=True))

    return holds


def _mode(values: Sequence[Any]) -> Any:
    counts = Counter(map(canonical, values))
    return min((value for value in values if counts[canonical(value)] == max(counts.values())), key=rank, default=None)


def _of_set(holds: Callable[[str, Kind], Holds]) -> Callable[[str, Kind], Holds]:
    return lambda column, kind: (
        lambda ours, rows: holds(column, kind)(
            ours, [{column: value} for value in _distinct(_values(rows, column)).values()]
        )
    )


def _sessions(column: str, gap: float, kind: Kind) -> Holds:
    whole = kind.name in WHOLE

    def found(rows: Sequence[Row]) -> Any:
        made: list[dict[str, Any]] = []
        step: Any = dt.timedelta(seconds=gap) if kind.name in {"timestamp", "wall"} else gap
        before: Any = None
        for value in _values(rows, column):
            at: Any = value if whole or isinstance(step, dt.timedelta) else float(value)
            if before is None or at < before or at - before > step:
                made.append({"start": at, "end": at, "rows": 0})
            made[-1] |= {"end": at, "rows": made[-1]["rows"] + 1}
            before = at
        return made or None

    return lambda ours, rows: canonical(ours or None) == canonical(found(rows))


#: Which kinds of columns a call of one column takes, and what it comes to.
_Maker = Callable[[str, Kind, random.Random], Call]


def _simple(function: str, found: Callable[[list[Any]], Any], **options: Any) -> _Maker:
    def make(column: str, kind: Kind, _: random.Random) -> Call:
        return Call({"function": function, "column": column, **options}, _of(column, found), kind=kind)

    return make


def _making(function: str, holds: Callable[..., Holds], **options: Any) -> _Maker:
    return lambda column, kind, _: Call({"function": function, "column": column, **options}, holds(column, kind))


def _checked(
    function: str, holds: Callable[[str], Holds], *, nested: bool = False, by_order: bool = False, **options: Any
) -> _Maker:
    return lambda column, _, __: Call(
        {"function": function, "column": column, **options}, holds(column), by_order, nested
    )


def _exactly(function: str, found: Callable[[list[Any]], Any], **how: Any) -> _Maker:
    return _checked(function, lambda column: _equal(lambda rows: found(_values(rows, column))), **how)


def _at(function: str, place: int, *, nulls: bool = True) -> _Maker:
    made = _checked(function, lambda column: _equal(lambda rows: rows[place][column]), by_order=True)
    if not nulls:
        value = partial(_of, found=lambda values: values[place])
        made = _checked(function, value, by_order=True, ignore_nulls=True)
    return lambda column, kind, chance: made(column, kind, chance)._replace(kind=kind)


def _percentile(column: str, _: Kind, chance: random.Random) -> Call:
    accuracy, one = chance.choice([75, 75, 20, 300]), chance.random() < 0.4
    shares = [chance.choice([0.0, 0.25, 0.5, 0.99, 1.0])] if one else [0.1, 0.5, 0.9]
    given = {"percentage": shares[0]} if one else {"percentages": shares}
    call = {"function": "approx_percentile", "column": column, "accuracy": accuracy, **given}
    return Call(call, _quantiles(column, shares, accuracy, one=one), nested=not one)


def _sessions_call(column: str, kind: Kind, chance: random.Random) -> Call:
    gap = chance.choice([1, 5, 3600])
    return Call(
        {"function": "sessions", "column": column, "gap": gap}, _sessions(column, gap, kind), by_order=True, nested=True
    )


_ALL = frozenset({
    "text", "lines", *NUMBERS, "huge", "odd double", "boolean", "date", "old date", "timestamp", "wall", "binary",
})  # fmt: skip
_NO_NAN = _ALL - {"odd double"}

_NUMBERS, _WHOLE, _FLAG, _EDGES = frozenset(NUMBERS), frozenset(WHOLE), frozenset({"boolean"}), [-10.0, 0.0, 2.5]
_Pool = dict[str, tuple[frozenset[str], _Maker]]
#: Aggregates of one column that can be merged, by name: which kinds they take, and how a call is made.
MERGEABLE: _Pool = {
    "count": (_ALL, _exactly("count", len)),
    "count_if": (_FLAG, _exactly("count_if", sum)),
    "sum": (_NUMBERS, _making("sum", _sum)),
    "avg": (_NUMBERS, _making("avg", _avg)),
    "try_sum": (_NUMBERS, _making("try_sum", _sum)),
    "try_avg": (_NUMBERS, _making("try_avg", _avg)),
    "sum_distinct": (_NUMBERS, _making("sum_distinct", _of_set(_sum))),
    "avg_distinct": (_NUMBERS, _making("avg_distinct", _of_set(_avg))),
    "min": (_ALL, _simple("min", lambda values: min(values, key=rank))),
    "max": (_ALL, _simple("max", lambda values: max(values, key=rank))),
    "var_samp": (_NUMBERS, _checked("var_samp", lambda column: _moment(column, ddof=1, root=False))),
    "var_pop": (_NUMBERS, _checked("var_pop", lambda column: _moment(column, ddof=0, root=False))),
    "stddev_samp": (_NUMBERS, _checked("stddev", lambda column: _moment(column, ddof=1, root=True))),
    "stddev_pop": (_NUMBERS, _checked("stddev_pop", lambda column: _moment(column, ddof=0, root=True))),
    "skewness": (_NUMBERS, _checked("skewness", lambda column: _shape(column, 3))),
    "kurtosis": (_NUMBERS, _checked("kurtosis", lambda column: _shape(column, 4))),
    "bool_and": (_FLAG, _simple("bool_and", all)),
    "bool_or": (_FLAG, _simple("any", any)),
    "bit_and": (_WHOLE, _simple("bit_and", _bits(lambda one, other: one & other))),
    "bit_or": (_WHOLE, _simple("bit_or", _bits(lambda one, other: one | other))),
    "bit_xor": (_WHOLE, _simple("bit_xor", _bits(lambda one, other: one ^ other))),
    "collect_set": (_ALL, _exactly("collect_set", _set, nested=True)),
    "collect_list": (_ALL, _exactly("collect_list", list, nested=True, by_order=True)),
    "count_distinct": (_ALL, _exactly("count_distinct", lambda values: len(_distinct(values)))),
    "first": (_ALL, _at("first", 0)),
    "first value": (_ALL, _at("first_value", 0, nulls=False)),
    "last": (_ALL, _at("last", -1)),
    "last value": (_ALL, _at("last", -1, nulls=False)),
    "approx_count_distinct": (_ALL, _checked("approx_count_distinct", lambda column: _about(column, 0.02))),
    "theta": (_ALL, _checked("theta_sketch_estimate", lambda column: _about(column, 0.016))),
    "approx_percentile": (frozenset({*NUMBERS, "date", "timestamp"}) - {"wide decimal"}, _percentile),
    "approx_top_k": (_NO_NAN - {"binary"}, _checked("approx_top_k", lambda column: _top(column, 3), nested=True, k=3)),
    "histogram": (
        frozenset({*NUMBERS, "odd double", "huge"}),
        _checked("histogram", lambda column: _histogram(column, _EDGES), nested=True, edges=_EDGES),
    ),
    "mode": (_ALL, _exactly("mode", _mode)),
    "percentile": (
        _NUMBERS - {"bigint"},
        _checked(
            "percentile", lambda column: _exact_quantiles(column, [0.2, 0.9]), nested=True, percentages=[0.2, 0.9]
        ),
    ),
    "value_counts": (_ALL, _checked("value_counts", _counts, nested=True)),
    "streaming_histogram": (
        _NUMBERS,
        _checked("streaming_histogram", lambda column: _points(column, 16), nested=True, bins=16),
    ),
}
#: Those whose states move with their keys, of which the first ones can have a window.
CONCATENABLE: _Pool = {"sessions": (frozenset({"int", "bigint", "double", "timestamp"}), _sessions_call)}
FORWARD: _Pool = {**CONCATENABLE, "exact_median": (_NUMBERS - {"bigint"}, _checked("exact_median", _median))}


def draw_calls(
    chance: random.Random,
    columns: Mapping[str, Kind],
    *,
    ordered: bool,
    forward: bool = False,
    window: bool = False,
    most: int = 5,
) -> dict[str, Call]:
    """Some aggregates over some columns.

    Args:
        ordered: whether the order of the input is known.
        forward: whether some are to have states that move.
        window: whether they must be of a kind that can have a window.
        most: how many at most, beside the count of rows.
    """
    drawn = {"n": Call("count", _equal(len))}
    pools = [MERGEABLE] + ([CONCATENABLE if window else FORWARD] if forward else [])
    fitting = [
        (pool is not MERGEABLE, name, column)
        for pool in pools
        for name, (kinds, _) in pool.items()
        for column, kind in columns.items()
        if kind.name in kinds
    ]
    moving = [one for one in fitting if one[0]]
    picked = [chance.choice(moving)] if moving else []
    names = sorted({name for _, name, _ in fitting})
    some = chance.sample(names, min(len(names), chance.randint(1, most)))
    picked += [chance.choice([one for one in fitting if one[1] == name]) for name in some]
    for number, (is_moving, name, column) in enumerate(picked):
        maker = (FORWARD if is_moving else MERGEABLE)[name][1]
        drawn[f"a{number}"] = maker(column, columns[column], chance)
    numbers = [column for column, kind in columns.items() if kind.name in NUMBERS]
    if numbers and chance.random() < 0.2:
        one, other, how = (chance.choice(numbers), chance.choice(numbers), chance.choice(PAIRS))
        drawn["pair"] = Call({"function": how, "column": one, "other": other}, covariance(one, other, how))
    if columns and ordered and chance.random() < 0.25:
        one, other, sign = chance.choice(list(columns)), chance.choice(list(columns)), chance.choice([1, -1])
        call = {"function": EXTREMES[sign], "column": one, "by": other}
        drawn["extreme"] = Call(call, by_extreme(one, other, sign), by_order=True, kind=columns[one])
    return {name: one for name, one in drawn.items() if ordered or not one.by_order}
