"""What changed in a part since its states or a result were made, and what a run does about it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from skewless.document import HASHES
from skewless.documents.commit import CommittedFile
from skewless.documents.job import Unit
from skewless.documents.window import MOST_REASONS, CountedFile, JobWindow, PartVersion, SeenFile, WindowPart
from skewless.errors import InputError
from skewless.spec.part import Part, part_place
from skewless.standing.states_store import Numbered


class FoundFile(NamedTuple):
    """A file as it is listed now: see ``InputFile``."""

    path: str
    size_bytes: int
    version: str


class ChangeSet(NamedTuple):
    """What is to be done about a part."""

    reused: tuple[SeenFile, ...]
    """The files whose states are kept, as they are known."""
    read: tuple[str, ...]
    """The paths of the files to be reduced, in order."""
    anew: bool
    """Whether the part is reduced anew, from all of its files: then nothing is reused."""
    added: int
    replaced: int
    removed: int
    reasons: tuple[str, ...]
    late: tuple[str, ...] = ()
    """The paths of the files that were added or have other content, in order."""


#: Says what tells a file from the one that the states know; empty if it is the same.
Difference = Callable[[SeenFile, FoundFile], str]


def change_set(
    found: Sequence[FoundFile], known: PartVersion | None, difference: Difference, *, in_order: bool = False
) -> ChangeSet:
    """Compare the files of a part with those that its newest states were made of.

    Files that came are reduced, and their states are merged with those that are kept. If a file was replaced or
    removed, its rows cannot be taken out of the states: the part is reduced anew. So it is if files came and
    rows must be seen in order, as those that came may lie between the others.
    """
    present = sorted(found)
    if known is None:
        paths = tuple(one.path for one in present)
        return ChangeSet(
            (), paths, anew=True, added=len(paths), replaced=0, removed=0, reasons=("no states of it yet",)
        )
    before = {one.path: one for one in known.files}
    differ = {one.path: difference(before[one.path], one) for one in present if one.path in before}
    replaced = {path: why for path, why in differ.items() if why}
    added = [one.path for one in present if one.path not in before]
    removed = [path for path in before if path not in differ]
    told = [f"{path} was replaced: {why}" for path, why in replaced.items()]
    told += [f"{path} was removed" for path in removed]
    told += [f"{path} was added{', and rows must be seen in order' if in_order else ''}" for path in added]
    anew = bool(replaced or removed or (in_order and added))
    return ChangeSet(
        reused=() if anew else tuple(before[one.path] for one in present if one.path in before),
        read=tuple(one.path for one in present) if anew else tuple(added),
        anew=anew,
        added=len(added),
        replaced=len(replaced),
        removed=len(removed),
        reasons=tuple(told[:MOST_REASONS]),
        late=tuple(one.path for one in present if one.path not in before or one.path in replaced),
    )


#: Between the units of a part, so that a late file can be put between two of them; and the first number that is none.
RANK_STEP, RANK_END = 1 << 8, 1 << 29


def ranks_between(known: Sequence[SeenFile], units: Sequence[tuple[str, int]]) -> dict[str, tuple[int, ...]] | None:
    """Places for so many units of new files among those of known files, by paths; None if there is no room."""
    merged = sorted([*((one.path, 0, one.ranks) for one in known), *((path, count, ()) for path, count in units)])
    found: dict[str, tuple[int, ...]] = {}
    last, waiting = -1, list[tuple[str, int]]()
    for path, count, ranks in [*merged, ("", 0, (RANK_END,))]:
        if not ranks:
            waiting.append((path, count))
            continue
        needed = sum(one for _, one in waiting)
        room = ranks[0] - last - 1
        if needed > room:
            return None
        step = min(RANK_STEP, (room + 1) // (needed + 1)) if needed else 0
        at = last
        for one, of_one in waiting:
            found[one] = tuple(at + step * (number + 1) for number in range(of_one))
            at += step * of_one
        last, waiting = ranks[-1], []
    return found


# Files of a table that hold the rows of others: compaction changes no row, and the states of the old files stand.


class FileName(NamedTuple):
    """What names the rows of a file of a table for ever: its path, and the version that tells which are deleted."""

    path: str
    version: str


class Rewrite(NamedTuple):
    """A commit that says of itself that it changed no row: the files of a part before and after it."""

    before: frozenset[FileName]
    after: frozenset[FileName]


class Standing(NamedTuple):
    """What became of the files that states were made of."""

    covered: frozenset[FileName]
    """Files that hold just the rows of the states, together with the lost ones."""
    lost: frozenset[FileName]
    """Files that are gone or changed, whose rows are not in others."""


def standing_for(known: Iterable[FileName], rewrites: Sequence[Rewrite]) -> Standing:
    """Follow the files of a part through rewrites, oldest first; some may be missing.

    Files never change, so it does not matter what was committed between two rewrites: a file that is there before one
    has the rows that it always had. A rewrite that mixes files of the states with others cannot be followed.
    """
    covered, lost = set(known), set[FileName]()
    for one in rewrites:
        lost |= covered - one.before
        covered &= one.before
        old, new = one.before - one.after, one.after - one.before
        if old and old <= covered:
            covered = covered - old | new
        else:
            lost |= covered & old
            covered -= old
    return Standing(frozenset(covered), frozenset(lost))


class Listed(NamedTuple):
    """A part as it is listed now, and what compares the contents of two of its files of one path."""

    files: Sequence[FoundFile]
    difference: Difference


_GONE = Listed((), lambda _, __: "")


def covered_parts(window: JobWindow) -> list[str]:
    """The names of all parts that a window covers, with files and without."""
    return sorted([*window.missing, *(part.name for part in window.parts)])


def changed_parts(window: JobWindow, now: Mapping[str, Listed]) -> dict[str, tuple[str, ...]]:
    """The parts that are not as the result of a window was made of them, each with the reasons, in words."""
    changed = {}
    for part in window.parts:
        was = PartVersion(
            part=part.name, fingerprint=window.fingerprint, run="", files=part.files, rows=0, states=()
        )  # fmt: skip
        listed = now.get(part.name, _GONE)
        changed[part.name] = change_set(listed.files, was, listed.difference).reasons
    # Of all parts, those that nobody knew of count, too.
    covers_all = window.windows[-1].length is None
    older = [name for name in now if name < window.parts[-1].name] if covers_all else []
    for name in {*window.missing, *older} - changed.keys():
        came = sorted(now.get(name, _GONE).files)
        changed[name] = (f"{came[0].path} came, the first of {len(came):,} files",) if came else ()
    return {name: changed[name] for name in sorted(changed) if changed[name]}


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
        base_hash=base.version.rows_hash if base else 0,
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
        base_hash=known.version.rows_hash,
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
    window: JobWindow, part: WindowPart, run: str, states: Sequence[CommittedFile], rows: int, rows_hash: int = 0
) -> PartVersion:
    """The states of a part after a run: the kept ones and those that the run made of so many rows of its units."""
    own = window.parts[-1].name
    return PartVersion(
        part=part.name,
        fingerprint=window.fingerprint,
        run=run,
        files=part.files,
        rows=part.base_rows + rows,
        rows_hash=(part.base_hash + rows_hash) % HASHES,
        states=(*part.base_states, *states),
        left_out=tuple(file for one in window.parts for file in one.left_out) if part.name == own else (),
    )
