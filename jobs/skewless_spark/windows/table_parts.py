"""The parts of a table: its files by a column that partitions it, and how compaction has changed them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skewless.documents.job import Unit
from skewless.documents.window import SeenFile, WindowPart
from skewless.errors import InputError
from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless.standing.changes import FileName, FoundFile, Rewrite, standing_for
from skewless_spark.sources.lake.snapshot import Commit, TableFile
from skewless_spark.sources.lake.tables import LakeTable, table_version
from skewless_spark.sources.listing import Listing

#: So many compactions are followed back; of a part that had more since its states were made, these are made anew.
MOST_REWRITES = 200


@dataclass(frozen=True)
class TablePart:
    """The files of a part of a table now."""

    part: Part
    table: LakeTable
    files: dict[str, TableFile]

    def __len__(self) -> int:
        return len(self.files)

    def listing(
        self, given: Input, share: float, paths: Sequence[str], partitions: Mapping[str, str] | None = None
    ) -> Listing:
        """The units of some of the files."""
        del given, partitions
        return self.table.listing(share, [self.files[path] for path in paths])

    def found(self) -> list[FoundFile]:
        """The files with their identities."""
        return [FoundFile(one.path, one.size_bytes, table_version(one)) for one in self.files.values()]

    def empty(self, part: Part) -> TablePart:
        """Another part, whose files are gone."""
        return TablePart(part, self.table, {})

    def difference(self, seen: SeenFile, now: FoundFile) -> str:
        """What tells a file from the one that states were made of; empty if it is the same."""
        return "" if seen.version == now.version else "other rows of it are deleted"


def parts_of_table(
    table: LakeTable, column: str, last: Part, wanted: Sequence[Part] | None
) -> tuple[list[TablePart], int]:
    """The files of each part of a table, and how many have no day, so that they are of no part.

    Args:
        column: whose values, which are days, or whose days partition it.

    Raises:
        InputError: the column does not partition the table, or has other values than days.
    """
    snapshot = table.snapshot
    if column not in snapshot.parted:
        known = ", ".join(snapshot.parted) or "none"
        raise InputError(
            f"{snapshot.at}, field input.parts", "a column whose values or days partition the table",
            repr(column)[:80], f"such columns are: {known}",
        )  # fmt: skip
    known_parts, undated = {part.date: dict[str, TableFile]() for part in wanted or (last,)}, 0
    for file in snapshot.files:
        day = _day(file, column)
        if day is None:
            undated += 1
            continue
        if wanted is None and day < last.date:
            known_parts.setdefault(day, {})
        if day in known_parts:
            known_parts[day][file.path] = file
    return [TablePart(Part(day), table, files) for day, files in sorted(known_parts.items())], undated


def _day(file: TableFile, column: str) -> dt.date | None:
    """The day of a file; None if that is null, or later than all days that parts can be of."""
    at = f"input file {file.path}"
    if column not in file.told:
        raise InputError(
            at, f"a partition value of {column!r}", "none: it was written before the table was partitioned so",
            "rewrite it by compaction",
        )  # fmt: skip
    value = file.told[column]
    try:
        return None if value is None else dt.date.fromisoformat(value)
    except ValueError:
        raise InputError(
            at, f"a day like 2026-01-31 as the value of {column!r}", repr(value)[:80],
            "name another column in input.parts",
        ) from None  # fmt: skip


@dataclass(frozen=True)
class TableRewrites:
    """The compactions of a table since some states were made.

    Attributes:
        column: that partitions it, with days.
        commits: oldest first: the files of the whole table before each, and after.
    """

    table: LakeTable
    column: str
    commits: tuple[Commit, ...]

    @classmethod
    def of(cls, table: LakeTable, column: str, gone: set[FileName]) -> TableRewrites:
        """The compactions back to the one before which all files that are gone were there.

        Args:
            gone: files that states know, and that the table has no more.
        """
        commits, left = [], set(gone)
        for before, after in table.rewrites():
            commits.append((before, after))
            left -= {_name(file) for file in before}
            if not left or len(commits) == MOST_REWRITES:
                break
        return cls(table, column, tuple(reversed(commits)))

    def of_part(self, part: Part) -> list[Rewrite]:
        """Those of a part."""
        day = part.date.isoformat()
        return [
            Rewrite(
                *(frozenset(_name(file) for file in files if file.told.get(self.column) == day) for files in commit)
            )
            for commit in self.commits
        ]

    def followed(self, part: WindowPart) -> WindowPart:
        """A part of an earlier run, as made of the files that hold the rows of its own now."""
        files = {FileName(one.path, one.version): one for one in part.files}
        found = standing_for(files, self.of_part(Part.named(part.name)))
        kept = [files[name] for name in files if name in found.covered or name in found.lost]
        came = [
            SeenFile(path=name.path, size_bytes=0, version=name.version, ranks=(0,))
            for name in sorted(found.covered - files.keys())
        ]
        return part.model_copy(update={"files": (*kept, *came)})

    def units(self, paths: Sequence[str]) -> Sequence[Unit]:
        """The units of files of the table now, which are not to be read; none of files that it does not have."""
        wanted = set(paths)
        return self.table.listing(1.0, [file for file in self.table.snapshot.files if file.path in wanted]).units


def _name(file: TableFile) -> FileName:
    return FileName(file.path, table_version(file))
