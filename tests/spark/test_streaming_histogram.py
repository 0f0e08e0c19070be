"""The histogram is the paper's, loses no value, and can be cut and merged anywhere."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from examples.models.tree import cumulative_count, uniform
from skewless.aggregates.shipped import streaming_histogram
from skewless.aggregates.shipped.streaming_histogram import (
    STREAMING_HISTOGRAM,
    StreamingHistogramOptions,
    StreamingHistograms,
)
from skewless.errors import AggregateError
from skewless.testing import check_aggregate
from tests.tiers import mostly_long

Histogram = list[tuple[float, int]]

#: The first Arrow call of a process imports pandas.
UNHURRIED = settings(deadline=None)
BINS = st.integers(2, 9)
NUMBERS = st.integers(-20, 20).map(float) | st.floats(-1e6, 1e6)
#: Every number there is, and nulls; few enough distinct ones that some come twice.
ANYTHING = st.none() | st.sampled_from([0.0, -0.0, 1e308, -1e308, math.inf, -math.inf, math.nan, 5e-324]) | st.floats()
ROWS = st.lists(st.tuples(st.integers(0, 4), ANYTHING), max_size=120)
GROUPS = 6  # the last one never has a row


@pytest.fixture(params=[1, 50, 1 << 19], ids=["sorted at once", "sorted now and then", "sorted at the end"])
def pending_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming_histogram, "PENDING_ROWS", request.param)


def accumulator(bins: int) -> StreamingHistograms:
    created = STREAMING_HISTOGRAM.create(StreamingHistogramOptions(bins=bins))
    assert isinstance(created, StreamingHistograms)
    return created


def fed(batches: Sequence[Sequence[tuple[int, float | None]]], bins: int, groups: int = GROUPS) -> StreamingHistograms:
    histograms = accumulator(bins)
    for batch in batches:
        values = pa.array([value for _, value in batch], pa.float64(), from_pandas=False)
        histograms.update(values, np.array([group for group, _ in batch], np.int64), groups)
    return histograms


def merged(states: Sequence[pa.Array], bins: int) -> StreamingHistograms:
    histograms = accumulator(bins)
    for state in states:
        histograms.merge(state, np.arange(len(state)), len(state))
    return histograms


def of_values(values: npt.NDArray[np.float64], bins: int, batches: int = 1) -> StreamingHistograms:
    histograms = accumulator(bins)
    for batch in np.array_split(values, batches):
        histograms.update(pa.array(batch), np.zeros(len(batch), np.int64), 1)
    return histograms


def lists(state: pa.Array) -> list[Histogram]:
    return [[(point["x"], point["y"]) for point in histogram] for histogram in state.to_pylist()]


def arrays(histogram: Histogram) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    return np.array([x for x, _ in histogram]), np.array([y for _, y in histogram], np.int64)


def cut(rows: list[tuple[int, float | None]], cuts: list[int]) -> list[list[tuple[int, float | None]]]:
    places = [0, *sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
    return [rows[first:last] for first, last in itertools.pairwise(places)]


def counted(rows: list[tuple[int, float | None]], group: int) -> list[float]:
    return [value for of, value in rows if of == group and value is not None and not math.isnan(value)]


def paper_merge(points: Histogram, bins: int) -> Histogram:
    """Procedure 2 of the paper to the letter: one closest pair at a time, the leftmost of equally close ones."""
    points = sorted(points)
    while len(points) > bins:
        i = min(range(len(points) - 1), key=lambda i: points[i + 1][0] - points[i][0])
        (x0, y0), (x1, y1) = points[i : i + 2]
        mean = x0 * (y0 / float(y0 + y1)) + x1 * (y1 / float(y0 + y1))
        points[i : i + 2] = [(min(max(mean, x0), x1), y0 + y1)]
    return points


def cdf_error(histogram: Histogram, values: npt.NDArray[np.float64]) -> float:
    """Largest distance of the histogram's CDF from the values' own, as a share of all values.

    At an atom the values' CDF jumps; a histogram that says anything within the jump is right there.
    """
    at, counts = np.unique(values, return_counts=True)
    upper = np.cumsum(counts)
    said = cumulative_count(*arrays(histogram), at)
    return float(np.max(np.maximum(said - upper, upper - counts - said)) / len(values))


@pytest.mark.usefixtures("pending_rows")
def test_values_lose_nothing_however_they_are_cut() -> None:
    @UNHURRIED
    @given(rows=ROWS, cuts=st.lists(st.integers(0, 200), max_size=4), bins=BINS)
    def check(rows: list[tuple[int, float | None]], cuts: list[int], bins: int) -> None:
        histograms = fed(cut(rows, cuts), bins)
        state = histograms.state()
        assert state.type == STREAMING_HISTOGRAM.state_type
        assert histograms.evaluate().type == STREAMING_HISTOGRAM.result_type
        assert histograms.evaluate().equals(state)
        for group, histogram in enumerate(lists(state)):
            values = counted(rows, group)
            places = [x for x, _ in histogram]
            assert sum(y for _, y in histogram) == len(values)
            assert len(histogram) <= bins
            assert all(left < right for left, right in itertools.pairwise(places))
            assert all(y >= 1 for _, y in histogram)
            assert not values or (min(values) <= places[0] and places[-1] <= max(values))
            if len(set(values)) <= bins:
                assert dict(histogram) == Counter(values)

    check()


@UNHURRIED
@given(parts=st.lists(ROWS, min_size=1, max_size=3), bins=BINS)
def test_merging_in_any_order_gives_the_same_histogram(parts: list[list[tuple[int, float | None]]], bins: int) -> None:
    states = [fed([part], bins).state() for part in parts]
    assert merged(states, bins).state().equals(merged(states[::-1], bins).state())


def test_the_laws_hold_where_points_are_merged_and_no_count_is_lost() -> None:
    def same_counts(left: list[dict[str, float]], right: list[dict[str, float]]) -> bool:
        return sum(one["y"] for one in left) == sum(one["y"] for one in right)

    values = np.random.default_rng(6).normal(size=200).round(2).tolist()
    check_aggregate(STREAMING_HISTOGRAM, values, {"bins": 4}, equal=same_counts, seeds=[1])


POINTS = st.dictionaries(NUMBERS, st.integers(1, 10) | st.integers(1, 10**15), min_size=1, max_size=80)
GRIDS = st.builds(
    lambda size, power, ys: {float(i) ** power: ys[i % len(ys)] for i in range(size)},
    st.integers(1, 150),
    st.sampled_from([0.5, 1, 2, 5]),
    st.lists(st.integers(1, 1000), min_size=1, max_size=7),
)


@settings(max_examples=60, deadline=None)
@given(groups=st.lists(POINTS | GRIDS, min_size=1, max_size=6), bins=BINS)
def test_rounds_give_bit_for_bit_what_one_merge_at_a_time_gives(groups: list[dict[float, int]], bins: int) -> None:
    points = [sorted((x + 0.0, y) for x, y in group.items()) for group in groups]
    state = pa.array([[{"x": x, "y": y} for x, y in group] for group in points], STREAMING_HISTOGRAM.state_type)
    assert lists(merged([state], bins).state()) == [paper_merge(group, bins) for group in points]


def test_gaps_that_double_are_merged_as_the_paper_does_although_a_round_finds_one_merge_only() -> None:
    values = np.exp2(np.arange(-500.0, 500.0))
    expected = paper_merge([(x, 1) for x in values.tolist()], 4)
    assert lists(of_values(values, 4).state()) == [expected]


@UNHURRIED
@given(values=st.lists(NUMBERS, max_size=40), bins=BINS)
def test_values_are_merged_as_the_paper_does_where_the_buffer_has_not_been_full(values: list[float], bins: int) -> None:
    points = [(x + 0.0, y) for x, y in Counter(values).items()]
    assert lists(of_values(np.array(values, np.float64), bins).state()) == [paper_merge(points, bins)]


RANDOM = np.random.default_rng(20240607)
SAMPLES = {
    "normal": RANDOM.normal(size=50_000),
    "uniform": RANDOM.uniform(-1, 1, 50_000),
    "exponential": RANDOM.exponential(size=50_000),
    "zipf": np.minimum(RANDOM.zipf(1.5, 50_000), 121).astype(np.float64),
    "minutes": RANDOM.integers(0, 121, 50_000).astype(np.float64),
}
#: In shares of all values, in bins' worth. Closest-pair merging spaces points evenly whatever lies between them,
#: so the first point of a skewed shape holds many values, and Sum says nothing lies below it. So it is in the paper.
CDF_BOUNDS = {"normal": 0.5 / 32, "uniform": 1 / 32, "exponential": 5 / 32, "zipf": 3 / 32, "minutes": 0.5 / 32}


@pytest.mark.parametrize("batches", mostly_long([1, 7], 7))
@pytest.mark.parametrize("shape", mostly_long(SAMPLES, "zipf"))
@pytest.mark.usefixtures("pending_rows")
def test_the_cdf_is_near_the_true_one(shape: str, batches: int) -> None:
    (histogram,) = lists(of_values(SAMPLES[shape], 32, batches).state())
    assert sum(y for _, y in histogram) == 50_000
    assert cdf_error(histogram, SAMPLES[shape]) <= CDF_BOUNDS[shape]


@UNHURRIED
@given(points=st.dictionaries(NUMBERS, st.integers(1, 1000), min_size=1, max_size=12), parts=st.integers(1, 9))
def test_uniform_undoes_sum(points: dict[float, int], parts: int) -> None:
    x, y = arrays(sorted((x + 0.0, y) for x, y in points.items()))
    assume(len(x) == 1 or np.min(np.diff(x)) > 1e-3)
    cuts = uniform(x, y, parts)
    wanted = np.arange(1, parts) / parts * y.sum()
    inside = (cuts > x[0]) & (cuts < x[-1])
    assert cumulative_count(x, y, cuts)[inside] == pytest.approx(wanted[inside], rel=1e-5, abs=1e-5)
    assert np.all(np.diff(cuts) >= 0)


def test_sum_counts_half_of_a_point_below_it() -> None:
    x, y = np.array([2.0, 4.0, 8.0]), np.array([2, 4, 4])
    # From 4 on: 2 + 4 / 2; at 6, halfway to 8, half of the (4 + 4) / 2 values between.
    assert cumulative_count(x, y, np.array([1.9, 2.0, 4.0, 6.0, 8.0, 9.0])).tolist() == [0, 1, 4, 6, 10, 10]


def test_infinite_points_are_counted_as_a_whole() -> None:
    x, y = np.array([-np.inf, 1.0, np.inf]), np.array([3, 4, 3])
    assert cumulative_count(x, y, np.array([-np.inf, 0.0, 1.0, np.inf])).tolist() == [3, 3, 7, 10]
    assert uniform(x, y, 10).tolist() == [-np.inf, -np.inf, 1, 1, 1, 1, 1, np.inf, np.inf]


def test_negative_zero_is_zero() -> None:
    ((x, y),) = lists(fed([[(0, -0.0), (0, 0.0)]], 4, groups=1).state())[0]
    assert (math.copysign(1.0, x), y) == (1.0, 2)


def test_huge_values_are_merged_without_overflow() -> None:
    histograms = fed([[(0, 1.7e308), (0, 1.6e308), (0, -1.7e308), (0, 1e308)]], 2, groups=1)
    assert lists(histograms.state()) == [[(-1.7e308, 1), (pytest.approx(1.7e308 / 3 + 1.6e308 / 3 + 1e308 / 3), 3)]]


@pytest.mark.parametrize(
    ("bins", "expected"),
    [
        pytest.param(3, [(-math.inf, 1), (2.0, 3), (math.inf, 2)], id="kept while finite ones can be merged"),
        pytest.param(2, [(-math.inf, 4), (math.inf, 2)], id="merged last"),
    ],
)
def test_infinities_are_counted_at_the_ends(bins: int, expected: Histogram) -> None:
    rows = [(0, math.inf), (0, 1.0), (0, -math.inf), (0, 2.0), (0, 3.0), (0, math.inf)]
    assert lists(fed([rows], bins, groups=1).state()) == [expected]


@pytest.mark.parametrize(
    "point",
    [
        pytest.param((None, 1), id="no place"),
        pytest.param((math.nan, 1), id="nan"),
        pytest.param((1.0, None), id="no count"),
        pytest.param((1.0, 0), id="count of nothing"),
        pytest.param(None, id="no point"),
    ],
)
def test_a_state_that_is_none_is_refused(point: tuple[float | None, int | None] | None) -> None:
    state = pa.array([[(0.0, 1), point]], STREAMING_HISTOGRAM.state_type)
    with pytest.raises(AggregateError, match="a number x and a count y of at least 1"):
        accumulator(4).merge(state, np.array([0]), 1)
