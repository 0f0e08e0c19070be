"""Bands of nights and how often they are left, when a day is final, and what a spec expects of its input."""

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

from skewless.documents.job import InputFacts, Job
from skewless.documents.ledger import Ledger, PartLine
from skewless.documents.nights import MOST_NIGHTS, Band, Bands, Finality, JobNights, Measured, Night
from skewless.documents.quality import Check
from skewless.documents.window import JobWindow, WindowPart, WindowSpan
from skewless.errors import RunDirectoryError, SpecError
from skewless.history import (
    FEWEST,
    KEPT,
    NULLS,
    WITHIN,
    Figure,
    NightsStore,
    Usual,
    check_input_expectations,
    failed_checks,
    finality_of,
    input_checks,
    judged,
    shape_of,
    tells_finality,
    usual,
    with_night,
    with_run,
)
from skewless.spec.part import Part, part_place
from skewless.spec.reading import parse_spec
from skewless.spec.result import Quality, Window
from skewless.spec.spec import JobSpec
from tests.seasons import BEGIN, END, SEASONS, left, measured
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


def test_a_band_needs_three_nights_of_the_weekday_and_eight_in_all() -> None:
    assert usual(_figures(_weekly(20)), FIRST + 20) is None
    assert usual(_figures(_weekly(21)), FIRST + 21) is not None
    mondays = [Figure(FIRST + 7 * week, 5.0) for week in range(FEWEST)]
    assert usual(mondays[1:], FIRST + 7 * FEWEST) is None
    assert _left(usual(mondays, FIRST + 7 * FEWEST), 4.5, 5.0, 5.6) == [True, False, True]


@pytest.mark.parametrize("odd", [1, 2])
def test_odd_nights_that_were_published_do_not_open_the_band(odd: int) -> None:
    values = _weekly(22)
    for day in range(14, 14 + odd):
        values[day] *= 0.4
    for day in (21, 22):
        band = usual(_figures(values)[:day], FIRST + day)
        assert _left(band, 400.0, 1000.0) == [True, False]


def test_a_step_is_told_until_most_nights_of_the_weekday_have_it() -> None:
    values = [value * (0.5 if at >= 60 else 1.0) for at, value in enumerate(_weekly(120))]
    bands = [(usual(_figures(values)[:day], FIRST + day), values[day]) for day in range(60, 120)]
    told = [left for band, value in bands for left in _left(band, value)]
    assert told[:7] == [True] * 7
    assert not any(told[21:])


def test_an_old_day_is_compared_with_the_days_around_it() -> None:
    values = [value * (4.0 if at >= 60 else 1.0) for at, value in enumerate(_weekly(120))]
    others = [night for night in _figures(values) if night.day != FIRST + 30]
    band = usual(list(reversed(others)), FIRST + 30)
    assert _left(band, values[30], values[30] * 4) == [False, True]


def test_few_events_are_no_step() -> None:
    band = usual(_figures([0.0] * 40, of=10_000), FIRST + 40, of_rows=10_000)
    assert _left(band, 0.0, 3 / 10_000, 100 / 10_000) == [False, False, True]


@given(st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), min_size=FEWEST, max_size=70), st.integers(-40, 120))
def test_a_band_is_always_one(values: list[float], day: int) -> None:
    nights = [night for night in _figures(values) if night.day != FIRST + day]
    band = usual(nights, FIRST + day)
    if band is not None:
        assert all(map(math.isfinite, band[:3]))
        assert band.low <= band.middle <= band.high


def test_the_rates_on_the_page_hold_in_seasons_that_are_played_again() -> None:
    """Some of the seasons, within four standard deviations: the page has all of them."""
    page = Path("docs/bands.md").read_text().partition(BEGIN)[2].partition(END)[0]
    for what, (count, of) in measured(SEASONS // 50).items():
        cells = [line.split("|")[2] for line in page.splitlines() if what in line]
        if cells:
            rate = float(cells[0].split("%")[0]) / 100
            # Nights of one season are alike: a noisy one leaves all of its bands.
            spread = 4 * math.sqrt(max(rate, 0.002) * (1 - min(rate, 0.998)) / of) + 0.05 * (rate > 0.05)
            assert abs(count / of - rate) <= spread, (what, count, of, rate)


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
        kept = with_night(kept, _job(day, turn), {"rows": (rows, 0)})
    assert [(one.part, one.turn, one.figures["rows"][0]) for one in kept.nights] == [
        (_name(0), 3, 40.0),
        (_name(1), 1, 20.0),
    ]
    for day in range(MOST_NIGHTS + 5):
        kept = with_night(kept, _job(day, 9), {"rows": (1.0, 0)})
    assert [one.part for one in kept.nights] == [_name(day) for day in range(5, MOST_NIGHTS + 5)]
    assert with_night(kept, _job(0, 99), {}) == kept, "an old day is not kept again"


def test_only_nights_of_the_same_shape_are_compared(tmp_path: Path) -> None:
    store, figures = NightsStore(str(tmp_path / "nights")), {"rows": (400.0, 0)}
    store.change(lambda _: _known(_weekly(30)))
    found, own = (judged(_job(day), figures, lambda _: store) for day in (30, 29))
    assert found is not None
    assert (found.nights, [one.outcome for one in found.checks]) == (30, ["warned"])
    assert own is not None
    assert own.nights == 29, "the run's own day is not compared with itself"
    others = (night.model_copy(update={"shape": "another"}) for night in _known(_weekly(30)).nights)
    store.change(lambda _: JobNights(nights=tuple(others)))
    assert judged(_job(30), figures, lambda _: store) == Bands()


@pytest.mark.parametrize(("bands", "outcome"), [("warn", "warned"), ("fail", "failed"), ("off", None)])
def test_what_is_left_warns_or_fails_or_is_not_looked_at(tmp_path: Path, bands: str, outcome: str | None) -> None:
    store = NightsStore(str(tmp_path / "nights"))
    store.change(lambda _: _known(_weekly(30)))
    figures: dict[str, Measured] = {"rows": (400.0, 0), "new": (1.0, 0)}
    found = judged(_job(30, bands=bands), figures, lambda _: store)
    assert (found.checks[0].outcome if found else None) == outcome
    word = {"warned": "WARNING", "failed": "FAILED"}.get(str(outcome))
    assert not found or found.sentences[1].startswith(f"{word}: rows: 400")
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


def test_writers_at_once_lose_no_night(tmp_path: Path) -> None:
    def write(day: int) -> None:
        store = NightsStore(str(tmp_path / "nights"))
        store.change(lambda kept: with_night(kept, _job(day), {"rows": (1.0, 0)}))

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
    (tmp_path / "plain").mkdir()
    assert len({(tmp_path / name).stat().st_mode for name in ("nights", "plain")}) == 1, "others write there, too"


def test_a_writer_that_took_a_number_long_gone_writes_again(tmp_path: Path) -> None:
    store, slow = NightsStore(str(tmp_path)), NightsStore(str(tmp_path))

    def change(kept: JobNights) -> JobNights:
        if not kept.nights:  # it sleeps after it has looked
            for day in range(10):
                store.change(lambda now, day=day: with_night(now, _job(day), {}))  # type: ignore[misc]
        return with_night(kept, _job(20), {})

    slow.change(change)
    assert [one.part for one in store.newest().nights] == [*(_name(day) for day in range(10)), _name(20)]


def test_a_reader_of_a_document_that_was_removed_since_it_was_listed_looks_again(tmp_path: Path) -> None:
    store = NightsStore(str(tmp_path))
    store.change(lambda _: _known([1.0]))
    (tmp_path / ".DS_Store").touch()

    class Slow(NightsStore):
        def read(self, name: str, kind: type[Any]) -> Any:
            for day in range(3, 8) if name == "0001.json" else ():
                store.change(lambda now, day=day: with_night(now, _job(day), {}))  # type: ignore[misc]
            return super().read(name, kind)

    assert [one.part for one in Slow(str(tmp_path)).newest().nights] == [_name(day) for day in (0, *range(3, 8))]
    (tmp_path / "0009.json").symlink_to("nothing")
    with pytest.raises(RunDirectoryError, match=r"0009\.json"):
        store.newest()


def _told(kept: JobNights, job: Job, rows: dict[int, int], clock: int | None = None) -> tuple[JobNights, Finality]:
    """The nights after a publication, and what it tells; the clock shows the day after its own."""
    clock_day = job.date + dt.timedelta(days=1) if clock is None else _date(clock)
    after = with_run(kept, job, {}, _ledger(rows), clock_day)
    assert with_run(after, job, {}, _ledger(rows), clock_day) == after, "twice is as once"
    return after, finality_of(after, job, clock_day)


def _nights(days: int, late: dict[int, int], final_after: int = 4) -> Iterator[tuple[JobNights, Finality]]:
    """Nights whose days have 1,000 rows at first; ``late`` has the rows that come so many days after each."""
    kept = JobNights()
    for today in range(days):
        rows = {day: 1000 + sum(count for after, count in late.items() if after <= today - day)
                for day in range(max(0, today - 9), today + 1)}  # fmt: skip
        kept, told = _told(kept, _job(today, today + 1, rows=rows, final_after=final_after), rows)
        yield kept, told


def _final(told: Finality) -> list[tuple[str, int]]:
    return [(day.part, day.delay) for day in told.final]


def test_each_day_is_told_once_to_be_final_and_which_share_of_its_rows_a_day_has() -> None:
    told = [told for _, told in _nights(30, {1: 5, 3: 20, 6: 7})]
    assert [_final(night) for night in told] == [[]] * 4 + [[(_name(day), 4)] for day in range(26)]
    assert [night.share for night in told[:14]] == [None] * 13 + [1000 / 1025]
    assert told[-1].sentences == (
        f"as a rule, 97.6% of the rows of {_name(29)} have come, by 26 final days",
        f"{_name(29)} is final on {_name(33)}",
        f"{_name(25)} is final, 4 days after it",
    )


def test_a_day_is_told_however_late_the_next_run() -> None:
    *_, (kept, _) = _nights(9, {})
    later = dict.fromkeys(range(191, 201), 1000)
    kept, told = _told(kept, _job(200, 90, rows=later, final_after=4), later)
    assert _final(told) == [(_name(day), 200 - day) for day in (*range(5, 9), *range(191, 197))]
    assert _final(_told(kept, _job(201, 91, rows={201: 1}, final_after=4), {201: 1})[1]) == [(_name(197), 4)]
    first, then = (dict.fromkeys(range(end - 2, end + 1), 1) for end in (2, 12))  # window: 3, final_after: 2
    kept, told = _told(JobNights(), _job(2, 1, rows=first, final_after=2), first)
    assert _final(told) == [(_name(0), 2)]
    _, told = _told(kept, _job(12, 2, rows=then, final_after=2), then)
    assert _final(told) == [(_name(1), 11), (_name(2), 10), (_name(10), 2)]


def test_a_day_that_is_far_ahead_of_the_clock_makes_no_day_final() -> None:
    *_, (kept, before) = _nights(30, {})
    kept, told = _told(kept, _job(300, 90, rows={300: 1}, final_after=4), {300: 1}, clock=30)
    assert (before.share, told.share, _final(told)) == (1.0, None, [])


@pytest.mark.parametrize("changed", [{"hour": "03"}, {"path": "out/{date}"}], ids=["hours", "an output of each day"])
def test_hours_and_days_apart_are_never_told(changed: dict[str, str]) -> None:
    job = _job(3, 1, rows={3: 1}, final_after=2)
    assert tells_finality(job)
    output = job.spec.output.model_copy(update={"path": changed.get("path", "out")})
    spec = job.spec.model_copy(update={"output": output})
    assert not tells_finality(job.model_copy(update={"spec": spec, "hour": changed.get("hour")}))


def test_without_a_deadline_nothing_is_told_and_no_rows_of_days_are_kept() -> None:
    job = _job(3, 1, rows={3: 1})
    assert not tells_finality(job)
    assert with_run(JobNights(), job, {}, _ledger({3: 1}), job.date).arrivals == ()


def test_a_deadline_lies_within_the_window() -> None:
    with pytest.raises(ValueError, match="final_after below the longest length, 10, as older days are not seen"):
        Window(length=10, final_after=10)
    assert Window(length="all", final_after=10).final_after == 10


def test_rows_after_a_day_was_final_are_counted_and_told_and_those_of_ignored_files_too() -> None:
    *_, (kept, _) = _nights(30, {1: 5})
    ways: dict[int, dict[str, Any]] = {
        23: {"ignored_files": 1, "ignored_rows": None},
        24: {"ignored_files": 1, "ignored_rows": 3},
        25: {"late_rows": 7, "units": (0, 1), "ranks": (1,)},
        26: {"ignored_files": 1, "ignored_rows": 5},
        28: {"ignored_files": 1, "ignored_rows": 9},
    }
    late = [
        WindowPart.model_validate({
            "name": _name(day), "place": part_place(Part(_date(day))), "base": 1, "before_rows": 1005, **way
        })
        for day, way in ways.items()
    ]  # fmt: skip
    job = _job(30, 90, rows={30: 1000}, final_after=4)
    window = job.covered.model_copy(update={"parts": (*late, *job.covered.parts)})
    job = job.model_copy(update={"window": window})
    kept, told = _told(kept, job, {23: 1005, 24: 1005, 25: 1012, 26: 1005, 28: 1005, 30: 1000})
    assert told.after == {_name(24): 3, _name(25): 7}, "those of the 26th had come when this run told it"
    assert told.sentences[-1] == f"7 rows of {_name(25)} came after it was final"
    assert {day.part: day.came[-1] for day in kept.arrivals}[_name(28)] == (2, 1014)


def test_a_run_that_has_pinned_its_input_before_others_tells_nothing_of_their_days() -> None:
    *_, (kept, _) = _nights(30, {1: 5})
    late, _ = _told(kept, _job(31, 5, rows={28: 900, 31: 1000}, final_after=4), {28: 900, 31: 1000})
    assert [day.came for day in late.arrivals] == [*(day.came for day in kept.arrivals), ((0, 1000),)]


def test_a_band_is_told_in_one_line() -> None:
    band = Band(figure="rows", share=False, value=48_210, low=88_134, middle=97_115, high=107_012, nights=56,
                outcome="warned")  # fmt: skip
    assert band.sentence == "rows: 48,210; usual for the weekday, by 56 nights: 88,134 to 107,012, about 97,115"
    share = band.model_copy(update={"share": True, "value": 0.01, "low": 0.0, "middle": 0.001, "high": 0.002})
    assert share.sentence.startswith("rows: 1.000%; usual")


FACTS = InputFacts(columns={"user": "string", "n": "decimal(10,2)"}, nulls={"user": 30}, rows=1000)
TYPED, ROWS = "expect_column_values_to_be_of_type", "expect_table_row_count_to_be_between"
EXISTS = "expect_column_to_exist"


def checked(kind: str, kwargs: dict[str, Any], facts: InputFacts = FACTS) -> Check:
    quality = Quality.model_validate({"input": [{"type": kind, "kwargs": kwargs, "severity": "warn"}]})
    job = synthetic.job([])
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"quality": quality}), "facts": facts})
    (check,) = input_checks(job)
    return check


@pytest.mark.parametrize(
    ("kind", "kwargs", "verdict", "observed"),
    [
        (EXISTS, {"column": "user"}, "passed", "string"),
        (EXISTS, {"column": "User"}, "warned", "none"),
        (TYPED, {"column": "n", "type_": "DECIMAL(10, 2)"}, "passed", "decimal(10,2)"),
        (TYPED, {"column": "n", "type_": "decimal(10,3)"}, "warned", "decimal(10,2)"),
        (TYPED, {"column": "m", "type_": "none"}, "warned", "none"),
        (NULLS, {"column": "user", "mostly": 0.97}, "passed", "30"),
        (NULLS, {"column": "user", "mostly": 0.971}, "warned", "30"),
        (NULLS, {"column": "m"}, "warned", "none"),
        (NULLS, {"column": "n", "mostly": 0}, "failed", ""),
        (ROWS, {"min_value": 1000, "max_value": 1000}, "passed", "1,000"),
        (ROWS, {"min_value": 1001}, "warned", "1,000"),
        (ROWS, {"max_value": 999}, "warned", "1,000"),
    ],
)
def test_each_expectation_holds_or_does_as_its_severity_says_and_what_is_not_known_fails(
    kind: str, kwargs: dict[str, Any], verdict: str, observed: str
) -> None:
    check = checked(kind, kwargs)
    assert (check.verdict, check.observed, check.subject) == (verdict, observed, "input")


def test_rows_that_nobody_has_counted_fail() -> None:
    assert checked(ROWS, {}, InputFacts()).verdict == "failed"


def test_rows_behind_a_map_are_not_compared_with_those_of_kept_states() -> None:
    given = {"window": 3, "map": {"select": ["key"]}, "quality": {"input": [{"type": ROWS, "kwargs": {}}]}}
    spec = JobSpec.model_validate({**synthetic.spec().model_dump(mode="json"), "input": {"path": "in/{date}"}, **given})
    with pytest.raises(SpecError, match=r"quality.input.0.type: expected no map, as kept states"):
        check_input_expectations(spec, "spec")
    check_input_expectations(spec.model_copy(update={"map": None}), "spec")
