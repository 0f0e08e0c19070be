"""The parts of windows as views: calendars, late rows, and what is only an estimate."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from skewless.documents.ledger import PartLine, PartLines
from skewless.documents.window import JobWindow, SeenFile, WindowPart, WindowSpan
from skewless.run.directory import PART_LINES, RESULT_STEP, RunDirectory
from skewless.spec.part import Part, part_place, parts_until
from skewless.spec.result import Window
from skewless_airflow.web.rendering.charts import history_calendar, window_calendar
from skewless_airflow.web.views.parts_over_time import PartsHistory, read_parts_history
from skewless_airflow.web.views.stage_view import StageView
from skewless_airflow.web.views.window_view import PartView, WindowView, read_window, saving
from tests.unit import synthetic

OWN = dt.date(2026, 11, 20)
#: What of a part has changed: base and earlier rows, as a job has them.
WAYS: dict[str, dict[str, Any]] = {
    "reused": {"base": 1, "base_rows": 100, "before_rows": 100, "reused": 1},
    "added to": {"base": 1, "base_rows": 100, "before_rows": 100, "reused": 1, "added": 1},
    "reduced anew": {"before_rows": 100, "replaced": 1},
    "late files left out": {"base": 1, "base_rows": 100, "before_rows": 100, "ignored_files": 1, "ignored_rows": 20},
    "new": {"added": 1},
}


def window_of(parts: Sequence[WindowPart], missing: Sequence[str]) -> JobWindow:
    return JobWindow(
        store="/s", fingerprint="f", shapes={}, windows=(WindowSpan(),), parts=tuple(parts), missing=tuple(missing)
    )


def night(location: str, window: int, changes: dict[int, tuple[str, int]], own: int = 0, rest: str = "reused") -> None:
    """A merged run, so many days after ``OWN``: by delay what it does about a part, and the rows that it reads of it.

    It does nothing about a part that is ``missing``, and ``rest`` about the others.
    """
    last = Part(OWN + dt.timedelta(days=own))
    parts, lines, missing, ordinal = [], [], [], 0
    for delay, part in enumerate(reversed(parts_until(last, window, "UTC"))):
        words, rows = changes.get(delay, (rest, 0))
        if words == "missing":
            missing.append(part.name)
            continue
        units = 0 if words in {"reused", "late files left out"} else 1
        parts.append((part, words, units))
        lines.append(PartLine(part=part.name, unchanged_rows=0, new_rows=rows, taken_out_rows=0))
    found = []
    for part, words, units in reversed(parts):
        file = SeenFile(path=f"/in/{part.name}", size_bytes=1, ranks=(0,))
        given = {"files": (file,), "units": (ordinal, ordinal + units), "ranks": (0,) * units, **WAYS[words]}
        late = None if words == "reduced anew" else next(line.new_rows for line in lines if line.part == part.name)
        given["late_rows"] = late if words != "new" else 0
        found.append(WindowPart.model_validate({"name": part.name, "place": part_place(part), **given}))
        ordinal += units
    job = synthetic.job([10] * max(1, ordinal))
    of_job = window_of(found, missing[::-1])
    spec = job.spec.model_copy(
        update={"window": Window(length=window), "input": job.spec.input.model_copy(update={"path": "{date}"})}
    )
    run = RunDirectory(location)
    run.write_once("job.json", job.model_copy(update={"spec": spec, "date": last.date, "window": of_job}))
    attempt = run.new_attempt(RESULT_STEP)
    attempt.write(PART_LINES, PartLines(parts=tuple(reversed(lines))))
    attempt.commit([], {"rows": 1, "keys": 1})


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PartsHistory:
    """Three nights: the first one, one with late rows, and one with a part that had been missing."""
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    runs = f"{tmp_path}/runs/job"
    night(f"{runs}/1", 10, {2: ("missing", 0), 0: ("new", 500)}, rest="new")
    night(f"{runs}/2", 10, {0: ("new", 500), 1: ("added to", 7), 9: ("reduced anew", 90)}, own=1)
    changes = {0: ("new", 500), 1: ("added to", 5), 4: ("new", 30), 3: ("late files left out", 0)}
    night(f"{runs}/3", 10, changes, own=2)
    return read_parts_history("job", ())


def test_rows_are_late_by_the_parts_after_their_own_and_those_of_a_first_night_are_not(history: PartsHistory) -> None:
    nights = [(one.read, one.late, one.restated, one.longest_delay) for one in history.nights]
    assert nights == [(535, 5, 0, 3), (597, None, 90, 9), (500, 0, 0, 0)], "what was not counted is not measured"


def test_a_part_is_marked_as_it_was_last_changed_and_as_late_for_ever(history: PartsHistory) -> None:
    marks = {one.part: one for one in history.marks}
    assert len(marks) == 12
    assert [(marks[f"2026-11-{day}"].words, marks[f"2026-11-{day}"].late) for day in (12, 18, 20, 21, 22)] == [
        ("reduced anew", True), ("new", True), ("added to", True), ("added to", True), ("new", False),
    ]  # fmt: skip
    assert marks["2026-11-18"].rows == 30
    titles = [cell.title for cell in history_calendar(history.marks).cells]
    assert "2026-11-20: added to when 2026-11-21 was computed; 7 rows came after it was first computed" in titles


def test_a_calendar_of_days_has_a_column_for_each_week(tmp_path: Path) -> None:
    night(f"{tmp_path}/run", 400, {0: ("new", 5), 3: ("added to", 1), 30: ("missing", 0)})
    window = read_window(RunDirectory(f"{tmp_path}/run"))
    assert window is not None
    shown = window_calendar(window)
    assert len({(cell.x, cell.y) for cell in shown.cells}) == 400, "no two parts are at one place"
    assert len({cell.x for cell in shown.cells}) in {58, 59}
    kinds = {cell.title[:10]: (cell.kind, cell.late) for cell in shown.cells}
    assert kinds["2026-11-20"] == ("good", False)
    assert kinds["2026-11-17"] == ("done", True)
    assert kinds["2026-10-21"] == ("missing", False)
    friday, tuesday = (next(cell.y for cell in shown.cells if cell.title.startswith(day)) for day in
                       ("2026-11-20", "2026-11-17"))  # fmt: skip
    assert friday - tuesday == 3 * 14
    assert "Jan 2026" in [label.text for label in shown.labels]


def test_a_calendar_is_not_drawn_back_to_a_part_of_1970() -> None:
    names = ["1970-01-01", "1970-01-02", "2017-01-02", "2026-11-20"]
    views = [PartView(name, "new", 1, 0, 1, 0, 1, 0, ()) for name in names]
    shown = window_calendar(WindowView(tuple(views), (), "", {}, 0))
    assert ([cell.title[:10] for cell in shown.cells], shown.older) == (names[2:], 2)
    assert shown.width < 530 * 14 + 100
    assert len(shown.labels) < 150


def test_a_calendar_of_hours_has_a_column_for_each_day_also_when_the_clock_is_changed() -> None:
    parts = parts_until(Part(dt.date(2026, 10, 26), "03"), 40, "Europe/Zurich")
    views = [PartView(part.name, "new", 1, 0, 1, 0, 1, 0, ()) for part in parts]
    shown = window_calendar(WindowView(tuple(views), (), "", {}, 0))
    assert len({(cell.x, cell.y) for cell in shown.cells}) == 40
    assert len({cell.x for cell in shown.cells}) == 3
    assert len({cell.y for cell in shown.cells}) == 25


def _stage(processed: int, seconds: float) -> StageView:
    given = dict.fromkeys(StageView.__dataclass_fields__, None)
    return StageView(**{**given, "processed": processed, "seconds": seconds})  # type: ignore[arg-type]


def test_time_saved_is_estimated_only_from_enough_rows() -> None:
    window = WindowView((), (), "", {}, kept_rows=30_000_000, new_rows=2_000_000)
    found = saving(window, [_stage(1_500_000, 15.0), _stage(500_000, 5.0)])
    assert found is not None
    assert found.seconds == pytest.approx(300.0)
    assert saving(window, [_stage(999_999, 10.0)]) is None


def test_a_part_is_late_by_the_parts_after_it_also_where_an_hour_comes_twice() -> None:
    hours = parts_until(Part(dt.date(2026, 10, 25), "03"), 5, "Europe/Zurich")
    assert [hour.hour for hour in hours] == ["00", "01", "02", "02b", "03"]
    units = ((0, 0), (0, 1), (1, 1), (1, 1), (1, 1))
    parts = [
        WindowPart(name=one.name, place=part_place(one), base=1, before_rows=9, units=span, ranks=(0,) * (at == 1))
        for at, (one, span) in enumerate(zip(hours, units, strict=True))
    ]
    ((late, delay),) = window_of([*parts[:2], *parts[3:]], [hours[2].name]).late()
    assert (late.name, late.way, delay) == ("2026-10-25T01", "added to", 3)
