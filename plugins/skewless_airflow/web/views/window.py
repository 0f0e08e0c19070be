"""The parts of a window: what a run has found changed in each, what it read, and what it reused."""

from __future__ import annotations

from dataclasses import dataclass

from skewless.documents.ledger import PartLine
from skewless.documents.window import WindowPart
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless_airflow.web.run_folders import stamp
from skewless_airflow.web.views.job import whole_job


@dataclass(frozen=True)
class PartView:
    """One part of a window.

    Attributes:
        name: the part's.
        words: what the run does about it.
        files: how many the part has now.
        reused: how many of them are not read, as states of them are kept.
        read: how many are read: those that were added, or all if the part is reduced anew.
        kept_rows: rows of the kept states.
        new_rows: rows that were reduced; None until the result is merged.
        taken_out_rows: rows of earlier states that are not in the result any more; None until then.
        reasons: what changed, in words.
    """

    name: str
    words: str
    files: int
    reused: int
    read: int
    kept_rows: int
    new_rows: int | None
    taken_out_rows: int | None
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class WindowView:
    """The window of a run.

    Attributes:
        parts: oldest first.
        missing: names of parts without files.
        begins: why there were no kept states before; empty if there were.
        changes: how many files were reused, added, replaced and removed.
        kept_rows: rows of the result that the run has not read.
        ignored_files: how many late files were left out.
        ignored_rows: their rows; None if that is not known.
        windows: with several windows, the name of each, and its rows and keys; none until the result is merged.
    """

    parts: tuple[PartView, ...]
    missing: tuple[str, ...]
    begins: str
    changes: dict[str, int]
    kept_rows: int
    ignored_files: int
    ignored_rows: int | None
    windows: tuple[tuple[str, int, int], ...]


def read_window(run: RunDirectory) -> WindowView | None:
    """The window of a prepared run; None without one."""
    window = whole_job(run).window
    if window is None:
        return None
    merged = stamp(run, f"{RESULT_STEP}/COMMIT.json") is not None
    lines = {line.part: line for line in run.part_lines()} if merged else {}
    of_windows = run.window_lines() if merged else ()
    return WindowView(
        parts=tuple(_part(part, lines.get(part.name)) for part in window.parts),
        missing=window.missing,
        begins=window.begins,
        changes=window.counts(),
        kept_rows=window.unchanged_rows,
        ignored_files=window.ignored_files,
        ignored_rows=window.ignored_rows,
        windows=tuple((one.name, one.rows, one.keys) for one in of_windows) if len(of_windows) > 1 else (),
    )


def _part(part: WindowPart, line: PartLine | None) -> PartView:
    return PartView(
        name=part.name,
        words=_words(part),
        files=len(part.files),
        reused=part.reused,
        read=len(part.files) - part.reused,
        kept_rows=part.base_rows,
        new_rows=line.new_rows if line else None,
        taken_out_rows=line.taken_out_rows if line else None,
        reasons=part.reasons if part.before_rows else (),
    )


def _words(part: WindowPart) -> str:
    if part.ignored_files:
        return "reused, late files left out"
    if not part.changed:
        return "reused"
    if part.base is not None:
        return "added to"
    return "reduced anew" if part.before_rows else "new"
