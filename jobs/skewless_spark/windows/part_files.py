"""The files of the parts of an input, as they are now: by the path of each, or by a partition column."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from skewless.documents.job import Unit
from skewless.documents.window import SeenFile, WindowPart
from skewless.errors import InputError
from skewless.run.folder import as_written
from skewless.run.storage import content_checksum
from skewless.spec.input import Input
from skewless.spec.part import DatedPath, Part
from skewless.spec.spec import JobSpec
from skewless.standing.parts import FileName, FoundFile, Rewrite, standing_for
from skewless_spark.aggregates import REGISTRY
from skewless_spark.sources import input_columns
from skewless_spark.sources.formats.input_files import as_glob, find, in_threads, open_input
from skewless_spark.sources.identity import listed_file, verdict
from skewless_spark.sources.lake.snapshot import Commit, TableFile
from skewless_spark.sources.lake.table_inputs import LakeTable, table_version
from skewless_spark.sources.listing import Listing, list_input
from skewless_spark.sources.locations import input_location, resolved

File = TypeVar("File")


@dataclass(frozen=True)
class PartFiles:
    """The files of a part now."""

    part: Part
    location: str
    """Its path, or that of the whole input."""
    inner: dict[str, str]
    """For the path of each file, its path in its file system."""

    def __len__(self) -> int:
        return len(self.inner)

    def listing(
        self, given: Input, share: float, paths: Sequence[str], partitions: Mapping[str, str] | None = None
    ) -> Listing:
        """The units of some of the files; see ``list_input``."""
        return list_input(given, self.location, share, [self.inner[path] for path in paths], partitions)

    def found(self) -> list[FoundFile]:
        """The files with their identities."""
        fs, _ = open_input(self.location)
        return list(in_threads(lambda one: listed_file(fs, one[1])._replace(path=one[0]), self.inner.items()))

    def empty(self, part: Part) -> "PartFiles":
        """Another part, whose files are gone."""
        return PartFiles(part, self.location, {})

    def difference(self, seen: SeenFile, now: FoundFile) -> str:
        """What tells a file from the one that states were made of; empty if it is the same."""
        found = verdict(seen, now)
        if found == "compare":
            checksum = content_checksum(open_input(self.location)[0], self.inner[now.path])
            found = "same" if checksum == seen.checksum else "rewritten"
        if found == "same":
            return ""
        if now.size_bytes != seen.size_bytes:
            return f"{now.size_bytes:,} bytes instead of {seen.size_bytes:,}"
        return "another time" if found == "rewritten" else "touched, and no checksum of it was taken"


def files_of_parts(
    spec: JobSpec, last: Part, wanted: Sequence[Part] | None, root: str, where: str
) -> tuple[Sequence["PartFiles | TablePart"], int]:
    """The files of some parts of an input, part by part, and how many have no day, so that they are of no part.

    Args:
        wanted: the parts; None for all that there are up to the newest one.
    """
    if spec.input.pinned:
        table = LakeTable.pinned(spec.input, last, root, input_location(spec, last, root, where))
        return parts_of_table(table, str(spec.input.parts), last, wanted)
    return named_files(spec, last, wanted, root, where)


def named_files(
    spec: JobSpec, last: Part, wanted: Sequence[Part] | None, root: str, where: str
) -> tuple[list[PartFiles], int]:
    """``files_of_parts`` of an input that is no table."""
    if spec.input.parts is not None:
        return _by_column(spec.input.parts, input_location(spec, last, root, where), last, wanted)
    named = wanted or _named_parts(spec, last, root, where)
    return list(in_threads(lambda part: _by_path(spec, part, root, where), named)), 0


def _named_parts(spec: JobSpec, last: Part, root: str, where: str) -> list[Part]:
    at = f"{where}, field {spec.field_of(spec.input)}.path"
    dated = DatedPath(spec.input.path, at)
    fs, pattern = open_input(resolved(dated.pattern, root, at))
    found = {dated.part_at(str(path), spec.schedule.timezone) for path in fs.glob(as_glob(fs, pattern))}
    return sorted({last, *(part for part in found if part is not None and part < last)})


def _by_path(spec: JobSpec, part: Part, root: str, where: str) -> "PartFiles":
    location = input_location(spec, part, root, where)
    fs, _ = open_input(location)
    return PartFiles(part, location, {as_written(fs, location, file): file for file in find(location, may_miss=True)})


def _by_column(column: str, location: str, last: Part, wanted: Sequence[Part] | None) -> tuple[list[PartFiles], int]:
    fs, root = open_input(location)
    files, listed = find(location), list[tuple[str, str | None, str]]()
    for file, values in zip(files, input_columns.values_of(files, root), strict=True):
        path = as_written(fs, location, file)
        if column not in values:
            raise InputError(
                f"input file {path}", f"a folder {column}=... on its path", "none", "name another column in parts"
            )
        listed.append((path, values[column], file))
    days, undated = _by_day(listed, column, last, wanted)
    return [PartFiles(Part(day), location, inner) for day, inner in days], undated


def _by_day(
    files: Iterable[tuple[str, str | None, File]], column: str, last: Part, wanted: Sequence[Part] | None
) -> tuple[list[tuple[dt.date, dict[str, File]]], int]:
    """The files of each day by their paths, oldest day first, and how many have no day.

    Args:
        files: the path of each, the value of the column, and the file.
    """
    days, undated = {part.date: dict[str, File]() for part in wanted or (last,)}, 0
    for path, value, file in files:
        if value is None:
            undated += 1
            continue
        try:
            day = dt.date.fromisoformat(value)
        except ValueError:
            raise InputError(
                f"input file {path}", f"a day like 2026-01-31 as the value of {column!r}", repr(value)[:80],
                "name another column in parts",
            ) from None  # fmt: skip
        if wanted is None and day < last.date:
            days.setdefault(day, {})
        if day in days:
            days[day][path] = file
    return sorted(days.items()), undated


def values_of(one: PartFiles) -> list[dict[str, str | None]]:
    """The values of the partition columns of each file of a part."""
    _, root = open_input(one.location)
    return input_columns.values_of(list(one.inner.values()), root)


def sees_order(spec: JobSpec) -> bool:
    """Whether an aggregate must see rows in order, which compaction does not keep."""
    called = [REGISTRY[call.function] for call in spec.aggregates.values()]
    return any(definition.ordered or not definition.mergeable for definition in called)


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

    def empty(self, part: Part) -> "TablePart":
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
            f"{snapshot.at}, parts", "a column whose values or days partition the table",
            repr(column)[:80], f"such columns are: {known}",
        )  # fmt: skip
    lacking = next((file for file in snapshot.files if column not in file.told), None)
    if lacking is not None:
        raise InputError(
            f"input file {lacking.path}", f"a partition value of {column!r}",
            "none: it was written before the table was partitioned so", "rewrite it by compaction",
        )  # fmt: skip
    days, undated = _by_day(((file.path, file.told[column], file) for file in snapshot.files), column, last, wanted)
    return [TablePart(Part(day), table, files) for day, files in days], undated


@dataclass(frozen=True)
class TableRewrites:
    """The compactions of a table since some states were made."""

    table: LakeTable
    column: str
    """That partitions it, with days."""
    commits: tuple[Commit, ...]
    """Oldest first: the files of the whole table before each, and after."""

    @classmethod
    def since(
        cls, spec: JobSpec, now: Sequence[PartFiles | TablePart], known: Iterable[SeenFile]
    ) -> "TableRewrites | None":
        """The compactions back to the one before which all known files were there that the table has no more.

        Returns:
            None of what is no table, or has all files; or where rows must be in order, which compaction does not keep.
        """
        table = next((one.table for one in now if isinstance(one, TablePart)), None)
        if table is None or sees_order(spec):
            return None
        left = {FileName(file.path, file.version) for file in known}
        left -= {FileName(file.path, file.version) for one in now for file in one.found()}
        if not left:
            return None
        commits = []
        for before, after in table.rewrites():
            commits.append((before, after))
            left -= {_name(file) for file in before}
            if not left or len(commits) == MOST_REWRITES:
                break
        return cls(table, str(spec.input.parts), tuple(reversed(commits)))

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
