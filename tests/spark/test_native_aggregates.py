"""Every aggregate that Spark has, too, on one nasty input: what plain Spark says, whatever engine and policy."""

import bisect
import datetime as dt
import decimal
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from skewless.errors import InputError, SpecError
from skewless_spark.aggregates import REGISTRY
from skewless_spark.aggregates.binding import check_types
from skewless_spark.aggregates.definition import NativeAggregate
from skewless_spark.aggregates.native import SYNONYMS
from skewless_spark.aggregates.native.quantiles import _measure
from skewless_spark.branches.native import Native
from skewless_spark.prepare.freezing import freeze
from skewless_spark.session.spark_errors import exit_code_of
from skewless_spark.session.versions import AGGREGATES, Gap, here, lacking_aggregate
from skewless_spark.states.job_columns import JobColumns
from tests.spark.scenario import DATE, plain, reduce_job, result_of, spec_of, write_input
from tests.tiers import mostly_long

ROWS = 12_000
#: Heavy at its head, with text that is hard to quote; the last ones have few rows each.
KEYS = ["self", "", "a`b", "it's", '"', "\\", "a\nb", "\0", "\u00e9\U0001f600", *(f"k{n}" for n in range(200))]
WORDS = ["", " ", "x", "X", "a'b", "\0", "\u00e9", "e\u0301", "\U0001f600", *(f"w{n}" for n in range(300))]
POLICIES = {"static": {"policy": "static", "reducers": 3}, "adaptive": {"policy": "adaptive", "reducers": 3}}


def nasty(rows: int = ROWS) -> pa.Table:
    """One row in nine has a null in each column; a key without any value, one of one row, one of one value."""
    rng = np.random.default_rng(11)
    keys: list[Any] = [KEYS[rank % len(KEYS)] for rank in rng.zipf(1.4, rows)]
    for place in rng.integers(0, rows, rows // 30):
        keys[place] = None
    keys[:40] = ["only nulls"] * 40
    keys[40:41] = ["one row"]
    constant = range(41, rows, rows // 97)
    for place in constant:
        keys[place] = "constant"

    def column(values: list[Any], kind: pa.DataType, seed: int, same: Any = None) -> pa.Array:
        missing = np.random.default_rng(seed).random(rows) < 1 / 9
        filled = [None if missing[n] or n < 40 else value for n, value in enumerate(values)]
        for place in constant:
            filled[place] = values[0] if same is None else same
        return pa.array(filled, kind)

    noise, more = rng.normal(size=rows), rng.normal(size=rows)
    odd = {3: math.nan, 5: math.inf, 7: -math.inf}
    real = [odd.get(n % 1009, -0.0 if n % 5 == 0 else float(n % 7)) for n in range(rows)]
    cents = rng.integers(-(10**9), 10**9, rows).tolist()
    atoms = [decimal.Decimal(cent * 10**12 + n * 7919).scaleb(-18) for n, cent in enumerate(cents)]
    start = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    table = pa.table(
        {
            "key": pa.array(keys, pa.string()),
            "place": pa.array(range(rows), pa.int64()),
            "whole": column([n % 1000 - 500 for n in range(rows)], pa.int32(), 1),
            "tiny": column([n * 31 % 256 - 128 for n in range(rows)], pa.int8(), 2),
            "big": column([n * 2654435761 % 2**45 - 2**44 for n in range(rows)], pa.int64(), 3),
            "real": column(real, pa.float64(), 4, 0.1),
            "short": column([float(n % 50) / 3 for n in range(rows)], pa.float32(), 5),
            "near": column((1e3 + noise).tolist(), pa.float64(), 6, 0.1),
            "beside": column((2 * noise + more).tolist(), pa.float64(), 7),
            "far": column((1e9 + noise).tolist(), pa.float64(), 8),
            "flag": column([n % 17 != 0 for n in range(rows)], pa.bool_(), 9),
            "price": column([decimal.Decimal(cent).scaleb(-2) for cent in cents], pa.decimal128(12, 2), 10),
            "broad": column([decimal.Decimal(cent).scaleb(-4) for cent in cents], pa.decimal128(24, 4), 11),
            "coin": column(atoms, pa.decimal128(38, 18), 12),
            "at": column([start + dt.timedelta(seconds=cent / 7) for cent in cents], pa.timestamp("us", "UTC"), 13),
            "flat": column([2.5] * rows, pa.float64(), 18),
            "day": column(
                [dt.date(1970, 1, 1) + dt.timedelta(days=n % 999 - 500) for n in range(rows)], pa.date32(), 14
            ),
            "word": column([WORDS[n * 7919 % len(WORDS)] for n in range(rows)], pa.string(), 15),
            "raw": column([bytes([n % 256, 0, 255][: n % 4]) for n in range(rows)], pa.binary(), 16),
            "tags": column([[WORDS[n % 5]] * (n % 3) for n in range(rows)], pa.list_(pa.string()), 17),
        }
    )
    pairs = zip(table["real"].to_pylist(), table["whole"].to_pylist(), strict=True)
    two = [None if None in pair else dict(zip("ab", pair, strict=True)) for pair in pairs]
    return table.append_column("two", pa.array(two, pa.struct([("a", pa.float64()), ("b", pa.int32())])))


class Case(NamedTuple):
    """A call, what plain SQL says instead, and what must hold between the two results of a key."""

    call: dict[str, Any] | str
    sql: str
    holds: Callable[[Any, Any], bool]
    same_type: bool = True


#: By what people call them.
Cases = dict[str, Case]


def close(rel: float, absolute: float = 0.0) -> Callable[[Any, Any], bool]:
    """Equal, and floating-point numbers nearly so: NaN is NaN, and infinity itself."""

    def holds(ours: Any, theirs: Any) -> bool:
        if isinstance(ours, list) and isinstance(theirs, list):
            return len(ours) == len(theirs) and all(map(holds, ours, theirs))
        if isinstance(ours, float) and isinstance(theirs, float):
            both_nan = math.isnan(ours) and math.isnan(theirs)
            return both_nan or math.isclose(ours, theirs, rel_tol=rel, abs_tol=absolute)
        return type(ours) is type(theirs) and ours == theirs

    return holds


exactly = close(0.0)


def within(share: float) -> Callable[[Any, Any], bool]:
    return lambda ours, theirs: math.isclose(ours, theirs, rel_tol=share, abs_tol=1)


def of_rank(*shares: float, accuracy: int = 75) -> Callable[[Any, Any], bool]:
    """Quantiles whose ranks are those shares of the values, give or take ``2 / accuracy``.

    One in a hundred may be off by more than ``1 / accuracy``, and here are hundreds.
    """

    def holds(ours: Any, theirs: Any) -> bool:
        if not theirs:
            return ours is None
        values, rows = sorted(theirs), len(theirs)
        off = 2 * rows / accuracy + 1
        return all(
            bisect.bisect_left(values, found) - off <= share * rows <= bisect.bisect_right(values, found) + off
            for found, share in zip(ours if isinstance(ours, list) else [ours], shares, strict=True)
        )

    return holds


def most_frequent(k: int) -> Callable[[Any, Any], bool]:
    """Pairs of a value and its count: of ties any may be there, but all counts are true."""

    def holds(ours: Any, theirs: Any) -> bool:
        counts = Counter(one["item"] for one in theirs)
        true = all(counts[one["item"]] == one["count"] for one in ours)
        most = [count for _, count in counts.most_common(k)]
        return true and [one["count"] for one in ours] == most

    return holds


MOMENT = close(1e-9, 1e-12)
#: A value near 1e9 is rounded to 1.2e-7, whose square is 1.4e-14: plain Spark 4.2 gives 3.6e-15 for equal values.
FAR = close(1e-6, 1e-13)
#: The values of a column in the order of the input, without null.
IN_ORDER = "filter(transform(array_sort(collect_list(struct(place, {1}))), one -> one.{1}), one -> one IS NOT NULL)"


def alike(function: str, *columns: str, holds: Callable[[Any, Any], bool] = exactly, sql: str = "{0}({1})") -> Cases:
    return {
        f"{function} {of}" if len(columns) > 1 else function: Case(
            {"function": function, "column": of}, sql.format(function, of), holds
        )
        for of in columns
    }


CASES: Cases = {
    "count": Case("count", "count(*)", exactly),
    "count of a column": Case({"function": "count", "column": "tags"}, "count(tags)", exactly),
    **alike("count_if", "flag"),
    **alike("sum", "whole", "big", "real", "short", "price", "coin", holds=MOMENT),
    **alike("avg", "whole", "real", "price", "broad", "coin", holds=MOMENT),
    **alike("try_sum", "big", "coin"),
    **alike("try_avg", "coin"),
    **alike("min", "real", "word", "at", "raw", "tags"),
    **alike("max", "real", "word", "at", "raw", "tags"),
    **alike("var_samp", "near", holds=MOMENT),
    **alike("var_pop", "near", holds=MOMENT),
    **alike("stddev_samp", "near", holds=MOMENT),
    **alike("stddev_pop", "near", holds=MOMENT),
    "var_pop with infinities": Case({"function": "var_pop", "column": "real"}, "var_pop(real)", MOMENT),
    "var_samp of decimals": Case({"function": "var_samp", "column": "price"}, "var_samp(price)", MOMENT),
    "var_samp far from zero": Case({"function": "var_samp", "column": "far"}, "var_samp(far)", FAR),
    **{
        one: Case({"function": one, "column": "near", "other": "beside"}, f"{one}(near, beside)", MOMENT)
        for one in ("covar_samp", "covar_pop", "corr")
    },
    **alike("skewness", "near", "price", holds=MOMENT),
    **alike("kurtosis", "near", "real", holds=MOMENT),
    **{
        f"regr_{one}": Case(
            {"function": f"regr_{one}", "column": "near", "other": "beside"}, f"regr_{one}(near, beside)", MOMENT
        )
        for one in ("count", "sxx", "syy", "sxy", "slope", "intercept", "r2")
    },
    "regr_slope by a constant": Case(
        {"function": "regr_slope", "column": "near", "other": "flat"}, "regr_slope(near, flat)", MOMENT
    ),
    "regr_r2 of a constant": Case(
        {"function": "regr_r2", "column": "flat", "other": "near"}, "regr_r2(flat, near)", MOMENT
    ),
    "corr with infinities": Case({"function": "corr", "column": "real", "other": "whole"}, "corr(real, whole)", MOMENT),
    "max_by": Case({"function": "max_by", "column": "word", "by": "place"}, "max_by(word, place)", exactly),
    "min_by": Case({"function": "min_by", "column": "tags", "by": "place"}, "min_by(tags, place)", exactly),
    "max_by, ties": Case(
        {"function": "max_by", "column": "word", "by": "real"},
        "max_by(word, struct(real, -place)) FILTER (WHERE real IS NOT NULL)",
        exactly,
    ),
    "min_by, ties": Case(
        {"function": "min_by", "column": "at", "by": "flag"},
        "min_by(at, struct(flag, place)) FILTER (WHERE flag IS NOT NULL)",
        exactly,
    ),
    "first": Case({"function": "first", "column": "word"}, "min_by(word, place)", exactly),
    "last": Case({"function": "last", "column": "coin"}, "max_by(coin, place)", exactly),
    "first value": Case(
        {"function": "first", "column": "real", "ignore_nulls": True},
        "min_by(real, place) FILTER (WHERE real IS NOT NULL)",
        exactly,
    ),
    "last value": Case(
        {"function": "last", "column": "tags", "ignore_nulls": True},
        "max_by(tags, place) FILTER (WHERE tags IS NOT NULL)",
        exactly,
    ),
    **alike("bool_and", "flag"),
    **alike("bool_or", "flag"),
    **alike("bit_and", "tiny", "big"),
    **alike("bit_or", "tiny", "big"),
    **alike("bit_xor", "tiny", "big"),
    **alike("collect_set", "word", "real", "raw", "tags", sql="sort_array(array_distinct({0}({1})))"),
    **alike("count_distinct", "real", "coin", "raw", sql="count(DISTINCT {1})"),
    "count_distinct of two": Case(
        {"function": "count_distinct", "column": "two"}, "count(DISTINCT real, whole)", exactly
    ),
    **{
        f"{one}_distinct {of}": Case({"function": f"{one}_distinct", "column": of}, f"{one}(DISTINCT {of})", MOMENT)
        for one, of in (("sum", "whole"), ("sum", "price"), ("avg", "real"), ("avg", "price"))
    },
    **alike("mode", "word", "real", sql="{0}({1}, true)"),
    **{
        f"percentile {of}": Case(
            {"function": "percentile", "column": of, "percentages": [0.0, 0.3, 0.999]},
            f"percentile({of}, array(0.0, 0.3, 0.999))",
            exactly if here() >= (4, 3) else MOMENT,
        )
        for of in ("real", "price")
    },
    "percentile, one": Case({"function": "percentile", "column": "near", "percentage": 0.5}, "median(near)", exactly),
    **alike("collect_list", "word", sql=IN_ORDER),
    "collect_list of numbers": Case(
        {"function": "collect_list", "column": "real"}, IN_ORDER.format("", "real"), exactly
    ),
    **alike("approx_count_distinct", "word", "coin", sql="count(DISTINCT {1})", holds=within(0.06)),
    "theta_sketch_estimate": Case(
        {"function": "theta_sketch_estimate", "column": "at", "lg_nom_entries": 11}, "count(DISTINCT at)", within(0.08)
    ),
    **{
        f"approx_percentile {of}": Case(
            {"function": "approx_percentile", "column": of, "percentages": [0.0, 0.5, 0.99]},
            f"filter(collect_list({of}), one -> NOT coalesce(isnan(double(one)), false))"
            if of in {"real", "whole", "coin", "price"}
            else f"collect_list({of})",
            of_rank(0.0, 0.5, 0.99),
        )
        for of in ("real", "whole", "coin", "price", "at", "day")
    },
    "approx_percentile, one": Case(
        {"function": "approx_percentile", "column": "near", "percentage": 0.25, "accuracy": 500},
        "collect_list(near)",
        of_rank(0.25, accuracy=500),
        same_type=False,
    ),
    "approx_top_k": Case(
        {"function": "approx_top_k", "column": "word", "k": 4, "max_items_tracked": 1000},
        "transform(collect_list(struct(word)), one -> struct(one.word AS item, 1L AS count))",
        most_frequent(4),
    ),
    "histogram": Case(
        {"function": "histogram", "column": "real", "edges": [-1, 0, 2.5, 6]},
        "cast(array(struct(-double('inf'), -1d, count_if(real < -1)),"
        " struct(-1d, 0d, count_if(real >= -1 AND real < 0)), struct(0d, 2.5d, count_if(real >= 0 AND real < 2.5)),"
        " struct(2.5d, 6d, count_if(real >= 2.5 AND real < 6)),"
        " struct(6d, double('inf'), count_if(real >= 6 AND NOT isnan(real))))"
        " AS array<struct<lower: double, upper: double, count: bigint>>)",
        exactly,
    ),
}
#: Before 4.3 Spark's mode takes zeros of both signs for two values; its variance of equal values is a rounding error.
OFF_BEFORE_4_3 = ("mode", "regr_slope by a constant", "regr_r2 of a constant")
CASES = {
    name: case for name, case in CASES.items()
    if not lacking_aggregate(case.call if isinstance(case.call, str) else case.call["function"])
    if not (here() < (4, 3) and name.startswith(OFF_BEFORE_4_3))
}  # fmt: skip
#: Result columns are called a0, a1, ...: the names of the cases are for people.
NAMES = {case: f"a{number}" for number, case in enumerate(CASES)}


@pytest.fixture(scope="module")
def nasty_input(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_input(tmp_path_factory.mktemp("nasty") / "input", nasty(), files=8)


@pytest.fixture(scope="module")
def expected(spark: SparkSession, nasty_input: Path) -> tuple[dict[str | None, Row], dict[str, str]]:
    spark.conf.set("spark.sql.ansi.enabled", "false")  # before 4.3 corr of one value divides by zero
    said = plain(spark, nasty_input, ["key"], *(F.expr(case.sql).alias(NAMES[id_]) for id_, case in CASES.items()))
    rows = {row["key"]: row for row in said.collect()}
    spark.conf.set("spark.sql.ansi.enabled", "true")
    return rows, dict(said.dtypes)


@pytest.fixture(scope="module", params=mostly_long(["combine", "bypass", *POLICIES], "combine"))
def came(
    request: pytest.FixtureRequest, spark: SparkSession, nasty_input: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str | None, Row], dict[str, str]]:
    """All aggregates in one job, and one in Python beside them, whose states have rows of their own."""
    calls = {NAMES[id_]: case.call for id_, case in CASES.items()}
    calls["beside"] = {"function": "streaming_histogram", "column": "whole", "bins": 4}
    engine = "staged" if request.param in POLICIES else request.param
    routing = {**POLICIES.get(request.param, {}), "waves": [1, 3]}
    spec = spec_of(nasty_input, "key", calls, engine=engine, routing=routing)
    run, reports = reduce_job(spark, spec, tmp_path_factory.mktemp(request.param) / "run")
    assert (engine != "staged") == (len(reports) == 1)
    assert (request.param != "adaptive") == all(report.backlog_rows == 0 for report in reports)
    frame = spark.read.parquet(*(run.path(file.path) for file in run.committed("result").files))
    return {row["key"]: row for row in frame.collect()}, dict(frame.dtypes)


@pytest.mark.parametrize("case", CASES)
def test_an_aggregate_says_what_plain_spark_says(
    case: str,
    came: tuple[dict[str | None, Row], dict[str, str]],
    expected: tuple[dict[str | None, Row], dict[str, str]],
) -> None:
    (ours, our_types), (theirs, their_types) = came, expected
    name = NAMES[case]
    assert ours.keys() == theirs.keys()
    wrong = {
        key: (ours[key][name], row[name])
        for key, row in theirs.items()
        if not CASES[case].holds(ours[key][name], row[name])
        if not (here() < (4, 3) and key == "constant" and case.startswith("regr_"))
    }
    assert not wrong, list(wrong.items())[:3]
    if CASES[case].same_type:
        assert our_types[name] == their_types[name]


def test_every_native_aggregate_is_in_the_table_and_mergeable() -> None:
    called = {case.call if isinstance(case.call, str) else case.call["function"] for case in CASES.values()}
    native = {
        name for name, one in REGISTRY.items() if isinstance(one, NativeAggregate) and not lacking_aggregate(name)
    }
    assert called - native == {"percentile", "mode"} - ({"mode"} if here() < (4, 3) else set())
    native -= {"spark"}
    assert (called & native) | {name for name in SYNONYMS if not lacking_aggregate(name)} == native
    assert all(REGISTRY[name].mergeable and not REGISTRY[name].ordered for name in native)


@pytest.mark.usefixtures("spark")
def test_states_that_are_alike_are_kept_once_and_are_merged_alike(nasty_input: Path) -> None:
    calls: dict[str, Any] = {
        f"{function}_{of}": {"function": function, "column": of}
        for function in ("sum", "avg", "count", "try_avg", "var_pop", "stddev_samp", "variance")
        for of in ("whole", "real", "price")
    }
    calls |= {one: {"function": one, "column": "real", "other": "near"} for one in ("corr", "covar_pop", "regr_r2")}
    quantiles = {"column": "near", "accuracy": 100}
    calls |= {f"q{n}": {"function": "approx_percentile", "percentage": n / 9, **quantiles} for n in range(9)}
    columns = JobColumns.of(freeze(spec_of(nasty_input, "key", calls), DATE, "/", "spec"))
    names = Native(columns).names
    assert len(names) == 3 + 2 + 2 + 1 + 3 + 1 + (not lacking_aggregate("approx_percentile")), names
    merged: dict[str, str] = {}
    for one in columns.native:
        states = columns.states(one)
        for name, merge in zip(states, one.definition.merge(states, one.options, one.spark_type), strict=True):
            text = re.sub(r"\b[xy]_\d+", "x", str(merge))  # variables have numbers of their own
            assert merged.setdefault(name, text) == text


def test_a_sum_that_overflows_ends_the_run(spark: SparkSession, tmp_path: Path) -> None:
    path = write_input(tmp_path / "input", pa.table({"key": ["a"] * 4, "value": [2**62] * 4}), files=1)
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW") as raised:
        reduce_job(spark, spec_of(path, "key", {"total": {"function": "sum", "column": "value"}}), tmp_path / "run")
    assert exit_code_of(raised.value) == InputError.exit_code, "it is not tried again"


TYPES = {
    "n": "int", "x": "double", "flag": "boolean", "word": "string", "raw": "binary", "tags": "array<string>",
    "local": "timestamp_ntz", "cost": "decimal(10,2)",
}  # fmt: skip

OTHERWISE = "; choose another column or aggregate."
BY_STATE = " with publish: state, but got column "
OR_CAST = "; cast it in the map step, or choose another column."
HAVE_SKETCHES = (
    "expected result, or state for one of approx_count_distinct, theta_sketch_estimate, approx_percentile, "
    "approx_top_k, percentile_approx, but got state"
)


def other_type(wanted: str, column: str, function: str, **options: Any) -> tuple[dict[str, Any], str]:
    words = f": expected {wanted} for {function}, but got column {column!r} of type {TYPES[column]}{OTHERWISE}"
    return {"function": function, "column": column, **options}, words


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no other column": ({"function": "corr", "column": "x"}, ", field other: this field is missing; add it."),
    "an option misspelt": (
        {"function": "max_by", "column": "x", "bye": "n"},
        ": expected a known option, but got 'bye'; did you mean 'by'?",
    ),
    "another column that is not there": (
        {"function": "corr", "column": "x", "other": "y"},
        ": expected an existing column, but got 'y'; the known ones are "
        + ", ".join(map(repr, sorted(["cost", "flag", "local", "n", "raw", "tags", "word", "x"])))
        + ".",
    ),
    "no boolean": other_type("a boolean", "n", "count_if"),
    "no integer": other_type("an integer", "x", "bit_xor"),
    "no quantity": other_type("a number, date or timestamp", "local", "approx_percentile", percentage=0.5),
    "no item": other_type("a column of a plain type, no binary, array, map or struct,", "raw", "approx_top_k"),
    "no value to hash": other_type(
        "a column of a plain type, no array, map or struct,", "tags", "theta_sketch_estimate"
    ),
    "no percentage": (
        {"function": "approx_percentile", "column": "x"},
        ": expected percentage (one share) or percentages (a list of them), but got neither.",
    ),
    "a percentage above one": (
        {"function": "approx_percentile", "column": "x", "percentages": [0.5, 99]},
        ", field percentages.1: expected at most 1, but got 99.0.",
    ),
    "edges that descend": (
        {"function": "histogram", "column": "x", "edges": [1, 3, 2]},
        ": expected edges that ascend, but got [1.0, 3.0, 2.0].",
    ),
    "a decimal as a sketch": (
        {"function": "approx_percentile", "column": "cost", "publish": "state"},
        f": expected an integer, float or double for approx_percentile{BY_STATE}'cost' of type decimal(10,2){OR_CAST}",
    ),
    "what has no sketch": (
        {"function": "sum", "column": "x", "publish": "state"},
        f", field publish: {HAVE_SKETCHES} for sum.",
    ),
    "a quantile of a sketch": (
        {"function": "approx_percentile", "column": "x", "percentage": 0.5, "publish": "state"},
        (
            ": expected a known option, but got 'percentage'; the known ones are 'accuracy', 'column', 'function', "
            "'publish'."
        ),
    ),
    "more items than are tracked": (
        {"function": "approx_top_k", "column": "word", "k": 10, "max_items_tracked": 5},
        ": expected k <= max_items_tracked, but got 10 and 5.",
    ),
}


REFUSED = {name: case for name, case in REFUSED.items() if not lacking_aggregate(case[0]["function"])}


@pytest.mark.parametrize(("call", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_call_that_cannot_be_run_is_refused_in_a_sentence(
    tmp_path: Path, call: dict[str, Any], sentence: str
) -> None:
    spec = spec_of(tmp_path, "key", {"a": call})
    with pytest.raises((SpecError, InputError)) as caught:
        check_types(spec, TYPES, "spec")
    assert str(caught.value) == f"spec, aggregate 'a'{sentence}"


def test_an_aggregate_that_this_spark_cannot_merge_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AGGREGATES, "approx_top_k", Gap((9, 0), "value_counts"))
    spec = spec_of(tmp_path, "key", {"a": {"function": "approx_top_k", "column": "word"}})
    with pytest.raises(SpecError) as caught:
        check_types(spec, TYPES, "spec")
    assert str(caught.value) == (
        f"spec, aggregate 'a': expected Spark 9.0 or newer for approx_top_k, but got Spark {pyspark.__version__[:3]}; "
        "take a newer Spark, or value_counts."
    )


#: Values whose types have rules of their own, or none that Parquet holds.
ODD = (
    "'x' COLLATE UTF8_LCASE", "array('x' COLLATE UNICODE_CI)", "named_struct('a', 1, 'b', 'x' COLLATE UTF8_LCASE)",
    "map('k', 'x' COLLATE UNICODE)", "NULL", "INTERVAL '1' DAY", "INTERVAL '1' MONTH", "parse_json('1')",
    "array(parse_json('1'))", "TIME'10:00:00'",
)  # fmt: skip


@pytest.mark.long
def test_values_with_rules_of_their_own_are_taken_by_no_aggregate_and_no_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Sketches in the JVM compare bytes, where a collation says that others are equal too."""
    odd = spark.sql(f"SELECT {', '.join(f'{one} AS x{n}' for n, one in enumerate(ODD))}").schema
    types = {"v": "bigint"} | {field.name: field.dataType.simpleString() for field in odd}
    options: dict[str, dict[str, Any]] = {
        "histogram": {"edges": [1]},
        "approx_percentile": {"percentage": 0.5},
        "sessions": {"gap": 1},
    }
    options["percentile_approx"] = options["percentile"] = options["approx_percentile"]
    options["spark"] = {"expression": "max(v)"}
    for function, definition in REGISTRY.items():
        for name in odd.names:
            further = dict.fromkeys(definition.further, "v")
            call = {"function": function, "column": name, **further, **options.get(function, {})}
            with pytest.raises(InputError, match=f" for {function}, but got column '{name}' of type"):
                check_types(spec_of(tmp_path, "v", {"n": call}), types, "spec")
            for one in further:
                with pytest.raises(InputError, match=f" for {function}, but got column '{name}' of type"):
                    check_types(spec_of(tmp_path, "v", {"n": {**call, "column": "v", one: name}}), types, "spec")
    write_input(tmp_path / "in", pa.table({"v": [1]}), files=1)
    for made in ODD:
        spec = spec_of(tmp_path / "in", "x", {"n": "count"}, map={"select": [f"{made} AS x"]})
        with pytest.raises(InputError, match="key: expected a column that can be a key, but got 'x' of type"):
            freeze(spec, DATE, str(tmp_path), "spec")


@pytest.mark.parametrize("largest", ["9" * 20 + "." + "9" * 18, "9" * 38, "9" * 19, "999.99"])
def test_a_quantile_of_the_largest_decimals_is_one_of_them(spark: SparkSession, largest: str) -> None:
    whole, _, fraction = largest.partition(".")
    kind = f"decimal({len(whole + fraction)},{len(fraction)})"
    measure = _measure(kind)
    values = spark.sql(f"SELECT explode(array({largest}BD, -{largest}BD, NULL)) AS v")
    found = values.select(measure.restored(measure.measured(F.col("v").cast(kind)))).collect()
    assert [row[0] for row in found] == [decimal.Decimal(largest), decimal.Decimal(f"-{largest}"), None]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["bigint", "decimal(20,2)"])
def test_the_bins_of_a_histogram_are_told_by_all_digits(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """As a double, 2**53 + 3 is 2**53 + 4, which is the edge of another bin."""
    base, scale = 2**53, 0 if kind == "bigint" else 2
    values = [base + 3, base + 4, base - 1, -base - 5, 0, 1]
    edges = [-base - 4, 0.5, base, base + 4, 1e300]
    column = pa.array([decimal.Decimal(one) for one in values], pa.decimal128(20, scale))
    write_input(tmp_path / "in", pa.table({"k": ["a"] * len(values), "v": column}), files=1)
    spec = spec_of(
        tmp_path / "in", "k", {"bins": {"function": "histogram", "column": "v", "edges": edges}}, engine="combine",
        map={"select": ["k", f"CAST(v AS {kind}) AS v"]},
    )  # fmt: skip
    run, _ = reduce_job(spark, spec, tmp_path / "run")
    bounds = [-math.inf, *edges, math.inf]
    wanted = [sum(low <= one < high for one in values) for low, high in itertools.pairwise(bounds)]
    assert [one["count"] for one in result_of(run)["bins"].to_pylist()[0]] == wanted
    with pytest.raises(SpecError, match="expected numbers that a double holds"):
        spec_of(tmp_path, "k", {"bins": {"function": "histogram", "column": "v", "edges": [base + 1]}})
