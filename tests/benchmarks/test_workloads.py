from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.workloads import Keys, drift, lognormal_1, lognormal_2, zipf


def hottest_share(keys: np.ndarray) -> float:
    return float(np.bincount(keys).max() / keys.size)


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.2, 2.0])
def test_a_zipf_key_comes_as_often_as_its_rank_says(exponent: float) -> None:
    drawn = np.bincount(zipf(50, exponent, 500_000, seed=1), minlength=51)[1:] / 500_000
    law = np.arange(1, 51) ** -exponent / (np.arange(1, 51) ** -exponent).sum()
    assert np.abs(drawn - law).max() < 5 * np.sqrt(0.25 / 500_000)


def test_zipf_keys_are_1_to_the_number_of_keys() -> None:
    keys = zipf(7, 0.5, 10_000, seed=0)
    assert keys.dtype == np.int64
    assert set(keys) == set(range(1, 8))


def test_the_hottest_of_100_k_keys_at_exponent_2_has_three_fifths_of_the_messages() -> None:
    assert hottest_share(zipf(100_000, 2.0, 1_000_000, seed=0)) == pytest.approx(0.608, rel=0.01)


@pytest.mark.long
@pytest.mark.parametrize(("draw", "keys", "hottest"), [(lognormal_1, 16_400, 0.147), (lognormal_2, 1_100, 0.070)])
def test_the_log_normal_workloads_are_those_of_the_paper(
    draw: Callable[..., np.ndarray], keys: int, hottest: float
) -> None:
    drawn = draw(seed=0)
    assert drawn.size == 10_000_000
    assert np.count_nonzero(np.bincount(drawn)) == pytest.approx(keys, rel=0.01)
    assert hottest_share(drawn) == pytest.approx(hottest, rel=0.01)


def test_a_drifting_stream_has_another_hottest_key_in_every_epoch() -> None:
    keys = drift(1000, 1.4, 100_000, seed=3)
    hottest = [int(np.bincount(part).argmax()) for part in np.array_split(keys, 10)]
    assert len(set(hottest)) == 10
    assert all(hottest_share(part) == pytest.approx(0.33, rel=0.1) for part in np.array_split(keys, 10))


def test_drift_only_renames_the_keys_of_the_zipf_stream() -> None:
    renamed, plain = drift(100, 1.0, 5_000, epochs=4, seed=8), zipf(100, 1.0, 5_000, seed=8)
    for epoch, ranks in zip(np.array_split(renamed, 4), np.array_split(plain, 4), strict=True):
        assert len(set(zip(epoch.tolist(), ranks.tolist(), strict=True))) == len(set(ranks)) == len(set(epoch))


@pytest.mark.parametrize("draw", [zipf, lognormal_1, lognormal_2, drift])
def test_a_seed_says_the_whole_stream(draw: Callable[..., Keys]) -> None:
    law = {} if draw in {lognormal_1, lognormal_2} else {"keys": 100, "exponent": 1.0}
    assert np.array_equal(draw(messages=2_000, seed=4, **law), draw(messages=2_000, seed=4, **law))
    assert not np.array_equal(draw(messages=2_000, seed=4, **law), draw(messages=2_000, seed=5, **law))
