"""What a run computes, from what: its job in short, and the parts of its window."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from skewless.documents.job import Job
from skewless.documents.ledger import NO_PARTS, PartLine, WindowLine
from skewless.documents.window import Way, WindowPart
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.run.step_names import last_step_of
from skewless_airflow.web.runs import kept_by, stamp, view_of

_JOB = "job.json"


@dataclass(frozen=True)
class JobView:
    """What a run computes, from what."""

    description: str
    date: str
    extent: str
    key: tuple[str, ...]
    policy: str
    engine: str
    reducers: int
    slots: int
    wave_rows: tuple[int, ...]
    last_stage: int
    last_step: str
    warm_from: tuple[str, ...]
    skipped_words: str


@kept_by(_JOB)
def read_job(run: RunDirectory) -> JobView:
    """The job, if ``prepare`` has written it."""
    job = whole_job(run)
    routing = job.spec.routing
    return view_of(
        JobView, job, job.spec, routing, date=str(job.part), policy=routing.policy.name, slots=job.slots_at(),
        wave_rows=tuple(job.wave_rows(wave) for wave in range(len(job.waves))), last_step=last_step_of(job.spec).name,
    )  # fmt: skip


def whole_job(run: RunDirectory) -> Job:
    """The document itself; the last few are cached, because every stage needs it."""
    return _job(run.path(""), stamp(run, _JOB))


@lru_cache(maxsize=4)
def _job(location: str, _mark: str | None) -> Job:
    return RunDirectory(location).job()


@dataclass(frozen=True)
class PartView:
    """One part of a window."""

    name: str
    words: Way
    files: int
    reused: int
    read: int
    """How many are read: those that were added, or all if the part is reduced anew."""
    kept_rows: int
    reasons: tuple[str, ...]
    delay: int
    late_rows: int | None
    """Rows of files that came or were replaced after states of it were made, before a map; None where nobody has
    counted the rows of files."""
    new_rows: int | None = None
    """Rows that were reduced; None until the result is merged."""
    taken_out_rows: int | None = None
    """Rows of earlier states that are not in the result any more; None until then."""

    @property
    def late(self) -> bool:
        """Whether an older part has changed after states of it were made."""
        return self.delay > 0 and self.words not in {"reused", "new"}


@dataclass(frozen=True)
class WindowView:
    """The window of a run."""

    parts: tuple[PartView, ...]
    missing: tuple[str, ...]
    begins: str
    """Why there were no kept states before; empty if there were."""
    changes: dict[str, int]
    kept_rows: int
    new_rows: int | None
    """Rows that it has reduced; None until the result is merged."""
    late_rows: int | None
    """Rows of late files of older parts, before a map; None where they were not counted."""
    restated_rows: int | None
    """Rows of older parts that were reduced anew; None until the result is merged."""
    ignored_files: int
    ignored_rows: int | None
    windows: tuple[WindowLine, ...]
    """With several windows, the ledger of each; none until the result is merged."""
    missing_count: int
    missing_words: str
    newest_file: str

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
    counted, delays = run.part_lines() if merged else NO_PARTS, window.delays()
    lines = {line.part: line for line in counted.parts}
    parts = tuple(_part(part, lines.get(part.name), delays[part.name]) for part in window.parts)
    late = [part for part in parts if part.late]
    known = [part.late_rows for part in late if part.late_rows is not None]
    anew = (part for part in late if part.words == "reduced anew")
    return view_of(
        WindowView, window, parts=parts, changes=window.counts(), kept_rows=window.unchanged_rows,
        new_rows=_rows(parts) if merged else None,
        late_rows=None if len(known) < len(late) else sum(known),
        restated_rows=_rows(anew) if merged else None,
        windows=counted.windows if len(counted.windows) > 1 else (),
    )  # fmt: skip


def _rows(parts: Iterable[PartView]) -> int:
    return sum(part.new_rows or 0 for part in parts)


def _part(part: WindowPart, line: PartLine | None, delay: int) -> PartView:
    files, reasons = len(part.files), part.reasons if part.before_rows else ()
    return view_of(
        PartView, part, line, words=part.way, files=files, read=files - part.reused, kept_rows=part.base_rows,
        reasons=reasons, delay=delay,
    )  # fmt: skip
