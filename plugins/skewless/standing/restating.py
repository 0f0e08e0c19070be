"""Which parts of a window have changed since a result was made of them: a pure function of a job and a listing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from skewless.documents.job import Job
from skewless.documents.window import JobWindow, PartVersion
from skewless.standing.changes import Difference, FoundFile, change_set


class Listed(NamedTuple):
    """A part as it is listed now.

    Attributes:
        files: those of the input.
        difference: compares the contents of two of its files of one path.
    """

    files: Sequence[FoundFile]
    difference: Difference


_GONE = Listed((), lambda _, __: "")


def covered_parts(window: JobWindow) -> list[str]:
    """The names of all parts that a window covers, with files and without."""
    return sorted([*window.missing, *(part.name for part in window.parts)])


def changed_parts(window: JobWindow, now: Mapping[str, Listed]) -> dict[str, tuple[str, ...]]:
    """The parts that are not as the result of a window was made of them, each with the reasons, in words.

    Args:
        window: of the run that made the result.
        now: all parts that have files now, by name.
    """
    changed = {}
    for part in window.parts:
        was = PartVersion(
            part=part.name, fingerprint=window.fingerprint, run="", files=part.files, rows=0, states=()
        )  # fmt: skip
        listed = now.get(part.name, _GONE)
        changed[part.name] = change_set(listed.files, was, listed.difference).reasons
    # Of all parts, those that nobody knew of count, too.
    covers_all = window.windows and window.windows[-1].length is None
    older = [name for name in now if name < window.parts[-1].name] if covers_all else []
    for name in {*window.missing, *older} - changed.keys():
        came = sorted(now.get(name, _GONE).files)
        changed[name] = (f"{came[0].path} came, the first of {len(came):,} files",) if came else ()
    return {name: changed[name] for name in sorted(changed) if changed[name]}


class PartReading(NamedTuple):
    """What a run reads of a part.

    Attributes:
        part: its name.
        files: how many files it opens.
        rows: of these files, by their footers; or an estimate.
        why: why they are read, in words.
    """

    part: str
    files: int
    rows: int
    why: str

    @property
    def sentence(self) -> str:
        """What is read, and why."""
        return f"{self.part}: {self.rows:,} rows in {self.files:,} files: {self.why}"


def readings(job: Job) -> list[PartReading]:
    """What a prepared run reads, part by part."""
    found = []
    for part in job.window.parts if job.window else ():
        units = job.units[slice(*part.units)]
        if units:
            why = "what was added" if part.base is not None else "all of it, as files were replaced or removed"
            why = why if part.before_rows or part.base is not None else "all of it, as no states of it are kept"
            found.append(PartReading(part.name, len({unit.path for unit in units}), sum(u.rows for u in units), why))
    return found
