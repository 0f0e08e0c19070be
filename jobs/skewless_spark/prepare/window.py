"""The input of a job with a window: its parts, what changed in each since its states were made, and the units of that.

All files of the window are listed, and none is opened that the states know already.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import importlib.util
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pyspark

from skewless.aggregates.registered import ENTRY_POINT_GROUP
from skewless.documents.job import Unit
from skewless.documents.window import MOST_REASONS, JobWindow, SeenFile, WindowPart
from skewless.errors import InputError, SpecError
from skewless.mapping import GROUP as MAPPERS
from skewless.run.file_checksum import content_checksum
from skewless.run.publication import beside
from skewless.run.written_path import as_written
from skewless.spec.part import Part, parts_until
from skewless.spec.spec import JobSpec
from skewless.standing.changes import FoundFile
from skewless.standing.fingerprint import fingerprint_of
from skewless.standing.parts import plan_part
from skewless.standing.store import Numbered, StatesStore, open_states, why_anew
from skewless_spark.aggregates import REGISTRY
from skewless_spark.aggregates import native as native_aggregates
from skewless_spark.aggregates.binding import concatenable, serves_instead
from skewless_spark.aggregates.definition import NativeAggregate
from skewless_spark.prepare.locations import input_location, resolved
from skewless_spark.sources import Listing, list_input, partition_columns
from skewless_spark.sources.formats.files import find, open_input
from skewless_spark.sources.identity import Identity, listed_identity, verdict
from skewless_spark.sources.in_threads import in_threads


def check_window(spec: JobSpec, where: str) -> None:
    """Refuse aggregates whose states cannot be merged over parts, not even in their order.

    Raises:
        SpecError: names one, and one that could serve, or what to define.
    """
    if spec.window is None:
        return
    for name, call in spec.aggregates.items():
        definition, at = REGISTRY[call.function], f"{where}, aggregate {name!r}"
        if not concatenable(definition):
            serves = serves_instead(definition)
            define = "let its merge take the state of the rows that come next, and declare concatenable=True"
            hint = f"{serves} could serve" if serves else f"{define} (docs/write_an_aggregate.md)"
            raise SpecError(at, "an aggregate whose states can be merged, with a window", repr(call.function), hint)


@dataclass(frozen=True)
class _PartFiles:
    """The files of a part now.

    Attributes:
        part: the part.
        location: its path, or that of the whole input.
        inner: for the path of each file, its path in its file system.
    """

    part: Part
    location: str
    inner: dict[str, str]


@dataclass(frozen=True)
class WindowInput:
    """The files of all parts of a window.

    Attributes:
        spec: of the job.
        path: the resolved path of the run's own part.
        parts: those with files, oldest first.
        missing: the names of the others.
        partitions: Spark SQL type of each partition column, from the values of all parts.
        sample: the listing of one file, which tells the columns of all.
    """

    spec: JobSpec
    path: str
    parts: tuple[_PartFiles, ...]
    missing: tuple[str, ...]
    partitions: dict[str, str]
    sample: Listing

    @classmethod
    def found(cls, spec: JobSpec, last: Part, root: str, where: str) -> WindowInput:
        """Find the files of a window.

        Args:
            spec: the spec, with a window.
            last: the run's own part.
            root: where relative paths start.
            where: what error messages call the spec.

        Raises:
            InputError: the run's own part has no files, or, if the spec says so, another one has none.
        """
        wanted = parts_until(last, spec.window or 1, spec.schedule.timezone)
        path = input_location(spec, last, root, where)
        if spec.input.parts is None:
            parts = list(in_threads(lambda part: _by_path(spec, part, root, where), wanted))
        else:
            parts = _by_column(spec.input.parts, path, wanted)
        missing = tuple(one.part.name for one in parts if not one.inner)
        if not parts[-1].inner:
            raise InputError(
                f"part {last.name}", "files of the part that the run computes", f"none at {path}",
                "check the path, or wait until they are there",
            )  # fmt: skip
        if missing and spec.missing == "fail":
            raise InputError(
                f"a window of {spec.window} parts", "files of each part", f"none of {', '.join(missing[:5])}",
                "wait until they are there, or set missing: allow",
            )  # fmt: skip
        present = tuple(one for one in parts if one.inner)
        paths = [file for one in present for file in one.inner]
        values = [value for one in present for value in _values(one)]
        newest = present[-1]
        sample = list_input(spec.input, newest.location, files=list(newest.inner.values())[:1])
        kept = cls(spec, path, present, missing, partition_columns.types_of(paths, values), sample)
        return cls(spec, path, present, missing, kept.partitions, kept._with_partitions(sample))

    def _with_partitions(self, listing: Listing) -> Listing:
        source = listing.source.model_copy(update={"partition_columns": self.partitions})
        return Listing(listing.units, source)

    def changes(self, types: Mapping[str, str], root: str) -> tuple[JobWindow, tuple[Unit, ...]]:
        """Compare each part with its states; the window of the job, and the units that are to be reduced.

        Args:
            types: Spark SQL type of each column that is a key or an argument.
            root: where relative paths start.

        Raises:
            InputError: a file has other columns; or an older part changed, and the spec does not allow it.
        """
        spec = self.spec
        fingerprint = fingerprint_of(spec, types, _code_of(spec), pyspark.__version__)
        location = states_location(spec, root)
        store = open_states(location, fingerprint)
        parts, units = [], list[Unit]()
        for one in self.parts:
            part, of_part = self._changed(one, store, len(units))
            parts.append(part)
            units += of_part
        begins = "" if store.parts() else why_anew(location, fingerprint)
        window = JobWindow(
            store=str(store),
            fingerprint=fingerprint.name,
            shapes=fingerprint.shapes,
            parts=tuple(parts),
            missing=self.missing,
            begins=begins,
        )
        return window, tuple(units)

    def _changed(self, one: _PartFiles, store: StatesStore, first: int) -> tuple[WindowPart, tuple[Unit, ...]]:
        known, faults = store.newest(one.part.name)
        fs, _ = open_input(one.location)
        identities = dict(
            zip(one.inner, in_threads(lambda file: listed_identity(fs, file), one.inner.values()), strict=True)
        )
        found = [FoundFile(path, identity.size_bytes, identity.version) for path, identity in identities.items()]

        def difference(seen: SeenFile, now: FoundFile) -> str:
            return _difference(seen, now, lambda: content_checksum(fs, one.inner[now.path]))

        called = [REGISTRY[call.function] for call in self.spec.aggregates.values()]
        in_order = any(definition.ordered or not definition.mergeable for definition in called)
        part, units = plan_part(
            one.part, found, known, lambda paths: self._units(one, paths), difference, first, in_order=in_order
        )
        part = part.model_copy(update={"reasons": (*faults, *part.reasons)[:MOST_REASONS]})
        self._refuse_late(one.part, known, part)
        return part, units

    def _refuse_late(self, part: Part, known: Numbered | None, planned: WindowPart) -> None:
        own = part == self.parts[-1].part
        if self.spec.late == "fail" and known is not None and planned.changed and not own:
            raise InputError(
                f"part {part.name}", "an older part that has not changed", planned.reasons[0],
                "set late: recompute, or restore the part",
            )  # fmt: skip

    def _units(self, one: _PartFiles, paths: Sequence[str]) -> tuple[Unit, ...]:
        """The units of some files of a part, which have the columns of all."""
        if not paths:
            return ()
        share = min(self.spec.routing.waves) / sum(self.spec.routing.waves)
        listing = list_input(self.spec.input, one.location, share, [one.inner[path] for path in paths])
        want, came = self.sample.source.columns, listing.source.columns
        odd = next((name for name in {**want, **came} if want.get(name) != came.get(name)), None)
        if odd is not None:
            raise InputError(
                f"part {one.part.name}",
                f"column {odd!r} of type {want.get(odd, 'none')} as in {self.parts[-1].part.name}",
                f"type {came.get(odd, 'none')}", "write all files of an input with one schema",
            )  # fmt: skip
        return listing.units


def states_location(spec: JobSpec, root: str) -> str:
    """The folder of all states of a job, whatever part a run computes."""
    given = spec.states.path if spec.states else None
    if given:
        return posixpath.join(resolved(given, root, "field states.path"), spec.name)
    output = resolved(spec.output.path, root, "field output.path")
    return str(beside(output) / "states" / spec.name)


def _by_path(spec: JobSpec, part: Part, root: str, where: str) -> _PartFiles:
    location = input_location(spec, part, root, where)
    fs, _ = open_input(location)
    return _PartFiles(part, location, {as_written(fs, location, file): file for file in find(location, may_miss=True)})


def _by_column(column: str, location: str, wanted: Sequence[Part]) -> list[_PartFiles]:
    """The files of each part of a whole input, by the values of a partition column."""
    fs, root = open_input(location)
    files, known = find(location), {part.date: dict[str, str]() for part in wanted}
    for file, values in zip(files, partition_columns.values_of(files, root), strict=True):
        at, value = f"input file {as_written(fs, location, file)}", values.get(column)
        if column not in values:
            raise InputError(at, f"a folder {column}=... on its path", "none", "name another column in input.parts")
        try:
            day = dt.date.fromisoformat(str(value))
        except ValueError:
            raise InputError(
                at, f"a day like 2026-01-31 as the value of {column!r}", repr(value)[:80], "name another column"
            ) from None
        if day in known:
            known[day][as_written(fs, location, file)] = file
    return [_PartFiles(part, location, known[part.date]) for part in wanted]


def _values(one: _PartFiles) -> list[dict[str, str | None]]:
    _, root = open_input(one.location)
    return partition_columns.values_of(list(one.inner.values()), root)


def _difference(seen: SeenFile, now: FoundFile, checksum: object) -> str:
    """What tells a file from the one that states were made of; empty if it is the same."""
    known = Unit(path=seen.path, rows=0, size_bytes=seen.size_bytes, version=seen.version, checksum=seen.checksum)
    found = verdict(known, Identity(now.size_bytes, now.version))
    if found == "compare":
        found = "same" if checksum() == seen.checksum else "rewritten"  # type: ignore[operator]
    if found == "same":
        return ""
    if now.size_bytes != seen.size_bytes:
        return f"{now.size_bytes:,} bytes instead of {seen.size_bytes:,}"
    return "another time" if found == "rewritten" else "touched, and no checksum of it was taken"


def _code_of(spec: JobSpec) -> dict[str, str]:
    """A checksum of the code of each aggregate and of the mapper, by its name."""
    code = {}
    for function in {call.function for call in spec.aggregates.values()}:
        if isinstance(REGISTRY[function], NativeAggregate):
            code["native aggregates"] = _checksum_of(str(native_aggregates.__file__), whole_folder=True)
        else:
            code[function] = _registered(ENTRY_POINT_GROUP, function)
    if spec.map is not None and spec.map.mapper is not None:
        code[spec.map.mapper] = _registered(MAPPERS, spec.map.mapper)
    return code


def _registered(group: str, name: str) -> str:
    """A checksum of the package that an entry point leads to, or of its module if it is in none."""
    point = next(one for one in entry_points(group=group) if one.name == name)
    found = importlib.util.find_spec(point.module)
    if found is None or not found.origin:
        return point.value
    return _checksum_of(found.origin, whole_folder="." in point.module or bool(found.submodule_search_locations))


def _checksum_of(path: str, *, whole_folder: bool) -> str:
    files = sorted(Path(path).parent.rglob("*.py")) if whole_folder else [Path(path)]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()
