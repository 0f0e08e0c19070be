"""The files of the parts of an input, as they are now: by the path of each, or by a partition column."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skewless.documents.window import SeenFile
from skewless.errors import InputError
from skewless.run.objects.location import as_written
from skewless.run.storage import content_checksum
from skewless.spec.input import Input
from skewless.spec.part import DatedPath, Part
from skewless.spec.spec import JobSpec
from skewless.standing.changes import FoundFile
from skewless_spark.sources import partition_columns
from skewless_spark.sources.formats.files import find, in_threads, open_input
from skewless_spark.sources.identity import listed_file, verdict
from skewless_spark.sources.lake.tables import LakeTable
from skewless_spark.sources.listing import Listing, list_input
from skewless_spark.sources.locations import input_location, resolved
from skewless_spark.windows.table_parts import TablePart, parts_of_table


@dataclass(frozen=True)
class PartFiles:
    """The files of a part now.

    Attributes:
        location: its path, or that of the whole input.
        inner: for the path of each file, its path in its file system.
    """

    part: Part
    location: str
    inner: dict[str, str]

    def __len__(self) -> int:
        return len(self.inner)

    @property
    def paths(self) -> list[str]:
        """The paths of the files."""
        return list(self.inner)

    def listing(
        self, given: Input, share: float, paths: Sequence[str], partitions: Mapping[str, str] | None = None
    ) -> Listing:
        """The units of some of the files; see ``list_input``."""
        return list_input(given, self.location, share, [self.inner[path] for path in paths], partitions)

    def found(self) -> list[FoundFile]:
        """The files with their identities."""
        fs, _ = open_input(self.location)
        return list(in_threads(lambda one: listed_file(fs, one[1])._replace(path=one[0]), self.inner.items()))

    def empty(self, part: Part) -> PartFiles:
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
) -> tuple[Sequence[PartFiles | TablePart], int]:
    """The files of some parts of an input, part by part, and how many have no day, so that they are of no part.

    Args:
        wanted: the parts; None for all that there are up to the newest one.

    Raises:
        InputError: the input cannot be listed, or a file has another value than a day.
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
    """All parts up to one whose paths exist, and that one itself."""
    at = f"{where}, field input.path"
    dated = DatedPath(spec.input.path, at)
    fs, pattern = open_input(resolved(dated.pattern, root, at))
    found = {dated.part_at(str(path), spec.schedule.timezone) for path in fs.glob(pattern)}
    return sorted({last, *(part for part in found if part is not None and part < last)})


def _by_path(spec: JobSpec, part: Part, root: str, where: str) -> PartFiles:
    location = input_location(spec, part, root, where)
    fs, _ = open_input(location)
    return PartFiles(part, location, {as_written(fs, location, file): file for file in find(location, may_miss=True)})


def _by_column(column: str, location: str, last: Part, wanted: Sequence[Part] | None) -> tuple[list[PartFiles], int]:
    fs, root = open_input(location)
    files, known, undated = find(location), {part.date: dict[str, str]() for part in wanted or (last,)}, 0
    for file, values in zip(files, partition_columns.values_of(files, root), strict=True):
        at, value = f"input file {as_written(fs, location, file)}", values.get(column)
        if column not in values:
            raise InputError(at, f"a folder {column}=... on its path", "none", "name another column in input.parts")
        if value is None:
            undated += 1
            continue
        try:
            day = dt.date.fromisoformat(value)
        except ValueError:
            raise InputError(
                at, f"a day like 2026-01-31 as the value of {column!r}", repr(value)[:80], "name another column"
            ) from None
        if wanted is None and day < last.date:
            known.setdefault(day, {})
        if day in known:
            known[day][as_written(fs, location, file)] = file
    return [PartFiles(Part(day), location, inner) for day, inner in sorted(known.items())], undated


def values_of(one: PartFiles) -> list[dict[str, str | None]]:
    """The values of the partition columns of each file of a part."""
    _, root = open_input(one.location)
    return partition_columns.values_of(list(one.inner.values()), root)
