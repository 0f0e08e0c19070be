"""Bands of the nights around a run, how often they are left, and when a day is final."""

from __future__ import annotations

import datetime as dt
import json
import math
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.documents.job import Job
from skewless.documents.ledger import Ledger, PartLine
from skewless.documents.nights import MOST_NIGHTS, Arrivals, Band, FinalDay, JobNights, Measured, Night
from skewless.documents.window import JobWindow, WindowPart, WindowSpan
from skewless.errors import DocumentError
from skewless.history.bands import FEWEST, Figure, Usual, left, usual
from skewless.history.figures import shape_of
from skewless.history.finality import delays_of
from skewless.history.judging import WITHIN, bands_of, failed_checks, judged
from skewless.history.recording import finality_of, tells_finality, with_run
from skewless.history.store import KEPT, NightsStore
from skewless.spec.part import Part, part_place
from skewless.spec.reading import parse_spec
from skewless.spec.result import Quality, Window
from tests.seasons import BEGIN, END, SEASONS, measured
from tests.unit import synthetic

FIRST = dt.date(2026, 1, 5).toordinal()


def _figures(values: Sequence[float], of: int = 0, first: int = FIRST) -> list[Figure]:
    return [Figure(first + at, value, of) for at, value in enumerate(values)]


def _weekly(days: int, seed: int = 1) -> list[float]:
    noise = np.random.default_rng(seed).normal(0, 0.03, days)
    return [1000 * (0.4 if (FIRST + at) % 7 in (6, 0) else 1.0) * math.exp(noise[at]) for at in range(days)]


def _left(band: Usual | None, *values: float) -> list[bool]:
    assert band is not None
    return [left(band, value) for value in values]


# Bands.


def test_a_band_needs_a_week_and_a_night() -> None:
    assert usual(_figures([5.0] * (FEWEST - 1)), FIRST + 7) is None
    found = usual(_figures([5.0] * FEWEST), FIRST + 8)
    assert _left(found, 4.4, 5.0, 5.6) == [True, False, True]
    assert found is not None
    assert not found.by_weekday


def test_a_quiet_weekday_has_a_band_of_its_own() -> None:
    figures = _figures(_weekly(56))
    for day in range(35, 56):
        band, value = usual(figures[:day], FIRST + day), figures[day].value
        assert band is not None
        assert band.by_weekday
        assert _left(band, value / 2, value, value * 2) == [True, False, True], "a weekday as a weekend is told"


def test_a_step_is_told_for_some_nights_and_is_usual_then() -> None:
    values = [value * (0.5 if at >= 60 else 1.0) for at, value in enumerate(_weekly(90))]
    told = []
    for day in range(60, 90):
        band = usual(_figures(values)[:day], FIRST + day)
        assert band is not None
        told.append(left(band, values[day]))
    assert told == [True] * 4 + [False] * 26


def test_a_trend_is_taken_along() -> None:
    values = [100 * 1.03**at for at in range(40)]
    band = usual(_figures(values), FIRST + 40)
    assert band is not None
    assert band.middle == pytest.approx(100 * 1.03**40, rel=0.01)


def test_an_old_day_is_compared_with_the_days_around_it() -> None:
    """Nights are in the order of their days, whenever they were computed."""
    values = [value * (4.0 if at >= 60 else 1.0) for at, value in enumerate(_weekly(120))]
    figures = _figures(values)
    others = [one for one in figures if one.day != FIRST + 30]
    band = usual(list(reversed(others)), FIRST + 30)
    assert _left(band, values[30], values[30] * 4) == [False, True]


def test_few_events_are_no_step() -> None:
    """Without any null for weeks, three of them in ten thousand rows are nothing; a hundred are."""
    band = usual(_figures([0.0] * 40, of=10_000), FIRST + 40, of_rows=10_000)
    assert _left(band, 0.0, 3 / 10_000, 100 / 10_000) == [False, False, True]


def test_figures_below_zero_have_a_band_too() -> None:
    values = [-50.0 + at % 3 for at in range(40)]
    band = usual(_figures(values), FIRST + 40)
    assert _left(band, -100.0, -49.0, 20.0) == [True, False, True]


def test_figures_of_all_magnitudes_have_a_band_of_numbers() -> None:
    band = usual(_figures([10.0 ** (300 if at % 2 else -300) for at in range(40)]), FIRST + 40)
    assert _left(band, 1.0) == [False]
    assert band is not None
    assert all(map(math.isfinite, band[:3]))


@given(st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), min_size=FEWEST, max_size=70), st.integers(-40, 120))
def test_a_band_is_always_one(values: list[float], day: int) -> None:
    nights = [one for one in _figures(values) if one.day != FIRST + day]
    band = usual(nights, FIRST + day)
    assert (band is None) == (len(nights) < FEWEST)
    if band is not None:
        assert all(map(math.isfinite, band[:3]))
        assert band.low <= band.middle <= band.high


def test_the_rates_on_the_page_hold_in_seasons_that_are_played_again() -> None:
    """Some of the seasons, within four standard deviations: the page has all of them."""
    page = _page()
    for (when, what), (count, of) in measured(SEASONS // 50).items():
        cells = [line.split("|")[1:-1] for line in page.splitlines() if what.replace("final: ", "") in line]
        if len(cells) != 1:
            continue
        cell = cells[0][1 if when == "by weekday" else 2]
        rate = float(cell.split("%")[0]) / 100
        # Nights of one season are alike: a noisy one leaves all of its bands.
        spread = 4 * math.sqrt(max(rate, 0.002) * (1 - min(rate, 0.998)) / of) + 0.05 * (rate > 0.05)
        assert abs(count / of - rate) <= spread, (when, what, count, of, cell)


def _page() -> str:
    return Path("docs/bands.md").read_text().partition(BEGIN)[2].partition(END)[0]


# The nights of a job.


def _job(day: int = 0, turn: int = 1, bands: str = "warn", rows: dict[int, int] | None = None, **window: Any) -> Job:
    """A job of a day; with rows of the days before it, in a window of ten days."""
    plain = synthetic.job([])
    date = dt.date.fromordinal(FIRST + day)
    spec = plain.spec.model_copy(update={"quality": Quality(bands=bands)})  # type: ignore[arg-type]
    if rows is None:
        return plain.model_copy(update={"spec": spec, "date": date, "turn": turn})
    spec = spec.model_copy(update={"window": Window(length=10, **window)})
    parts = [WindowPart(name=_name(at), place=part_place(Part(_date(at)))) for at in sorted(rows)]
    of = JobWindow(store="s", fingerprint="f", shapes={}, parts=tuple(parts), windows=(WindowSpan(length=10),))
    return plain.model_copy(update={"spec": spec, "date": date, "turn": turn, "window": of})


def _date(day: int) -> dt.date:
    return dt.date.fromordinal(FIRST + day)


def _name(day: int) -> str:
    return _date(day).isoformat()


def _ledger(rows: dict[int, int]) -> Ledger:
    lines = [PartLine(part=_name(at), unchanged_rows=0, new_rows=count, taken_out_rows=0) for at, count in rows.items()]
    return Ledger(lines=(), input_rows=0, state_rows=0, problems=(), parts=tuple(lines))


def _known(values: Sequence[float]) -> JobNights:
    nights = [
        Night(part=_name(at), turn=1, shape=shape_of(_job()), figures={"rows": (value, 0)})
        for at, value in enumerate(values)
    ]
    return JobNights(nights=tuple(nights))


def test_a_day_counts_once_by_its_latest_turn_and_the_newest_days_stay() -> None:
    kept = JobNights()
    for day, turn, rows in ((0, 2, 10.0), (1, 1, 20.0), (0, 3, 40.0), (0, 1, 30.0)):
        kept = with_run(kept, _job(day, turn), {"rows": (rows, 0)}, _ledger({}))
    assert [(one.part, one.turn, one.figures["rows"][0]) for one in kept.nights] == [
        (_name(0), 3, 40.0),
        (_name(1), 1, 20.0),
    ]
    for day in range(MOST_NIGHTS + 5):
        kept = with_run(kept, _job(day, 9), {"rows": (1.0, 0)}, _ledger({}))
    assert [one.part for one in kept.nights] == [_name(day) for day in range(5, MOST_NIGHTS + 5)]
    assert with_run(kept, _job(0, 99), {}, _ledger({})) == kept, "an old day is not kept again"


def test_only_nights_of_the_same_shape_are_compared() -> None:
    nights, figures = _known(_weekly(30)), {"rows": (400.0, 0)}
    found = bands_of(Part(_date(30)), shape_of(_job()), figures, nights, "warned")
    assert (found.nights, [one.outcome for one in found.checks]) == (30, ["warned"])
    assert bands_of(Part(_date(30)), "another", figures, nights, "warned").checks == ()
    own = bands_of(Part(_date(29)), shape_of(_job()), figures, nights, "warned")
    assert own.nights == 29, "the run's own day is not compared with itself"


@pytest.mark.parametrize(("bands", "outcome"), [("warn", "warned"), ("fail", "failed"), ("off", None)])
def test_what_is_left_warns_or_fails_or_is_not_looked_at(tmp_path: Path, bands: str, outcome: str | None) -> None:
    store = NightsStore(str(tmp_path / "nights"))
    store.change(lambda _: _known(_weekly(30)))
    figures: dict[str, Measured] = {"rows": (400.0, 0), "new": (1.0, 0)}
    found = judged(_job(30, bands=bands), figures, lambda _: store)
    assert (found.checks[0].outcome if found else None) == outcome
    (sentence,) = found.left if found else ("rows: 400",)
    assert sentence.startswith("rows: 400")
    checks = failed_checks(found)
    assert [one.name(own=False) for one in checks] == ["rows as in the nights around"] * (bands == "fail")
    # What cannot be read passes nothing.
    Path(store.path("0002.json")).write_text("{}")
    found = judged(_job(30, bands=bands), figures, lambda _: store)
    assert (found.outcome if found else None) == outcome
    assert ("0002.json" in found.sentences[-1]) if found else bands == "off"
    assert [one.expectation for one in failed_checks(found)] == [WITHIN] * (bands == "fail")


def test_bands_are_switched_off_by_a_bare_word_of_yaml() -> None:
    plain = synthetic.spec().model_dump(mode="json", exclude={"quality"})
    for bands in ("off", '"off"', "false"):
        text = f"{json.dumps(plain)[:-1]}, quality: {{bands: {bands}}}}}"
        assert parse_spec(text, "spec").quality.bands == "off"


def test_no_bands_yet_are_told_as_such() -> None:
    found = bands_of(Part(_date(3)), shape_of(_job()), {"rows": (1.0, 0)}, _known([1.0, 1.0, 1.0]), "warned")
    assert found.sentences == ("no bands yet: 3 earlier nights of this spec are known",)


def test_writers_at_once_lose_no_night(tmp_path: Path) -> None:
    def write(day: int) -> None:
        store = NightsStore(str(tmp_path / "nights"))
        store.change(lambda kept: with_run(kept, _job(day), {"rows": (1.0, 0)}, _ledger({})))

    threads = [threading.Thread(target=write, args=(day,)) for day in range(12)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    store = NightsStore(str(tmp_path / "nights"))
    assert [one.part for one in store.newest().nights] == [_name(day) for day in range(12)]
    assert [one.name for one in sorted((tmp_path / "nights").iterdir())] == [
        f"{n:04d}.json" for n in range(13 - KEPT, 13)
    ]


def test_a_writer_that_took_a_number_long_gone_writes_again(tmp_path: Path) -> None:
    store, slow = NightsStore(str(tmp_path)), NightsStore(str(tmp_path))

    def change(kept: JobNights) -> JobNights:
        if not kept.nights:  # it sleeps after it has looked
            for day in range(10):
                store.change(lambda now, day=day: with_run(now, _job(day), {}, _ledger({})))  # type: ignore[misc]
        return with_run(kept, _job(20), {}, _ledger({}))

    slow.change(change)
    assert [one.part for one in store.newest().nights] == [*(_name(day) for day in range(10)), _name(20)]


def test_a_damaged_document_is_refused(tmp_path: Path) -> None:
    store = NightsStore(str(tmp_path))
    store.change(lambda _: _known([1.0]))
    path = tmp_path / "0001.json"
    path.write_text(path.read_text().replace("1.0", "2.0"))
    with pytest.raises(DocumentError, match=r"0001\.json"):
        store.newest()


# Final days.


def _nights(days: int, late: dict[int, int], **window: Any) -> Iterator[tuple[JobNights, Job]]:
    """Nights whose days have 1,000 rows at first; ``late`` has the rows that come so many days after each."""
    kept = JobNights()
    for today in range(days):
        rows = {day: 1000 + sum(count for after, count in late.items() if after <= today - day)
                for day in range(max(0, today - 9), today + 1)}  # fmt: skip
        job = _job(today, today + 1, rows=rows, **window)
        kept = with_run(kept, job, {}, _ledger(rows))
        assert with_run(kept, job, {}, _ledger(rows)) == kept, "twice is as once"
        yield kept, job


def test_a_day_is_final_when_the_delays_of_earlier_days_say_so() -> None:
    final: dict[str, FinalDay] = {}
    for kept, job in _nights(30, {1: 5, 3: 20}):
        told = finality_of(kept, job)
        assert not set(final) & {one.part for one in told.final}, "each is told once"
        final |= {one.part: one for one in told.final}
    assert (told.share, told.delay, told.final_on) == (1000 / 1025, 3, _date(32))
    assert (told.days, told.expected) == (21, 21 / 22)
    assert told.sentences[:2] == (
        f"as a rule, 97.6% of the rows of {_name(29)} have come, by 21 earlier days",
        f"{_name(29)} is final 3 days after it, on {_name(32)}, as expected of 95.5% of days",
    )
    # The tenth day has been looked at for long enough on the 19th: then the days of its window and of the week before
    # are final, up to the 16th.
    assert {name: one.delay for name, one in final.items()} == {_name(day): max(3, 18 - day) for day in range(2, 27)}
    assert {one.by for one in final.values()} == {"curve"}


def test_a_day_whose_rows_come_and_go_is_final_when_they_stay() -> None:
    *_, (kept, job) = _nights(30, {1: 5, 3: -5})
    assert finality_of(kept, job).delay == 3


def test_days_that_change_for_as_long_as_they_are_seen_are_final_by_the_deadline_alone() -> None:
    for kept, job in _nights(30, {9: 100}):
        assert finality_of(kept, job).final == ()
    assert finality_of(kept, job).delay is None
    for kept, job in _nights(30, {9: 100}, final_after=5):
        told = finality_of(kept, job)
    assert [(one.part, one.delay, one.by) for one in told.final] == [(_name(24), 5, "deadline")]
    assert (told.delay, told.expected) == (5, 0.0)
    assert told.sentences[1].endswith("by the deadline")


def test_a_deadline_lies_within_the_window() -> None:
    with pytest.raises(ValueError, match="final_after below the longest length, 10, as older days are not seen"):
        Window(length=10, final_after=10)
    assert Window(length="all", final_after=10).final_after == 10


def test_a_day_of_a_far_future_makes_no_other_day_final() -> None:
    *_, (kept, _) = _nights(12, {1: 5}, final_after=9)
    stray = _job(20_000, 90, rows={20_000: 1}, final_after=9)
    kept = with_run(kept, stray, {}, _ledger({20_000: 1}))
    job = _job(12, 91, rows={12: 1000}, final_after=9)
    kept = with_run(kept, job, {}, _ledger({12: 1000}))
    assert kept.arrivals[-2].came == ((0, 1000),)
    assert [one.part for one in finality_of(kept, job).final] == [_name(3)]


def test_a_day_whose_last_nights_were_missed_is_final_a_little_later() -> None:
    *_, (kept, _) = _nights(9, {}, final_after=9)
    job = _job(14, 90, rows={14: 1000}, final_after=9)
    told = finality_of(with_run(kept, job, {}, _ledger({14: 1000})), job)
    assert [(one.part, one.delay) for one in told.final] == [(_name(day), 14 - day) for day in range(6)]


def test_rows_after_a_day_was_final_are_counted_and_told() -> None:
    *_, (kept, _) = _nights(30, {1: 5})
    part = WindowPart(name=_name(25), place=0, late_rows=7, base=1, before_rows=1005, units=(0, 1), ranks=(1,))
    job = _job(30, 90, rows={30: 1000})
    window = job.covered.model_copy(
        update={"parts": (part.model_copy(update={"place": part_place(Part(_date(25)))}), *job.covered.parts)}
    )
    job = job.model_copy(update={"window": window})
    kept = with_run(kept, job, {}, _ledger({25: 1012, 30: 1000}))
    told = finality_of(kept, job)
    assert told.after == {_name(25): 7}
    assert told.sentences[-1] == f"7 rows of {_name(25)} came after it was final"


def test_an_old_day_that_is_restated_counts_by_what_is_there_now() -> None:
    """A restated day sees its window as it is tonight, not as it was then: its delays are those until tonight."""
    *_, (kept, _) = _nights(30, {1: 5})
    job = _job(22, turn=90, rows={21: 1100, 22: 1005})
    restated = with_run(kept, job, {}, _ledger({21: 1100, 22: 1005}))
    came = {one.part: one.came for one in restated.arrivals}
    assert came[_name(21)] == ((0, 1000), (1, 1005), (8, 1100))
    assert finality_of(restated, job).share is None, "what a day has on its own night says nothing of this one"


def test_a_run_that_has_pinned_its_input_before_others_tells_nothing_of_their_days() -> None:
    *_, (kept, _) = _nights(30, {1: 5})
    late = with_run(kept, _job(31, turn=5, rows={21: 900, 31: 1000}), {}, _ledger({21: 900, 31: 1000}))
    assert [one.came for one in late.arrivals] == [*(one.came for one in kept.arrivals), ((0, 1000),)]


def test_where_each_day_has_an_output_of_its_own_no_day_is_told_to_be_final() -> None:
    job = _job(3, rows={3: 1})
    assert tells_finality(job)
    output = job.spec.output.model_copy(update={"path": "/out/{date}"})
    assert not tells_finality(job.model_copy(update={"spec": job.spec.model_copy(update={"output": output})}))


@pytest.mark.parametrize("values", [(1e308, -1e308), (0.0, 1e308)])
def test_figures_beyond_all_numbers_have_no_band_and_fail_nothing(values: tuple[float, float]) -> None:
    found = usual([Figure(day, values[day % 2]) for day in range(40)], 40)
    assert found is None or all(map(math.isfinite, found[:3]))


def test_days_whose_first_night_was_not_seen_say_nothing() -> None:
    days = [Arrivals(part=_name(day), came=((3, 1000),)) for day in range(30)]
    assert delays_of(days, range(FIRST, FIRST + 40), 9) is None


def test_days_that_nobody_looked_at_for_long_enough_say_nothing() -> None:
    days = [Arrivals(part=_name(day), came=((0, 1000),)) for day in range(30)]
    assert delays_of(days, range(FIRST, FIRST + 40), 9) is not None
    assert delays_of(days, range(FIRST, FIRST + 18), 9) is None, "the job stood still after the 18th night"


def test_a_band_is_told_in_one_line() -> None:
    band = Band(figure="rows", share=False, value=48_210, low=88_134, middle=97_115, high=107_012, nights=56,
                by_weekday=True, outcome="warned")  # fmt: skip
    assert band.sentence == "rows: 48,210; usual for the weekday, by 56 nights: 88,134 to 107,012, about 97,115"
    share = band.model_copy(update={"share": True, "value": 0.01, "low": 0.0, "middle": 0.001, "high": 0.002})
    assert share.sentence.startswith("rows: 1.000%; usual")
