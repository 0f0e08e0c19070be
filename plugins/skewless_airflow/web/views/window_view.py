"""The parts of a window: what a run has found changed in each, what it read, and what it reused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skewless.documents.ledger import NO_PARTS, PartLine
from skewless.documents.window import Way, WindowPart
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless_airflow.web.run_folders import stamp
from skewless_airflow.web.views.stage_view import whole_job


@dataclass(frozen=True)
class PartView:
    """One part of a window.

    Attributes:
        reused: how many of them are not read, as states of them are kept.
        read: how many are read: those that were added, or all if the part is reduced anew.
        new_rows: rows that were reduced; None until the result is merged.
        taken_out_rows: rows of earlier states that are not in the result any more; None until then.
        delay: how many parts it is before the run's own.
        late_rows: rows of files that came or were replaced after states of it were made, before a map; None where
            nobody has counted the rows of files.
        ignored_rows: their rows; None if that is not known.
    """

    name: str
    words: Way
    files: int
    reused: int
    read: int
    kept_rows: int
    new_rows: int | None
    taken_out_rows: int | None
    reasons: tuple[str, ...]
    delay: int = 0
    late_rows: int | None = 0
    ignored_files: int = 0
    ignored_rows: int | None = 0

    @property
    def late(self) -> bool:
        """Whether an older part has changed after states of it were made."""
        return self.delay > 0 and self.words not in {"reused", "new"}


@dataclass(frozen=True)
class WindowView:
    """The window of a run.

    Attributes:
        missing: names of parts without files, as ``JobWindow.missing`` has them.
        begins: why there were no kept states before; empty if there were.
        changes: how many files were reused, added, replaced and removed.
        kept_rows: rows of the result that the run has not read.
        new_rows: rows that it has reduced; None until the result is merged.
        late_rows: rows of late files of older parts, before a map; None where they were not counted.
        restated_rows: rows of older parts that were reduced anew; None until the result is merged.
        ignored_rows: their rows; None if that is not known.
        windows: with several windows, the name of each, and its rows and keys; none until the result is merged.
        missing_words: which; or the first and the last few.
    """

    parts: tuple[PartView, ...]
    missing: tuple[str, ...]
    begins: str
    changes: dict[str, int]
    kept_rows: int
    new_rows: int | None = None
    late_rows: int | None = None
    restated_rows: int | None = None
    ignored_files: int = 0
    ignored_rows: int | None = 0
    windows: tuple[tuple[str, int, int], ...] = ()
    missing_count: int = 0
    missing_words: str = ""
    newest_file: str = ""

    @property
    def changed(self) -> tuple[PartView, ...]:
        """The parts that are not as their states have them, newest first."""
        return tuple(part for part in reversed(self.parts) if part.words != "reused")


def read_window(run: RunDirectory) -> WindowView | None:
    """The window of a prepared run; None without one."""
    window = whole_job(run).window
    if window is None:
        return None
    merged = stamp(run, f"{RESULT_STEP}/COMMIT.json") is not None
    told, delays = run.part_lines() if merged else NO_PARTS, window.delays()
    lines, of_windows = {line.part: line for line in told.parts}, told.windows
    parts = tuple(_part(part, lines.get(part.name), delays[part.name]) for part in window.parts)
    return WindowView(
        parts=parts,
        missing=window.missing,
        begins=window.begins,
        changes=window.counts(),
        kept_rows=window.unchanged_rows,
        new_rows=_rows(parts) if merged else None,
        late_rows=known_sum([one.late_rows for one in parts if one.late]),
        restated_rows=_rows([one for one in parts if one.late and one.words == "reduced anew"]) if merged else None,
        ignored_files=window.ignored_files,
        ignored_rows=window.ignored_rows,
        windows=tuple((one.name, one.rows, one.keys) for one in of_windows) if len(of_windows) > 1 else (),
        missing_count=window.missing_count,
        missing_words=window.missing_words,
        newest_file=window.newest_file,
    )


def _rows(parts: Sequence[PartView]) -> int:
    return sum(part.new_rows or 0 for part in parts)


def known_sum(rows: Sequence[int | None]) -> int | None:
    """The sum; None if one of them is not known."""
    known = [one for one in rows if one is not None]
    return sum(known) if len(known) == len(rows) else None


def _part(part: WindowPart, line: PartLine | None, delay: int) -> PartView:
    return PartView(
        name=part.name,
        words=part.way,
        files=len(part.files),
        reused=part.reused,
        read=len(part.files) - part.reused,
        kept_rows=part.base_rows,
        new_rows=line.new_rows if line else None,
        taken_out_rows=line.taken_out_rows if line else None,
        reasons=part.reasons if part.before_rows else (),
        delay=delay,
        late_rows=part.late_rows,
        ignored_files=part.ignored_files,
        ignored_rows=part.ignored_rows,
    )
