"""The input of a job with a window: its parts, what changed in each since its states were made, and the units of that.

All files of the window are listed, and none is opened that the states know already.
"""

import datetime as dt
import hashlib
import importlib.util
import posixpath
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path

from skewless.aggregates.python_aggregate import ENTRY_POINT_GROUP
from skewless.documents.job import Source, Unit
from skewless.documents.window import MOST_REASONS, JobWindow, WindowPart, WindowSpan
from skewless.errors import DocumentError, InputError, RunDirectoryError, SpecError
from skewless.mapping import GROUP as MAPPERS
from skewless.publication.places import beside_output
from skewless.spec.part import Part, part_place, parts_between, parts_until
from skewless.spec.result import Window
from skewless.spec.spec import JobSpec
from skewless.standing.parts import FoundFile, counted_files, follow_rewrites, keep_part, plan_part
from skewless.standing.states_store import (
    Numbered,
    StatesStore,
    code_alone,
    fingerprint_of,
    open_states,
    other_fingerprints,
    why_anew,
)
from skewless_spark.aggregates import REGISTRY
from skewless_spark.aggregates import native as native_aggregates
from skewless_spark.aggregates.binding import concatenable, serves_instead
from skewless_spark.aggregates.definition import NativeAggregate
from skewless_spark.sources import input_columns
from skewless_spark.sources.formats.input_files import in_threads
from skewless_spark.sources.input_columns import common_types, fitted, wider_types, widest
from skewless_spark.sources.lake.table_inputs import LakeTable
from skewless_spark.sources.listing import Listing, declared_types, list_input
from skewless_spark.sources.locations import input_location, output_location, resolved
from skewless_spark.windows.part_files import (
    PartFiles,
    TablePart,
    TableRewrites,
    named_files,
    parts_of_table,
    sees_order,
    values_of,
)


@dataclass(frozen=True)
class ReadColumns:
    """What a job reads of its input."""

    names: tuple[str, ...]
    """The columns of files and of folders that it reads."""
    of_files: Mapping[str, str]
    """The types of those of the files, and of one that shows the number of rows if it reads none."""
    shaping: Mapping[str, str]
    """The types of all that may shape a state."""
    required: Container[str]
    declared: Container[str]

    @classmethod
    def of(cls, spec: JobSpec, source: Source) -> "ReadColumns":
        """Those of a job, from the source with the columns that it reads."""
        kinds = {**source.columns, **source.partition_columns}
        evolves = spec.input.missing_columns == "evolve" or spec.input.format == "catalog"  # the catalog has told them
        return cls(
            source.reads,
            source.columns,
            {name: kinds[name] for name in source.reads if name in kinds},
            () if evolves else {*source.reads},
            spec.input.columns or {},
        )

    def fitted(self, listing: Listing, first: str = "") -> tuple[Unit, ...]:
        """The units of some files, with what these lack.

        Args:
            first: the file whose types are wanted; by default the first of these.
        """
        like = posixpath.basename(first or next(iter(listing.own), ""))

        def told(name: str) -> str:
            return "the spec declares it" if name in self.declared else f"in {like}"

        return fitted(listing.units, listing.own, self.of_files, self.required, told)


def check_window(spec: JobSpec, where: str) -> None:
    """Refuse aggregates whose states cannot be merged over parts, not even in their order."""
    if not spec.covered.lengths:
        return
    for name, call in spec.aggregates.items():
        definition, at = REGISTRY[call.function], f"{where}, aggregate {name!r}"
        if not concatenable(definition):
            serves = serves_instead(definition)
            define = "let its merge take the state of the rows that come next, and declare concatenable=True"
            hint = f"{serves} could serve" if serves else f"{define} (docs/write_an_aggregate.md)"
            if isinstance(definition, NativeAggregate):
                hint = "take one of docs/aggregates.md, or leave the window out"
            raise SpecError(at, "an aggregate whose states can be merged, with a window", repr(call.function), hint)


@dataclass(frozen=True)
class WindowInput:
    """The files of all parts of a window."""

    spec: JobSpec
    asked: Window
    path: str
    """The resolved path of the run's own part."""
    parts: tuple[PartFiles | TablePart, ...]
    """The parts that the window should have, oldest first, the run's own the last. Some have no files."""
    partitions: dict[str, str]
    """Spark SQL type of each partition column, from the values of all parts."""
    sample: Listing
    """The listing of one file of the newest part, or of all, which tells the columns of all."""
    table: LakeTable | None = None
    """That the files are of, if they are of one."""
    undated: int = 0
    """Files of the input that are of no part."""

    @classmethod
    def found(cls, spec: JobSpec, asked: Window, last: Part, root: str, where: str) -> "WindowInput":
        """Find the files of a window; an ``InputError`` if the run's own part has no files."""
        length, timezone = asked.lengths[-1], spec.schedule.timezone
        wanted = parts_until(last, length, timezone) if length else None
        path = input_location(spec, last, root, where)
        if spec.input.pinned:
            table = LakeTable.pinned(spec.input, last, root, path)
            of_table, undated = parts_of_table(table, str(spec.input.parts), last, wanted)
            path = table.snapshot.location
            cls._require_some(last, of_table[-1], str(table.snapshot.table), undated)
            sample = table.listing(1.0, ())
            partitions = sample.source.partition_columns
            return cls(spec, asked, path, tuple(of_table), partitions, sample, table, undated)
        parts, undated = named_files(spec, last, wanted, root, where)
        cls._require_some(last, parts[-1], path, undated)
        paths = [file for one in parts for file in one.inner]
        values = [value for one in parts for value in values_of(one)]
        newest = parts[-1]
        kept = _kept_types(spec, root)
        partitions = input_columns.types_of(paths, values, declared_types(spec.input), kept)
        # One file tells the columns of all, unless files may lack some.
        some = len(newest) if spec.input.missing_columns == "evolve" else 1
        sample = list_input(spec.input, newest.location, 1.0, list(newest.inner.values())[:some], partitions)
        found = cls(spec, asked, path, tuple(parts), partitions, sample, undated=undated)
        known = [{name: kind for name, kind in one.items() if name not in partitions} for one in kept]
        return found.with_types(common_types([sample.source.columns, *known]))

    @staticmethod
    def _require_some(last: Part, newest: PartFiles | TablePart, path: str, undated: int) -> None:
        if not len(newest):
            others = f", and {undated:,} without a day" if undated else ""
            raise InputError(
                f"part {last.name}", "files of the part that the run computes", f"none{others} at {path}",
                "check the path, or wait until they are there",
            )  # fmt: skip

    def with_types(self, wider: Mapping[str, str]) -> "WindowInput":
        """The same with wider types of some columns of the files."""
        source = self.sample.source
        columns = {name: widest(kind, wider.get(name, kind)) or kind for name, kind in source.columns.items()}
        sample = replace(self.sample, source=source.model_copy(update={"columns": columns}))
        return replace(self, sample=sample)

    def changes(
        self, types: Mapping[str, str], root: str, read: ReadColumns, lookups: Mapping[str, str]
    ) -> tuple[JobWindow, tuple[Unit, ...]]:
        """Compare each part with its states; the window of the job, and the units that are to be reduced.

        Args:
            lookups: checksums of those whose changes make all parts anew.

        Raises:
            InputError: a file lacks one of these columns, or has it in another type; or an older part changed, and the
                spec does not allow it.
            WiderColumns: an older part has a column in a wider type.
        """
        spec = self.spec
        fields = self.table.snapshot.fields(read.names) if self.table else None
        inputs = read.shaping if spec.map else {}
        fingerprint = fingerprint_of(spec, types, _code_of(spec), fields, inputs, lookups)
        location = states_location(spec, root)
        store = open_states(location, fingerprint)
        parts, missing, units = list[WindowPart](), set[str](), list[Unit]()
        needed = self._with_kept_ones(store)
        newest = list(in_threads(lambda one: store.newest(one.part.name), needed))
        counted = counted_files(known.version for known, _ in newest if known)
        states_of = (file for known, _ in newest if known for file in known.version.files)
        rewrites = TableRewrites.since(spec, needed, states_of)
        for one, (known, faults) in zip(needed, newest, strict=True):
            if not len(one) and (known is None or self.asked.late != "ignore"):
                missing.add(one.part.name)
                continue
            standing, rewritten = known, 0
            if known is not None and rewrites is not None:
                standing, rewritten = follow_rewrites(known, rewrites.of_part(one.part), rewrites.units)
            part, of_part = self._changed(one, standing, len(units), counted, read)
            part = part.model_copy(update={"rewritten": rewritten})
            parts.append(part.model_copy(update={"reasons": (*faults, *part.reasons)[:MOST_REASONS]}))
            units += of_part
        missing |= self._between(parts)
        begins = "" if store.parts() else why_anew(location, fingerprint)
        window = JobWindow(
            store=str(store),
            fingerprint=fingerprint.name,
            shapes=fingerprint.shapes,
            parts=tuple(parts),
            windows=self._spans(parts),
            begins=begins,
            undated=self.undated,
        ).with_missing(missing)
        if missing and self.asked.missing == "fail":
            raise InputError(
                f"the window of part {self.parts[-1].part.name}", "files of each part",
                f"none of {window.missing_words}", "wait until they are there, or set missing: allow",
            )  # fmt: skip
        return window, tuple(units)

    def _with_kept_ones(self, store: StatesStore) -> list[PartFiles | TablePart]:
        """The parts of the window; where late changes are ignored, with those that have vanished since."""
        last = self.parts[-1]
        if self.asked.lengths[-1] is not None or self.asked.late != "ignore":
            return list(self.parts)
        kept = {part: last.empty(part) for part in map(Part.named, store.parts())}
        parts = {part: one for part, one in kept.items() if part < last.part} | {one.part: one for one in self.parts}
        return [parts[part] for part in sorted(parts)]

    def _between(self, parts: Sequence[WindowPart]) -> set[str]:
        if self.asked.lengths[-1] is not None:
            return set()
        known = {part.name for part in parts}
        all_parts = parts_between(Part.named(parts[0].name), self.parts[-1].part, self.spec.schedule.timezone)
        return {part.name for part in all_parts} - known

    def _spans(self, parts: Sequence[WindowPart]) -> tuple[WindowSpan, ...]:
        last, timezone = self.parts[-1].part, self.spec.schedule.timezone
        oldest = [part_place(parts_until(last, length, timezone)[0]) if length else 0 for length in self.asked.lengths]
        return tuple(
            WindowSpan(length=length, first=sum(part.place < place for part in parts))
            for length, place in zip(self.asked.lengths, oldest, strict=True)
        )

    def _changed(
        self,
        one: PartFiles | TablePart,
        known: Numbered | None,
        first: int,
        counted: Mapping[FoundFile, int],
        read: ReadColumns,
    ) -> tuple[WindowPart, tuple[Unit, ...]]:
        found, own = one.found(), one.part == self.parts[-1].part
        if self.asked.late == "ignore" and known is not None and not own:
            kept = keep_part(one.part, found, known, one.difference, lambda paths: self._counted(one, paths), counted)
            return kept.model_copy(update={"units": (first, first)}), ()
        part, units = plan_part(
            one.part, found, known, lambda paths: self._units(one, paths, read), one.difference, first,
            in_order=sees_order(self.spec),
        )  # fmt: skip
        if self.asked.late == "fail" and known is not None and part.changed and not own:
            raise InputError(
                f"part {part.name}", "an older part that has not changed", part.reasons[0],
                "set late: recompute, or restore the part",
            )  # fmt: skip
        return part, units

    def _counted(self, one: PartFiles | TablePart, paths: Sequence[str]) -> tuple[Unit, ...]:
        try:
            return one.listing(self.spec.input, 1.0, paths, self.partitions).units
        except InputError:
            return ()

    def _units(self, one: PartFiles | TablePart, paths: Sequence[str], read: ReadColumns) -> tuple[Unit, ...]:
        """The units of some files of a part, which have the columns that are read in the types of all."""
        if not paths:
            return ()
        share = min(self.spec.routing.waves) / sum(self.spec.routing.waves)
        listing = one.listing(self.spec.input, share, paths, self.partitions)
        wider = wider_types(listing.own, {n: kind for n, kind in read.of_files.items() if n not in read.declared})
        if wider:
            raise WiderColumns(wider)
        units = read.fitted(listing, next(iter(self.sample.own), ""))
        want, came = self.sample.source.columns, {} if listing.own else listing.source.columns
        # A header is that of all files, as it says where in a line a column is; JSON names its fields itself.
        by_name = listing.own or listing.source.format == "json"
        names = [name for name in read.names if name in came] if by_name else {**want, **came}
        odd = next((name for name in names if want.get(name) != came.get(name)), None)
        if odd is not None:
            raise InputError(
                f"part {one.part.name}",
                f"column {odd!r} of type {want.get(odd, 'none')} as in {self.parts[-1].part.name}",
                f"type {came.get(odd, 'none')}", "write all files of an input with one schema",
            )  # fmt: skip
        return units


class WiderColumns(Exception):  # noqa: N818  # no error: the window is looked at once more
    """Some columns of an older part are wider than in the newest one."""

    def __init__(self, types: Mapping[str, str]) -> None:
        super().__init__(str(types))
        self.types = types


def states_location(spec: JobSpec, root: str) -> str:
    """The folder of all states of a job, whatever part a run computes."""
    if spec.covered.states:
        return posixpath.join(resolved(spec.covered.states, root, "field window.states"), spec.name)
    output_path = output_location(spec, Part(dt.date(1970, 1, 1)), root, "spec")  # it names no part, see ``JobSpec``
    return posixpath.join(beside_output(spec, output_path, root), "states", spec.name)


def _kept_types(spec: JobSpec, root: str) -> list[dict[str, str]]:
    """The types of input columns in states of the same job, one mapping for each fingerprint that can be read."""
    now = fingerprint_of(spec, {}, _code_of(spec))
    with suppress(DocumentError, RunDirectoryError):
        return [one.types_of_input for one in other_fingerprints(states_location(spec, root), "") if one.is_like(now)]
    return []


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
    point = next(one for one in entry_points(group=group) if one.name == name)
    found = importlib.util.find_spec(point.module)
    if found is None or not found.origin:
        return point.value
    return _checksum_of(found.origin, whole_folder="." in point.module or bool(found.submodule_search_locations))


def _checksum_of(path: str, *, whole_folder: bool) -> str:
    files = sorted(Path(path).parent.rglob("*.py")) if whole_folder else [Path(path)]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\0{code_alone(file.read_bytes())}\0".encode())
    return digest.hexdigest()
