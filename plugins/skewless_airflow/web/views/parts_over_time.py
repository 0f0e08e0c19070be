"""The parts of a job over its latest runs: when each last changed, and how late rows have come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skewless.documents.window import Way
from skewless.errors import SkewlessError
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless_airflow.web.airflow_runs import AirflowRun
from skewless_airflow.web.run_folders import kept_by, open_run
from skewless_airflow.web.views.history import MOST_RUNS, READING_SECONDS, in_time, latest_runs
from skewless_airflow.web.views.stage_view import read_job
from skewless_airflow.web.views.window_view import read_window

#: Of a part without files.
MISSING = "missing"


@dataclass(frozen=True)
class Change:
    """What a run has done about one part, so many parts after it."""

    part: str
    words: Way
    delay: int
    rows: int


@dataclass(frozen=True)
class Night:
    """One run with a merged window.

    Attributes:
        parts: how many parts of its window have files.
        missing: names of those without, as ``JobWindow.missing`` has them.
        kept: rows of its result that it did not read.
        late: rows of late files of older parts; None where they were not counted.
        restated: rows of older parts that were reduced anew.
        changes: of the parts that were not as their states had them, oldest first.
    """

    run_id: str
    part: str
    parts: int
    missing: tuple[str, ...]
    read: int
    kept: int
    late: int | None
    restated: int
    changes: tuple[Change, ...]
    reused: tuple[str, ...]
    missing_count: int

    @property
    def longest_delay(self) -> int:
        """How many parts late the latest change of a part came that was known before; 0 without one."""
        return max((change.delay for change in self.changes if change.words != "new"), default=0)


@dataclass(frozen=True)
class PartMark:
    """One part, as the latest run that has changed it left it.

    Attributes:
        words: what that run did about it; or that it has no files.
        late: whether it changed after states of it were made.
        rows: that were added to it, or reduced anew, after the first time.
        by: what that run computed; empty for a part that no run has changed.
    """

    part: str
    words: str
    late: bool
    rows: int
    by: str


@dataclass(frozen=True)
class PartsHistory:
    """The parts of a job; ``nights`` are newest first.

    Attributes:
        wanted: how many runs the page would show if there were time to read them.
    """

    nights: tuple[Night, ...]
    marks: tuple[PartMark, ...]
    wanted: int
    seen: int

    @property
    def oldest_first(self) -> tuple[Night, ...]:
        """The runs for charts."""
        return self.nights[::-1]


def read_parts_history(dag_id: str, airflow: Sequence[AirflowRun], group: str = "") -> PartsHistory:
    """The latest runs of a job with a window: always the newest, others as time allows."""
    runs = latest_runs(dag_id, airflow, group)[:MOST_RUNS]
    nights, seen = list[Night](), 0
    for one in in_time(runs, READING_SECONDS):
        seen += 1
        try:
            found = _night(open_run(dag_id, one.folder, group), one.run_id)
        except SkewlessError:
            continue  # the page of that run shows the error
        if found is not None:
            nights.append(found)
    return PartsHistory(tuple(nights), _marks(nights), len(runs), seen)


@kept_by(f"{RESULT_STEP}/COMMIT.json")
def _night(run: RunDirectory, run_id: str) -> Night | None:
    job, window = read_job(run), read_window(run)
    if job is None or window is None:
        return None
    return Night(
        run_id=run_id,
        part=job.date,
        parts=len(window.parts),
        missing=window.missing,
        read=window.new_rows or 0,
        kept=window.kept_rows,
        late=window.late_rows,
        restated=window.restated_rows or 0,
        changes=tuple(
            Change(part.name, part.words, part.delay, part.new_rows or 0)
            for part in window.parts
            if part.words != "reused"
        ),
        reused=tuple(part.name for part in window.parts if part.words == "reused"),
        missing_count=window.missing_count,
    )


def _came_late(nights: Sequence[Night]) -> list[tuple[Night, Change]]:
    """Changes of older parts, oldest run first: of known parts, and of parts that an earlier run had found empty."""
    missed, found = set[str](), []
    for night in reversed(nights):
        older = (one for one in night.changes if one.delay > 0)
        found += [(night, one) for one in older if one.words != "new" or one.part in missed]
        missed |= set(night.missing)
    return found


def _marks(nights: Sequence[Night]) -> tuple[PartMark, ...]:
    late = {(night.run_id, one.part) for night, one in _came_late(nights)}
    found: dict[str, PartMark] = {}
    for night in reversed(nights):
        for name in night.reused:
            if name not in found or found[name].words == MISSING:
                found[name] = PartMark(name, "reused", late=False, rows=0, by="")
        for name in night.missing:
            found[name] = PartMark(name, MISSING, late=False, rows=0, by=night.part)
        for one in night.changes:
            before = found.get(one.part)
            came = (night.run_id, one.part) in late
            rows = (before.rows if before else 0) + (one.rows if came or one.words != "new" else 0)
            found[one.part] = PartMark(one.part, one.words, came or bool(before and before.late), rows, night.part)
    return tuple(found[name] for name in sorted(found))
