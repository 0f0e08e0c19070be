"""The window of a run: its parts, the units that each is made of, and what is reduced of each tonight."""

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from skewless.document import Count, Document, Frozen, unmet
from skewless.documents.commit import CommittedFile, inner_path

#: Reasons that a part tells one by one; of more files only the number is told.
MOST_REASONS = 20
#: Of more missing parts the oldest few and the newest are named: after a part of 1970 there are thousands.
MOST_MISSING, OLDEST_MISSING = 1_000, 3
#: What a run does about a part.
Way = Literal["reused", "late files left out", "added to", "reduced anew", "new"]


class InputFile(Frozen):
    """A file of the input."""

    path: str
    size_bytes: Count
    """The length of the file, whole."""
    version: str = ""
    """What tells this content from a later one, as far as its file system says: an entity tag; or modification time,
    change time and inode."""
    checksum: str = ""
    """SHA-256 of the file, whole, in hex; empty of a large one, and where an entity tag tells enough."""
    values: dict[str, str | None] = Field(default_factory=dict)
    """Of the partition columns that its path gives, or the metadata of its table, as text; None is null."""
    deletes: tuple[str, ...] = ()
    """What says which of its rows a table has deleted: files, or the name of a deletion vector."""
    inner: dict[str, str | None] = Field(default_factory=dict)
    """Of the columns that the file has in another way, the name in the file: another name, an older type, or none, as
    it was written before the column was added."""
    header: tuple[str, ...] = ()
    """Of a csv, the names that its first line has, in order."""


class SeenFile(InputFile):
    """A file that the states of a part were made of; only of a table it has values, as those of others are in paths."""

    ranks: tuple[Count, ...] = Field(min_length=1)
    """The places of its units in the order of the part, ascending. They have gaps, so that a file that comes late can
    be put between two others."""


class CountedFile(Frozen):
    """A late file that was left out: as ``InputFile`` has it, with the rows that its footer tells."""

    path: str
    size_bytes: Count
    version: str = Field(min_length=1)
    rows: Count


class PartVersion(Document):
    """The standing states of a part as they were made of some files: ``parts/2026-11-20/versions/0007.json``.

    It is whole in itself: it lists all states of the part, and all files that they stand for.
    """

    part: str
    fingerprint: str
    run: str
    """The run directory that made the newest of the states."""
    files: tuple[SeenFile, ...]
    rows: Count
    """Rows that the states stand for: mapped ones, where there is a map; and their hash."""
    rows_hash: Count = 0
    states: tuple[CommittedFile, ...]
    """The files with the states, below the store. A key may have a state in several of them."""
    left_out: tuple[CountedFile, ...] = ()
    """Late files of older parts that the run has left out: the next run has not to count their rows again."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        for what, paths in (("files", [one.path for one in self.files]), ("states", [one.path for one in self.states])):
            if len(set(paths)) < len(paths):
                raise unmet(f"different {what}", "one that is listed twice, which would count twice")
        if not inner_path(self.part) or "/" in self.part:
            raise unmet("the name of a part", repr(self.part)[:80])
        return self


class WindowPart(Frozen):
    """One part of a window, as the run found it."""

    name: str
    place: int
    files: tuple[SeenFile, ...] = ()
    """Those of the input that the part is made of, in order."""
    units: tuple[Count, Count] = (0, 0)
    """The ordinals ``first <= ordinal < end`` of the run's units that are of this part: what is reduced."""
    ranks: tuple[Count, ...] = ()
    """The place of each of them in the order of the part."""
    base: Count | None = None
    """The number of the version of its states that are merged with tonight's; None if there is none, or if the part is
    reduced anew."""
    base_rows: Count = 0
    """The rows that the states of that version stand for, as ``base_hash`` is their hash."""
    base_hash: Count = 0
    base_states: tuple[CommittedFile, ...] = ()
    before_rows: Count = 0
    """The rows that the newest version stood for, whether it is used or not."""
    reused: Count = 0
    """How many files were as the states know them; others were added, replaced or removed since."""
    added: Count = 0
    replaced: Count = 0
    removed: Count = 0
    reasons: tuple[str, ...] = Field(default=(), max_length=MOST_REASONS)
    late_rows: Count | None = 0
    """Rows of files that came or were replaced since its states were made, before a map; None where nobody has counted
    the rows of files."""
    ignored_files: Count = 0
    """With ``late: ignore``, how many files were added, have other content or are gone, and were left as the kept
    states have them. Such files are not among those that were added, replaced or removed."""
    ignored_rows: Count | None = 0
    """Rows of those of them that are there; None if that is not known without reading them."""
    left_out: tuple[CountedFile, ...] = ()
    rewritten: Count = 0
    """How many files of a table came in the place of others that had the same rows."""

    @property
    def newest_file(self) -> dt.datetime | None:
        """When the newest of its files was modified; None if its file system does not say so of all of them.

        A local file system gives files versions that begin with ``stat:NANOSECONDS:``.
        """
        stamps = [file.version.split(":") for file in self.files]
        if not stamps or any(stamp[0] != "stat" or not stamp[1].isdigit() for stamp in stamps):
            return None
        return dt.datetime.fromtimestamp(max(int(stamp[1]) for stamp in stamps) // 10**9, dt.UTC)

    @property
    def reread(self) -> int:
        """How many files are read although they are as its states know them: the part is reduced anew."""
        return len(self.files) - self.reused - self.added - self.replaced

    @property
    def came_rows(self) -> int | None:
        """The rows of its late files, taken in or left out; None where nobody has counted them."""
        return self.ignored_rows if self.ignored_files else self.late_rows

    @property
    def changed(self) -> bool:
        """Whether its states are made or added to tonight."""
        return self.units[1] > self.units[0] or (self.base is None and bool(self.files))

    @property
    def way(self) -> Way:
        """What the run does about it; ``new`` if there were no states of it."""
        if self.ignored_files:
            return "late files left out"
        if not self.changed:
            return "reused"
        if self.base is not None:
            return "added to"
        return "reduced anew" if self.before_rows else "new"


class WindowSpan(Frozen):
    """One window of a result."""

    length: int | None = Field(default=None, ge=1)
    """How many parts it may cover, the run's own the last; None for all."""
    first: Count = 0
    """The position in ``JobWindow.parts`` of the oldest part in it that has files."""

    @property
    def name(self) -> str:
        """Its length, or ``all``."""
        return "all" if self.length is None else str(self.length)


class JobWindow(Frozen):
    """The parts that the result of a run covers, and where their standing states are."""

    store: str
    """The folder of the states of this fingerprint."""
    fingerprint: str
    shapes: dict[str, str]
    """What that is, see ``skewless.standing.states_store.Fingerprint``."""
    parts: tuple[WindowPart, ...]
    """Those that have files, oldest first. Units are numbered in their order."""
    missing: tuple[str, ...] = ()
    """The names of the others, oldest first; of more than ``MOST_MISSING`` the oldest few and the newest."""
    missing_unnamed: Count = 0
    windows: tuple[WindowSpan, ...] = Field(min_length=1)
    """Those of the result, the longest one last; each ends with the newest part."""
    begins: str = ""
    """Why there were no states of this fingerprint before, in words; empty if there were."""
    undated: Count = 0
    """Files of the input whose partition has no day, so that they are of no part."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        end = 0
        for part in self.parts:
            first, last = part.units
            if first != end or last < first or len(part.ranks) != last - first:
                raise unmet("parts whose units follow each other, each with its rank", part.name[:80])
            end = last
        firsts = [one.first for one in self.windows]
        if firsts != sorted(firsts, reverse=True) or firsts[-1] != 0:
            raise unmet("windows of which each is an end of the next, and the last has all parts", str(firsts)[:80])
        return self

    def of_part(self, name: str) -> WindowPart:
        """The part of a name; of one without files, nothing is known."""
        return next((one for one in self.parts if one.name == name), WindowPart(name=name, place=0))

    @property
    def newest_file(self) -> str:
        """When the newest file of the newest part was modified of which a file system says so; empty if none does."""
        known = ((part.name, at) for part in reversed(self.parts) if (at := part.newest_file) is not None)
        return next((f"newest file of {name}: modified {at:%Y-%m-%d %H:%M:%S} UTC" for name, at in known), "")

    @property
    def missing_count(self) -> int:
        """How many parts have no files."""
        return len(self.missing) + self.missing_unnamed

    @property
    def missing_words(self) -> str:
        """The parts without files; of many the first and the last few, and their number. Empty if there are none."""
        return some_of(self.missing, self.missing_count)

    @property
    def reduced(self) -> list[int]:
        """The positions of the parts that have units."""
        return [at for at, part in enumerate(self.parts) if part.units[1] > part.units[0]]

    def delays(self) -> dict[str, int]:
        """How many parts each part is before the newest one.

        Places of days are numbers of days. Hours are counted by their names, which sort as the hours do: a window has
        all of them, with files or without. Where not all are named, they are counted as if no clock were ever changed.
        """
        hours = any("T" in part.name for part in self.parts)
        if self.missing_unnamed or not hours:
            return {part.name: (self.parts[-1].place - part.place) // (2 if hours else 1) for part in self.parts}
        names = sorted([*(part.name for part in self.parts), *self.missing], reverse=True)
        return {name: back for back, name in enumerate(names)}

    def late(self) -> list[tuple[WindowPart, int]]:
        """The older parts that have changed since states of them were made, each with its delay in parts."""
        delays = self.delays()
        changed = (part for part in self.parts if part.way not in ("reused", "new"))
        return [(part, delays[part.name]) for part in changed if delays[part.name] > 0]

    @property
    def unchanged_rows(self) -> int:
        """The rows of the result that were not read tonight: their states are kept ones."""
        return sum(part.base_rows for part in self.parts)

    @property
    def ignored_files(self) -> int:
        """How many late files were left out, see ``WindowPart.ignored_files``."""
        return sum(part.ignored_files for part in self.parts)

    @property
    def ignored_rows(self) -> int | None:
        """The rows of late files that were left out; None if that is not known of all."""
        rows = [part.ignored_rows for part in self.parts]
        return None if None in rows else sum(one or 0 for one in rows)

    def with_missing(self, names: Iterable[str]) -> Self:
        """The same, with the names of parts without files, or as many of them as a document has."""
        found = sorted(names)
        if (unnamed := max(0, len(found) - MOST_MISSING)) > 0:
            found[OLDEST_MISSING : OLDEST_MISSING + unnamed] = []
        return self.model_copy(update={"missing": tuple(found), "missing_unnamed": unnamed})

    def counts(self) -> dict[str, int]:
        """How many files of the window were reused, read again as they were, added, replaced and removed."""
        return {name: sum(getattr(part, name) for part in self.parts) for name in CHANGES}


#: The window of a job that has none: no parts, no rows, nothing that was left out.
NO_WINDOW = JobWindow.model_construct(store="", fingerprint="", shapes={}, parts=(), windows=())

#: What may have become of a file, as ``WindowPart`` counts it.
CHANGES: Sequence[str] = ("reused", "reread", "added", "replaced", "removed")


def some_of(names: Sequence[str], count: int | None = None) -> str:
    """Names of parts; of many the first and the last few, and their number, which is ``count`` if not all are given."""
    count = len(names) if count is None else count
    if count <= 2 * OLDEST_MISSING:
        return ", ".join(names)
    first, last = names[:OLDEST_MISSING], names[-OLDEST_MISSING:]
    return f"{', '.join(first)}, ..., {', '.join(last)} ({count:,} in all)"
