"""The ledger: row counts that must balance before anything is published."""

from collections.abc import Sequence
from typing import NamedTuple

from pydantic import Field

from skewless.columns import column
from skewless.document import HASHES, LAST_STAGE, Count, Document, Frozen
from skewless.documents.job import Job
from skewless.documents.stage_report import StageReport
from skewless.errors import LedgerError


class Counted(NamedTuple):
    """The rows of the input that results or states stand for, the sum of their hashes, and how many these are."""

    rows: int
    hash: int
    keys: int = 0


class LedgerLine(Frozen):
    """One stage: ``admitted + backlog_in = processed + backlog``, and the rows that should have come in.

    ``listed_rows`` are the rows of the footers; or, where footers do not tell how many rows will be admitted, the rows
    that reader and map gave out, counted before they are routed; unrouted rows of a map where they become states.
    """

    stage: int = Field(ge=0, le=LAST_STAGE)
    listed_rows: int = Field(ge=0)
    admitted_rows: int = Field(ge=0)
    backlog_in_rows: int = Field(ge=0)
    processed_rows: int = Field(ge=0)
    backlog_rows: int = Field(ge=0)

    @classmethod
    def of(cls, job: Job, report: StageReport) -> "LedgerLine":
        """The line of one report."""
        return cls(
            stage=report.stage,
            listed_rows=listed_rows(job, report),
            admitted_rows=report.admitted_rows,
            backlog_in_rows=report.backlog_in_rows,
            processed_rows=report.processed_rows,
            backlog_rows=report.backlog_rows,
        )


def listed_rows(job: Job, report: StageReport) -> int:
    """Rows that a stage had to admit: those of the footers, or, where footers cannot tell, those that were read."""
    counted = column(job.units, "counted")
    if job.spec.map is None and all(counted[ordinal] for ordinal in job.admitted_units(report.waves)):
        return job.admitted_rows(report.waves)
    return report.given_rows or 0


def input_rows(job: Job, reports: Sequence[StageReport]) -> int:
    """Rows that a run has to reduce: of the whole input where footers tell, else of the part that has been read."""
    return job.rows if job.counted else sum(listed_rows(job, report) for report in reports)


class PartLine(Frozen):
    """One part of a window: ``rows = unchanged + new``, and ``rows before = unchanged + taken out``."""

    part: str
    unchanged_rows: Count
    """Rows of kept states, which were not read."""
    new_rows: Count
    """Rows that the run has reduced: of units that were added, or of all if the part was reduced anew."""
    taken_out_rows: Count
    """Rows of earlier states that are not in the result any more, as the part was reduced anew."""
    listed_rows: Count | None = None
    """What ``new_rows`` must be; None where footers cannot tell."""
    unchanged_hash: Count = 0
    """Of the unchanged rows, as ``new_hash`` is of the new ones."""
    new_hash: Count = 0

    @property
    def rows(self) -> int:
        """The rows of the part in the result."""
        return self.unchanged_rows + self.new_rows


class WindowLine(Frozen):
    """One window of a result: ``rows`` must be those of the states of its parts."""

    name: str
    keys: Count
    rows: Count
    """Of the input, that the result was made of, as its own states count them."""
    of_parts_rows: Count
    """The sum of ``PartLine.rows`` over the parts of the window."""
    rows_hash: Count = 0
    """Of its rows, as its own states have it, and as ``of_parts_hash`` those of its parts."""
    of_parts_hash: Count = 0


class PartLines(Document):
    """The lines of all parts of a run and of all of its windows, as ``merge`` has counted them: ``parts.json``.

    Parts come oldest first, windows the shortest first.
    """

    parts: tuple[PartLine, ...]
    windows: tuple[WindowLine, ...] = ()


NO_PARTS = PartLines(parts=())


class Ledger(Document):
    """All lines of a run, its totals, and every imbalance in words; none if and only if the ledger balances."""

    lines: tuple[LedgerLine, ...]
    input_rows: int = Field(ge=0)
    """Rows of the input by its footers, counted before the first stage; or the rows that reader and map gave out, where
    footers cannot tell."""
    state_rows: int = Field(ge=0)
    """Rows in the merged result, as ``merge`` counts them."""
    unchanged_rows: int = Field(default=0, ge=0)
    """Rows of a window that are not read, since states of them are kept; 0 without a window."""
    problems: tuple[str, ...]
    parts: tuple[PartLine, ...] = ()
    windows: tuple[WindowLine, ...] = ()
    """With a window, each one, the shortest first."""

    @property
    def balanced(self) -> bool:
        """Whether every row is counted exactly once."""
        return not self.problems


def balance(
    job: Job, reports: Sequence[StageReport], state_rows: int, kept: PartLines = NO_PARTS, state_hash: int | None = None
) -> Ledger:
    """Draw up the ledger of a run; ``state_rows`` are those in the merged states, of several windows in the longest.

    ``state_hash`` is that of these rows, if it is known.
    """
    lines = tuple(LedgerLine.of(job, report) for report in reports)
    whole = input_rows(job, reports)
    unchanged = job.covered.unchanged_rows
    return Ledger(
        lines=lines,
        input_rows=whole,
        state_rows=state_rows,
        unchanged_rows=unchanged,
        parts=kept.parts,
        windows=kept.windows,
        problems=(
            *stage_problems(lines),
            *_wave_problems(job, reports),
            *_run_problems(lines, whole, state_rows, unchanged),
            *_hash_problems(job, reports, kept.parts, state_hash),
            *_part_problems(kept.parts, whole, unchanged),
            *_window_problems(job, kept.windows, merged=bool(kept.parts)),
        ),
    )


def stage_problems(lines: Sequence[LedgerLine], left_over: int = 0) -> tuple[str, ...]:
    """Everything that does not add up within consecutive stages, or between two, after a backlog that was left over."""
    problems = []
    for line in lines:
        at = f"stage {line.stage}"
        if line.admitted_rows != line.listed_rows:
            problems.append(f"{at} admitted {line.admitted_rows:,} rows of the {line.listed_rows:,} listed")
        if line.backlog_in_rows != left_over:
            problems.append(f"{at} took in {line.backlog_in_rows:,} backlog rows of the {left_over:,} left over")
        came, went = line.admitted_rows + line.backlog_in_rows, line.processed_rows + line.backlog_rows
        if came != went:
            problems.append(f"{at} got {came:,} rows but processed and left over {went:,}")
        left_over = line.backlog_rows
    return tuple(problems)


def _wave_problems(job: Job, reports: Sequence[StageReport]) -> list[str]:
    """Every wave is admitted once, in order: each stage takes in those that follow the last one's."""
    problems, reached = [], 0
    for report in reports:
        first, end = report.waves
        if first != reached:
            problems.append(f"stage {report.stage} admitted waves from {first} on, after {reached} waves")
        reached = end
    if reports and reached != len(job.waves):
        problems.append(f"{reached} of {len(job.waves)} waves were admitted")
    return problems


def _run_problems(
    lines: Sequence[LedgerLine], input_rows: int, state_rows: int, unchanged_rows: int
) -> tuple[str, ...]:
    problems = []
    processed = sum(line.processed_rows for line in lines)
    if lines and lines[-1].backlog_rows:
        problems.append(f"{lines[-1].backlog_rows:,} backlog rows were never reduced")
    if processed != input_rows:
        problems.append(f"{processed:,} rows were processed of the {input_rows:,} of the input")
    if state_rows != processed + unchanged_rows:
        kept = f" and {unchanged_rows:,} unchanged" if unchanged_rows else ""
        problems.append(f"the states account for {state_rows:,} rows of the {processed:,} processed{kept}")
    return tuple(problems)


def _hash_problems(
    job: Job, reports: Sequence[StageReport], parts: Sequence[PartLine], state_hash: int | None
) -> list[str]:
    """Rows that were altered, or one lost for another doubled, where all counts balance."""
    hashes = [report.rows_hash for report in reports]
    if state_hash is None or None in hashes:
        return []
    processed, base = sum(filter(None, hashes)), sum(part.base_hash for part in job.covered.parts)
    kept = [
        ("the new states of the parts", sum(line.new_hash for line in parts), processed),
        ("the kept states of the parts", sum(line.unchanged_hash for line in parts), base),
    ]
    return [
        f"{what} are not of the rows that were processed, by their hashes"
        for what, found, wanted in (("the states", state_hash, processed + base), *(kept if parts else ()))
        if (found - wanted) % HASHES
    ]


def _part_problems(parts: Sequence[PartLine], input_rows: int, unchanged_rows: int) -> list[str]:
    problems = [
        f"part {line.part} has {line.new_rows:,} new rows of the {line.listed_rows:,} listed"
        for line in parts
        if line.listed_rows is not None and line.new_rows != line.listed_rows
    ]
    for what, came, whole in (
        ("new", sum(line.new_rows for line in parts), input_rows),
        ("unchanged", sum(line.unchanged_rows for line in parts), unchanged_rows),
    ):
        if parts and came != whole:
            problems.append(f"the parts have {came:,} {what} rows of {whole:,}")
    return problems


def _window_problems(job: Job, lines: Sequence[WindowLine], *, merged: bool) -> list[str]:
    expected = [one.name for one in job.covered.windows] if merged else []
    if (came := [line.name for line in lines]) != expected:
        return [
            f"there are lines of the windows {', '.join(came) or 'none'} instead of {', '.join(expected) or 'none'}"
        ]
    return [
        f"window {line.name} has {line.rows:,} rows of the {line.of_parts_rows:,} in the states of its parts"
        for line in lines
        if line.rows != line.of_parts_rows
    ] + [
        f"window {line.name} has other rows than the states of its parts, by their hashes"
        for line in lines
        if line.rows_hash != line.of_parts_hash
    ]


def require_kept(job: Job, report: StageReport, left_over: int, on_disk: int) -> None:
    """Check a stage before it commits: against the listing, the commit before it and its own files.

    ``left_over`` are the backlog rows that the stage before it has committed, ``on_disk`` those in its own files. What
    does not add up is a ``LedgerError``.
    """
    problems = list(stage_problems([LedgerLine.of(job, report)], left_over))
    if on_disk != report.backlog_rows:
        problems.append(f"{on_disk:,} backlog rows are on disk of the {report.backlog_rows:,} counted")
    if problems:
        raise LedgerError.saying(
            f"stage {report.stage}", f"not every row is counted once: {'; '.join(problems)}", "nothing was committed"
        )


def require_all_processed(job: Job, reports: Sequence[StageReport], where: str) -> None:
    """Refuse to merge before all rows are reduced, by a ``LedgerError``: the result would lack rows."""
    processed = sum(report.processed_rows for report in reports)
    whole = input_rows(job, reports)
    if not reports or processed != whole or reports[-1].waves[1] < len(job.waves):
        fact = f"{processed:,} of {whole:,} rows are processed after {len(reports)} stages"
        raise LedgerError.saying(where, fact, "run the next stage first")
