"""Variances, covariances, correlation: states that merge without cancellation.

Within a task Spark's own ``var_pop`` and ``covar_pop`` update by Welford's rule. States are merged by the same
formulas as inside Spark: Chan, Golub, LeVeque (1979), "Updating formulae and a pairwise algorithm for
computing sample variances", equation 2.1; for covariances Pebay (2008), SAND2008-6212, equation 3.4.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from pydantic import Field
from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.aggregates.accumulator import number_required
from skewless_spark.aggregates.definition import NativeAggregate
from skewless_spark.aggregates.native.sums import Options, merged_by, of_state


def _mean(values: Column) -> Column:
    """The average, clamped between minimum and maximum.

    A sum divided by a count is rounded. Without the clamp, states of nothing but 0.1 would have different means, and
    merging them would give a variance above 0.
    """
    return F.least(F.greatest(F.avg(values), F.min(values)), F.max(values))


def _moments(column: Column) -> Column:
    values = column.cast("double")
    rows = F.count(values)
    return _struct(n=rows, mean=_mean(values), m2=F.var_pop(values) * rows)


def _merged_moments(state: str, *, four: bool = False) -> Column:
    """Of third and fourth powers: Pebay (2008), equations 2.1."""

    def both(left: Column, right: Column) -> Column:
        rows = left["n"] + right["n"]
        of_left, of_right, apart = left["n"] / rows, right["n"] / rows, right["mean"] - left["mean"]
        weight = left["n"] * of_right
        merged = {
            "n": rows,
            "mean": left["mean"] + apart * of_right,
            "m2": left["m2"] + right["m2"] + apart * (apart * weight),
        }
        if four:
            second, third = (of_left * right[power] - of_right * left[power] for power in ("m2", "m3"))
            square = of_left * of_left * right["m2"] + of_right * of_right * left["m2"]
            cubes, fourths = weight * (of_left - of_right), weight * (1.0 - 3.0 * of_left * of_right)
            merged["m3"] = left["m3"] + right["m3"] + apart * (apart * (apart * cubes) + 3.0 * second)
            rest = apart * (apart * (apart * fourths) + 6.0 * square)
            merged["m4"] = left["m4"] + right["m4"] + apart * (rest + 4.0 * third)
        return _struct(**merged)

    powers = dict.fromkeys(("mean", "m2", "m3", "m4") if four else ("mean", "m2"), F.lit(0.0))
    return _folded(state, _struct(n=F.lit(0).cast("bigint"), **powers), both)


def _four_moments(column: Column) -> Column:
    """With the sums of third and fourth powers, of which Spark tells ratios alone: null where all values are alike."""
    values, two = column.cast("double"), _moments(column)
    each = F.try_divide(two["m2"], two["n"])
    third = F.coalesce(F.skewness(values) * (two["m2"] * F.sqrt(each)), F.lit(0.0))
    fourth = F.coalesce((F.kurtosis(values) + 3.0) * (two["m2"] * each), F.lit(0.0))
    return _struct(n=two["n"], mean=two["mean"], m2=two["m2"], m3=third, m4=fourth)


def _comoments(columns: Sequence[Column]) -> Column:
    x, y = (column.cast("double") for column in columns)
    x, y = F.when(y.isNotNull(), x), F.when(x.isNotNull(), y)
    rows = F.count(x)
    return _struct(
        n=rows, mean_x=_mean(x), mean_y=_mean(y),
        m2_x=F.var_pop(x) * rows, m2_y=F.var_pop(y) * rows, c=F.covar_pop(x, y) * rows,
    )  # fmt: skip


def _merged_comoments(state: str) -> Column:
    def both(left: Column, right: Column) -> Column:
        rows = left["n"] + right["n"]
        share = right["n"] / rows
        x, y = right["mean_x"] - left["mean_x"], right["mean_y"] - left["mean_y"]
        weight = left["n"] * share
        return _struct(
            n=rows,
            mean_x=left["mean_x"] + x * share,
            mean_y=left["mean_y"] + y * share,
            m2_x=left["m2_x"] + right["m2_x"] + x * (x * weight),
            m2_y=left["m2_y"] + right["m2_y"] + y * (y * weight),
            c=left["c"] + right["c"] + x * (y * weight),
        )

    none = _struct(
        n=F.lit(0).cast("bigint"), mean_x=F.lit(0.0), mean_y=F.lit(0.0), m2_x=F.lit(0.0), m2_y=F.lit(0.0), c=F.lit(0.0)
    )
    return _folded(state, none, both)


def _struct(**fields: Column) -> Column:
    return F.struct(*(value.alias(name) for name, value in fields.items()))


def _folded(state: str, none: Column, both: Callable[[Column, Column], Column]) -> Column:
    """The states of a key merged one after the other, in the order in which they are read; null states are left out."""
    filled = F.filter(F.collect_list(state), lambda one: one["n"] > 0)
    return F.aggregate(filled, none, both)


def _over_rows(sums: str, fewer: int) -> Callable[[Column], Column]:
    return lambda state: F.when(state["n"] > fewer, state[sums] / (state["n"] - fewer))


def _deviation(fewer: int) -> Callable[[Column], Column]:
    return lambda state: F.sqrt(_over_rows("m2", fewer)(state))


def _shape(power: str, scale: Callable[[Column], Column], less: float) -> Callable[[Column], Column]:
    """A ratio of moments; null where all values are alike."""

    def ratio(state: Column) -> Column:
        return scale(state["n"]) * F.try_divide(state[power], state["m2"] * scale(state["m2"])) - less

    return lambda state: F.when(state["m2"] != 0, ratio(state))


def _slope(state: Column) -> Column:
    """Of the line through ``column`` by ``other``; null where that is constant, as are the two below."""
    return F.try_divide(state["c"], state["m2_y"])


def _determination(state: Column) -> Column:
    """1 where all values of ``column`` are alike, and so on the line."""
    explained = F.try_divide(state["c"] * state["c"], state["m2_x"] * state["m2_y"])
    return F.when(state["m2_y"] != 0, F.when(state["m2_x"] == 0, 1.0).otherwise(explained))


def _moment(name: str, evaluate: Callable[[Column], Column]) -> NativeAggregate:
    return NativeAggregate(
        name,
        accepts=number_required,
        update=lambda arguments, _: (_moments(arguments.columns[0]),),
        merge=merged_by(_merged_moments),
        evaluate=of_state(evaluate),
        state_bytes=24,
    )


class OtherOptions(Options):
    """Options of aggregates that are symmetric in two columns."""

    other: str = Field(min_length=1)
    """The second column."""


def _comoment(name: str, evaluate: Callable[[Column], Column]) -> NativeAggregate:
    return NativeAggregate(
        name,
        accepts=number_required,
        update=lambda arguments, _: (_comoments(arguments.columns),),
        merge=merged_by(_merged_comoments),
        evaluate=of_state(evaluate),
        options=OtherOptions,
        further={"other": number_required},
        state_bytes=48,
    )


VAR_SAMP = _moment("var_samp", _over_rows("m2", 1))
VAR_POP = _moment("var_pop", _over_rows("m2", 0))
STDDEV_SAMP = _moment("stddev_samp", _deviation(1))
STDDEV_POP = _moment("stddev_pop", _deviation(0))
SKEWNESS = replace(
    VAR_SAMP, name="skewness", update=lambda arguments, _: (_four_moments(arguments.columns[0]),),
    merge=merged_by(partial(_merged_moments, four=True)), evaluate=of_state(_shape("m3", F.sqrt, 0.0)), state_bytes=40,
)  # fmt: skip
KURTOSIS = replace(SKEWNESS, name="kurtosis", evaluate=of_state(_shape("m4", lambda number: number, 3.0)))
COVAR_SAMP = _comoment("covar_samp", _over_rows("c", 1))
COVAR_POP = _comoment("covar_pop", _over_rows("c", 0))
# Null for a single row, and if one of the columns is constant.
CORR = _comoment(
    "corr", lambda state: F.when(state["n"] > 1, F.try_divide(state["c"], F.sqrt(state["m2_x"] * state["m2_y"])))
)
#: In a regression ``column`` is the dependent variable, y, and ``other`` the independent one, x.
_REGRESSED: dict[str, Callable[[Column], Column]] = {
    "count": lambda state: state["n"],
    "syy": lambda state: F.when(state["n"] > 0, state["m2_x"]),
    "sxx": lambda state: F.when(state["n"] > 0, state["m2_y"]),
    "sxy": lambda state: F.when(state["n"] > 0, state["c"]),
    "slope": _slope,
    "intercept": lambda state: state["mean_x"] - _slope(state) * state["mean_y"],
    "r2": _determination,
}
REGRESSIONS = tuple(_comoment(f"regr_{name}", evaluate) for name, evaluate in _REGRESSED.items())
