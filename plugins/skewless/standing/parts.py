"""What a run does about one part of its window, and the version of the part's states that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from skewless.documents.commit import CommittedFile
from skewless.documents.job import Unit
from skewless.documents.window import MOST_REASONS, CountedFile, JobWindow, PartVersion, SeenFile, WindowPart
from skewless.errors import InputError
from skewless.spec.part import Part, part_place
from skewless.standing.changes import Difference, FileName, FoundFile, Rewrite, change_set, ranks_between, standing_for
from skewless.standing.states_store import Numbered

#: Cuts files, given by their paths, into units.
Cut = Callable[[Sequence[str]], Sequence[Unit]]


def plan_part(
    part: Part,
    found: Sequence[FoundFile],
    known: Numbered | None,
    cut: Cut,
    difference: Difference,
    first: int = 0,
    *,
    in_order: bool = False,
) -> tuple[WindowPart, tuple[Unit, ...]]:
    """Compare a part with its newest states, and place the units to be reduced, whose ordinals begin with ``first``.

    ``cut`` is asked for the units of files that are to be read, and of no others. ``in_order`` says whether an
    aggregate must see the rows of a key in order.

    Raises:
        InputError: the part has more units than places.
    """
    changes = change_set(found, known.version if known else None, difference, in_order=in_order)
    late = changes.late
    units = tuple(cut(changes.read))
    ranks = ranks_between(changes.reused, _units_of_files(units))
    reasons = changes.reasons
    if ranks is None and changes.reused:
        changes = change_set(found, None, difference)
        units = tuple(cut(changes.read))
        ranks = ranks_between((), _units_of_files(units))
        reasons = (*reasons[: MOST_REASONS - 1], "there was no place left between the files before and after them")
    if ranks is None:
        raise InputError(f"part {part.name}", "fewer units", f"{len(units):,}", "give it fewer and larger files")
    seen = {
        unit.path: SeenFile(
            path=unit.path, size_bytes=unit.size_bytes, version=unit.version, checksum=unit.checksum,
            ranks=ranks[unit.path], header=unit.header, **of_table(unit),
        )
        for unit in units
    }  # fmt: skip
    base = None if changes.anew or known is None else known
    planned = WindowPart(
        name=part.name,
        place=part_place(part),
        files=tuple(sorted([*changes.reused, *seen.values()], key=lambda file: file.path)),
        units=(first, first + len(units)),
        ranks=tuple(rank for path in seen for rank in ranks[path]),
        base=base.number if base else None,
        base_rows=base.version.rows if base else 0,
        base_states=base.version.states if base else (),
        before_rows=known.version.rows if known else 0,
        reused=len(changes.reused),
        added=changes.added,
        replaced=changes.replaced,
        removed=changes.removed,
        late_rows=sum(unit.rows for unit in units if unit.path in late) if all(one.counted for one in units) else None,
        reasons=reasons[:MOST_REASONS],
    )
    return planned, units


def keep_part(
    part: Part,
    found: Sequence[FoundFile],
    known: Numbered,
    difference: Difference,
    cut: Cut,
    counted: Mapping[FoundFile, int],
) -> WindowPart:
    """Leave out whatever changed in a part since its states were made, and count it.

    Files that came or have other content are cut to count their rows, unless an earlier run has counted them. Nothing
    is found of a part that has vanished.
    """
    changes = change_set(found, known.version, difference)
    came = set(changes.late)
    late = [one for one in found if one.path in came]
    unknown = [one.path for one in late if one not in counted]
    rows = {one.path: counted[one] for one in late if one in counted}
    for unit in cut(unknown) if unknown else ():
        if unit.counted:
            rows[unit.path] = rows.get(unit.path, 0) + unit.rows
    return WindowPart(
        name=part.name,
        place=part_place(part),
        files=known.version.files,
        base=known.number,
        base_rows=known.version.rows,
        base_states=known.version.states,
        before_rows=known.version.rows,
        reused=len(known.version.files),
        ignored_files=changes.added + changes.replaced + changes.removed,
        ignored_rows=sum(rows.values()) if len(rows) == len(late) else None,
        left_out=tuple(
            CountedFile(path=one.path, size_bytes=one.size_bytes, version=one.version, rows=rows[one.path])
            for one in late
            if one.version and one.path in rows
        ),
        reasons=changes.reasons,
    )


def of_table(unit: Unit) -> dict[str, Any]:
    """What a file of a table is known by beside its path; nothing of other files, whose paths tell their values."""
    if not unit.version.startswith("table:"):
        return {}
    return {"deletes": unit.deletes, "inner": unit.inner, "values": unit.values}


def follow_rewrites(known: Numbered, rewrites: Sequence[Rewrite], cut: Cut) -> tuple[Numbered, int]:
    """The states of a part as those of the files that hold their rows now, and how many came in the place of others.

    They are unchanged where there is no place for these files. Of rewrites, oldest first, nothing is read but footers.
    """
    files = {FileName(one.path, one.version): one for one in known.version.files}
    found = standing_for(files, rewrites)
    kept = [files[name] for name in files if name in found.covered or name in found.lost]
    came = sorted(found.covered - files.keys())
    units = {unit.path: unit for unit in cut([name.path for name in came])} if came else {}
    ranks = ranks_between(kept, [(name.path, 1) for name in came]) if came else None
    if ranks is None or set(units) != {name.path for name in came}:
        return known, 0
    new = [
        SeenFile(
            path=name.path, size_bytes=units[name.path].size_bytes, version=name.version, ranks=ranks[name.path],
            **of_table(units[name.path]),
        )
        for name in came
    ]  # fmt: skip
    version = known.version.model_copy(update={"files": tuple(sorted([*kept, *new], key=lambda file: file.path))})
    return Numbered(known.number, version), len(came)


def counted_files(versions: Iterable[PartVersion]) -> dict[FoundFile, int]:
    """The rows of late files that the runs which made some versions have counted."""
    files = (file for version in versions for file in version.left_out)
    return {FoundFile(file.path, file.size_bytes, file.version): file.rows for file in files}


def _units_of_files(units: Sequence[Unit]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for unit in units:
        counts[unit.path] = counts.get(unit.path, 0) + 1
    return list(counts.items())


def next_version(
    window: JobWindow, part: WindowPart, run: str, states: Sequence[CommittedFile], rows: int
) -> PartVersion:
    """The states of a part after a run: the kept ones and those that the run made of so many rows of its units."""
    own = window.parts[-1].name
    return PartVersion(
        part=part.name,
        fingerprint=window.fingerprint,
        run=run,
        files=part.files,
        rows=part.base_rows + rows,
        states=(*part.base_states, *states),
        left_out=tuple(file for one in window.parts for file in one.left_out) if part.name == own else (),
    )
