"""A job from a spec: the input listed, its columns checked, the waves cut."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from skewless.documents.job import InputFacts, Job, Lookup, Source, Unit
from skewless.errors import InputError, SpecError
from skewless.history import asked_columns, asks_rows, check_input_expectations
from skewless.planner.first_plan import first_ring
from skewless.query.rows import condition_of_input
from skewless.routing.plan import cut_waves
from skewless.run.folder import absolute_root
from skewless.run.step_times import timed
from skewless.spec.input import OWN_PREFIX
from skewless.spec.part import Part
from skewless.spec.spec import JobSpec
from skewless_spark.aggregates.binding import (
    argument_columns,
    assumed_types,
    check_calls,
    check_spark_calls,
    check_types,
)
from skewless_spark.aggregates.keys import KEY_TYPES
from skewless_spark.mapping import bound_mapper, map_types
from skewless_spark.mapping.query_mapper import required_result, types_over_states
from skewless_spark.quality.expectations import check_expectations
from skewless_spark.result.merge import result_schema
from skewless_spark.result.output_formats import refuse_nested, refuse_without_order
from skewless_spark.session.session import build_session, session_in_jvm
from skewless_spark.session.versions import to_arrow
from skewless_spark.sources.formats.column_types import EMPTY_KEY_TYPE, UNSUPPORTED, fields_within
from skewless_spark.sources.formats.input_files import FILE_COLUMNS
from skewless_spark.sources.input_columns import nearest_column
from skewless_spark.sources.lake.table_inputs import LakeTable, conditions_of
from skewless_spark.sources.listing import Listing, list_input, list_table
from skewless_spark.sources.locations import check_kept, check_lookup, check_output, input_location, output_location
from skewless_spark.sources.unit_reading import read_units, source_rows
from skewless_spark.windows.found import ReadColumns, WiderColumns, WindowInput, check_window, states_location


def check_spec(spec: JobSpec, where: str) -> None:
    """Check all of a spec that can be checked without its input; a ``SpecError`` if the spec cannot be run."""
    check_calls(spec, where)
    check_expectations(spec, where)
    check_input_expectations(spec, where)
    first_ring(spec.routing, where)
    if spec.map is not None and spec.map.mapper is not None:
        bound_mapper(spec.map, where)
    check_window(spec, where)


def needs_session(spec: JobSpec) -> bool:
    """Whether only Spark knows columns (of a table, a select list, results in CSV or an order), or rows and nulls."""
    of_result = spec.output.format == "csv" or any(column.name in spec.aggregates for column in spec.output.order)
    of_input = spec.input.format == "catalog" or (spec.input.format in UNTOLD and asks_rows(spec))
    fields = spec.input.format == "json" and spec.input.columns is None
    of_calls = any(call.function == "spark" for call in spec.aggregates.values())
    return of_calls or of_result or of_input or fields or bool(spec.query or spec.result or (spec.map and spec.map.sql))


def freeze(
    spec: JobSpec, date: dt.date, root: str, where: str, *, hour: str | None = None, master: str | None = None
) -> Job:  # fmt: skip
    """List the input, check the spec against its columns, and cut the waves.

    Args:
        master: of Spark, if it is needed and this process has no session.

    Raises:
        SpecError: the spec cannot be run.
        InputError: the input is missing, or it is not what the spec says.
    """
    part = Part(date, hour)
    spark = None
    if needs_session(spec):
        with timed("start or find the session"):
            spark = SparkSession.getActiveSession() or build_session(f"skewless {spec.name}", master)
    of_parts = WindowInput.found(spec, spec.window, part, root, where) if spec.window else None
    while True:
        try:
            job = _frozen(spec, part, root, where, spark, of_parts, master)
            if job.spec == spec or spark is None:
                return job
            counts = key_counts(spark, job)
            if 0 < len(counts) <= counts.sum() * _FEW_STATES:
                return job
            return _frozen(spec, part, root, where, spark, of_parts, master, priced=True)
        except WiderColumns as wider:  # in older parts than the newest; each time they are wider
            of_parts = of_parts and of_parts.with_types(wider.types)


def _frozen(
    spec: JobSpec, part: Part, root: str, where: str, spark: SparkSession | None, of_parts: WindowInput | None,
    master: str | None, *, priced: bool = False,
) -> Job:  # fmt: skip
    input_path, listing = (of_parts.path, of_parts.sample) if of_parts else listed(spark, spec, part, root, where)
    at, beside = f"{where}, input {input_path}", _Lookups.listed(spark, spec, part, root, where)
    spec = spec if priced else beside.joined_where_large(spark, spec)
    arguments = argument_columns(spec)
    used = list(dict.fromkeys([*spec.key, *arguments]))
    # An empty input has the columns that the spec declares, which are enough or are not.
    found = listing.types if listing.units or spec.map is not None or listing.types.keys() >= set(used) else {}
    reads: tuple[str, ...] = ()
    mapped = None
    asked = required_result(spark, spec, found, beside.types, where) if spark and spec.query and found else None
    if spec.map is not None and found:
        mapped = map_types(spark, spec.map, found, beside.types, at)
        found, reads = mapped.types, mapped.reads
    # An input without files has no schema, but its empty result needs one.
    types = found or assumed_types(spec) | dict.fromkeys(spec.key, EMPTY_KEY_TYPE) | listing.types
    for column in spec.key:
        _check_key(column, types, at, "with state: merge, rows are joined in place of states" if spec.joined else "")
    result_key_types, lookups = beside.pinned(spark, mapped.lookups if mapped else {}, spec, types, where)
    algebra = check_types(spec, types, at)
    if spark is not None:
        check_spark_calls(spark, spec, types, at)
    refuse_twins(used, types, at)
    refuse_twins([name for name in reads if name not in FILE_COLUMNS], listing.types, at)
    output_path = output_location(spec, part, root, where)
    check_output(output_path, input_path, listing, where, spec)
    for _, path, files in beside.found.values():
        check_lookup(output_path, path, files, where)
    if spec.covered.lengths:
        check_kept(spec, root, {"the states in": states_location(spec, root)}, where)
    shares = spec.routing.waves
    key_types = {column: types[column] for column in spec.key}
    column_types = {column: types[column] for column in arguments if column not in spec.key}
    source = _read_of(listing.source, reads if spec.map else tuple(used))
    wanted = ReadColumns.of(spec, source)
    if of_parts is not None:
        # States depend on what rows are joined to, not on what results are.
        joined = (one for one in lookups if one.name.lower() in spec.below and spec.lookups[one.name].as_of == "run")
        anew = {one.name: one.identity for one in joined}
        window, units = of_parts.changes(key_types | column_types, root, wanted, anew)
        mine = window.of_part(part.name)
        kept_rows, own = mine.base_rows, units[slice(*mine.units)]
    else:
        window, units = None, wanted.fitted(listing)
        kept_rows, own = 0, units
    if mapped is not None:
        source = source.model_copy(update={"made": mapped.made, "condition": mapped.condition})
    units = _of_read_columns(units, source)
    # Waves keep the order of the input where an aggregate depends on it or states are forwarded.
    in_order = spec.state == "forward" or any(one.ordered for one in algebra.values())
    job = Job(
        spec=spec,
        date=part.date,
        hour=part.hour,
        input_path=input_path,
        output_path=output_path,
        root=absolute_root(root),
        units=units,
        waves=cut_waves([unit.rows for unit in units], shares, in_order=in_order),
        key_types=key_types,
        column_types=column_types,
        result_key_types=result_key_types,
        algebra=algebra,
        source=source,
        lookups=lookups,
        window=window,
    )
    if spec.quality.input:
        job = job.model_copy(update={"facts": _facts(job, listing, kept_rows, own, master)})
    if spark is not None:
        _check_result(spark, job, asked, where)
    return job


#: Where states are joined in place of rows, at most so many for a row, in the first rows of some units. Q3 and Q10 of
#: JCC-H at scale 10, with 0.25 and 0.39, took 1.5 and 1.4 times as long as with joined rows.
_FEW_STATES, _SAMPLED_UNITS, _SAMPLED_ROWS = 0.1, 4, 1 << 16


def key_counts(spark: SparkSession, job: Job) -> npt.NDArray[np.int64]:
    """How often the keys of the first mapped rows of some units occur, counted by Spark."""
    ordinals = range(0, len(job.units), max(1, len(job.units) // _SAMPLED_UNITS))[:_SAMPLED_UNITS]
    units = list(job.units)
    for at in ordinals:
        if span := units[at].span:  # what reads row groups in Python takes offence at an end before theirs
            units[at] = units[at].model_copy(update={"span": (span[0], span[0] + 1), "counted": False})
    rows = read_units(spark, job.model_copy(update={"units": units}), ordinals, job.spec.key, located=False)
    if all(units[at].span is None for at in ordinals):
        rows = rows.limit(_SAMPLED_ROWS)
    of_keys = rows.groupBy(*(f"c{number}" for number in range(len(job.spec.key)))).count()
    return to_arrow(of_keys.select("count"))["count"].to_numpy()


class _Lookups(NamedTuple):
    """The lookups of a job, by their names, each with a spec that reads it alone, its path and its listing."""

    found: dict[str, tuple[JobSpec, str, Listing]]

    @classmethod
    def listed(cls, spark: SparkSession | None, spec: JobSpec, part: Part, root: str, where: str) -> Self:
        found = {}
        for name, table in spec.lookups.items():
            alone = spec.model_copy(update={"input": table, "map": None, "window": None})
            path, listing = listed(spark, alone, part, root, where, cut=False)
            if not listing.types:
                raise InputError(f"{where}, table {name!r}", "files that tell its columns", f"none in {path}")
            found[name] = alone, path, listing
        return cls(found)

    def joined_where_large(self, spark: SparkSession | None, spec: JobSpec) -> JobSpec:
        """A spec whose states are joined in place of its rows, if Spark would not broadcast one of the lookups."""
        joined = spec.joining.joined
        if joined is None or spark is None:
            return spec
        limit = session_in_jvm(spark).sessionState().conf().autoBroadcastJoinThreshold()
        sizes = (
            sum({unit.path: unit.size_bytes for unit in listing.units}.values())
            for name, (_, _, listing) in self.found.items() if name.lower() in joined.lookups
        )  # fmt: skip
        return spec.joining if any(size > limit >= 0 for size in sizes) else spec

    @property
    def types(self) -> dict[str, dict[str, str]]:
        return {name: listing.types for name, (_, _, listing) in self.found.items()}

    def pinned(
        self, spark: SparkSession | None, reads: Mapping[str, tuple[str, ...]], spec: JobSpec, types: Mapping[str, str],
        where: str,
    ) -> tuple[dict[str, str], tuple[Lookup, ...]]:  # fmt: skip
        """Each with the columns that are read of it, or some column by which its rows are counted.

        Where states are joined, the types of the keys that they then have come first.

        Args:
            reads: by the rows of the input.
            types: of these rows.
        """
        keys, joined = dict[str, str](), spec.joined
        if spark is not None and joined is not None:
            own = {name: types[name] for name in spec.key}
            keys, of_states = types_over_states(spark, joined.query, own, self.types, f"{where}, field query")
            for column in keys:
                _check_key(column, keys, f"{where}, field query")
            of_states = {name: of_states[name] for name in self.found if name.lower() in joined.lookups}
            reads = {**reads, **{name: (*reads.get(name, ()), *more) for name, more in of_states.items()}}
        above = spec.result.beside if spec.result is not None else ()
        lookups = []
        for name, (alone, path, listing) in self.found.items():
            types = listing.types
            readable = [one for one, kind in types.items() if not kind.startswith(UNSUPPORTED)]
            names = tuple(one for one in types if one in reads.get(name, ()))
            if name.lower() in above:
                names = tuple(one for one in readable if one not in FILE_COLUMNS and "." not in one)
            refuse_twins(names, types, f"{where}, table {name!r}")
            source = _read_of(listing.source, names or tuple(one for one in readable if one not in FILE_COLUMNS)[:1])
            units = _of_read_columns(ReadColumns.of(alone, source).fitted(listing), source)
            # So that Spark sees how little of a file is read, and broadcasts it.
            known = {one: kind for one, kind in listing.source.columns.items() if one in readable}
            if len({one.lower() for one in known}) == len(known):
                source = source.model_copy(update={"columns": known | source.columns})
            lookups.append(Lookup(name=name, input_path=path, source=source, units=units))
        return keys, tuple(lookups)


def _check_result(spark: SparkSession, job: Job, asked: StructType | None, where: str) -> None:
    """Check the columns of the result, as far as the spec says more of them than their names."""
    spec = job.spec
    if asked is None and spec.result is None and spec.output.format != "csv" and not spec.output.sort:
        return
    result = result_schema(spark, job, where)
    for field in asked or ():
        if field.dataType.simpleString() != (own := result[field.name].dataType.simpleString()):
            required = f"a result of type {field.dataType.simpleString()}, as Spark has it"
            raise SpecError(f"{where}, field query, column {field.name!r}", required, own, "cast it in the query")
    if spec.output.format == "csv":
        refuse_nested(result, where)
    refuse_without_order(result, spec, where)


def listed(
    spark: SparkSession | None, spec: JobSpec, part: Part, root: str, where: str, *, cut: bool = True
) -> tuple[str, Listing]:
    """The location of the input of a job without states, and its listing; what is not cut is in no wave."""
    share = min(spec.routing.waves) / sum(spec.routing.waves) if cut else None
    # No footer counts those of what Spark tells of a file.
    nulls_of = [name for name, nulls in asked_columns(spec).items() if nulls and name not in FILE_COLUMNS]
    if spec.input.format == "catalog" and spark is not None:
        return list_table(spark, spec.input, share)
    input_path = input_location(spec, part, root, where)
    if spec.input.pinned:
        text = spec.map.sql if spec.map else None
        conditions = partial(conditions_of, spark, condition_of_input(text) if text else None)
        table = LakeTable.pinned(spec.input, part, root, input_path, conditions)
        return table.snapshot.location, table.listing(share, nulls_of=nulls_of)
    return input_path, list_input(spec.input, input_path, share, nulls_of=nulls_of)


def _facts(job: Job, listing: Listing, kept_rows: int, units: tuple[Unit, ...], master: str | None) -> InputFacts:
    """What is known of the columns that the spec asks for, and of the rows of the run's own part.

    Args:
        kept_rows: of the part, in its kept states; behind a map, expectations of the number of rows are refused.
        units: all others of the part; of a table, without files that no row of the condition is in.
    """
    types, read = listing.types, listing.source.pinned
    left_out = bool(read and read.left_out)
    told = all(unit.counted for unit in units) and not left_out
    facts = InputFacts(
        columns={name: types[name] for name in asked_columns(job.spec) if name in types},
        nulls=listing.nulls,
        rows=kept_rows + sum(unit.rows for unit in units) if told else None,
    )
    columns = () if left_out else uncounted(job, facts, listing)
    if not columns:
        return facts
    return counted(reading(job, replace(listing, units=units), columns), facts, columns, kept_rows, master)


def reading(job: Job, listing: Listing, columns: tuple[str, ...]) -> Job:
    """A job without a map that reads some columns of the files of a listing."""
    source = _read_of(listing.source, columns)
    units = _of_read_columns(ReadColumns.of(job.spec, source).fitted(listing), source)
    return job.model_copy(update={"source": source, "units": units})


def _read_of(source: Source, reads: tuple[str, ...]) -> Source:
    """The source with only the columns that a job reads. A line of a csv is all of its columns."""
    inside = fields_within(source.columns)
    roots = tuple(dict.fromkeys(inside[name][0] if name in inside else name for name in reads))
    by_place = source.format == "csv" or (source.format == "orc" and any(one.startswith("_col") for one in roots))
    if by_place:
        return source.model_copy(update={"reads": roots})
    columns = {name: kind for name, kind in source.columns.items() if name in roots}
    # A job that reads only the paths of files needs some column to count rows by.
    readable = [one for one in source.columns.items() if not one[1].startswith(UNSUPPORTED)]
    some = columns or dict(readable[:1])
    return source.model_copy(update={"reads": roots, "columns": some})


def _of_read_columns(units: tuple[Unit, ...], source: Source) -> tuple[Unit, ...]:
    """Units without what they have otherwise in columns that the job does not read: Spark may then scan them."""
    return tuple(
        unit.model_copy(update={"inner": {name: own for name, own in unit.inner.items() if name in source.columns}})
        if unit.inner
        else unit
        for unit in units
    )


def _check_key(column: str, types: dict[str, str], at: str, hint: str = "") -> None:
    if column not in types:
        raise InputError(f"{at}, key", "an existing column", repr(column), nearest_column(column, types))
    if types[column].split("(")[0] not in KEY_TYPES:
        raise InputError(f"{at}, key", "a column that can be a key", f"{column!r} of type {types[column]}", hint)


def refuse_twins(used: Sequence[str], types: dict[str, str], at: str) -> None:
    """Refuse names that Spark confuses: it ignores case, has a column ``_metadata``, and sees ours beside them."""
    for column in used:
        twin = next((name for name in types if name != column and name.lower() == column.lower()), None)
        if twin is not None:
            raise InputError(
                at, "columns whose names differ in more than case", f"{column!r} and {twin!r}", "rename one"
            )
        if column.lower() == "_metadata" or column.lower().startswith(OWN_PREFIX):
            raise InputError(at, "a column name that Spark and Skewless do not use", repr(column), "rename it")


#: Formats whose files tell neither rows nor nulls, or no nulls.
UNTOLD = ("csv", "json", "orc", "text")


def uncounted(job: Job, facts: InputFacts, listing: Listing) -> tuple[str, ...]:
    """The columns whose nulls are asked for and not known, or one to count rows by if these are; else none."""
    types = {one: kind for one, kind in listing.types.items() if one not in FILE_COLUMNS}
    readable = [one for one, kind in types.items() if not kind.startswith(UNSUPPORTED)]
    nulls = [one for one, asked in asked_columns(job.spec).items() if asked and one in readable]
    lacking = tuple(one for one in nulls if one not in facts.nulls)
    by_rows = [one for one in readable if one in job.source.columns] or readable
    return lacking or (tuple(by_rows[:1]) if facts.rows is None and asks_rows(job.spec) else ())


def counted(job: Job, facts: InputFacts, columns: tuple[str, ...], before: int, master: str | None) -> InputFacts:
    """The facts with what Spark counts.

    Args:
        job: with the files and columns that are counted.
        before: rows of the part that need not be read, as its states are kept.
        master: of Spark, if this process has no session.
    """
    if not job.units:
        return facts.model_copy(update={"nulls": {**facts.nulls, **dict.fromkeys(columns, 0)}, "rows": before})
    spark = SparkSession.getActiveSession() or build_session(f"skewless {job.spec.name}", master)
    read = source_rows(spark, job, range(len(job.units)), columns, located=False)
    null = [F.count_if(F.col(f"s{number}").isNull()) for number in range(len(columns))]
    rows, *nulls = read.agg(F.count(F.lit(1)), *null).collect()[0]
    told = {**dict(zip(columns, nulls, strict=True)), **facts.nulls}
    return facts.model_copy(update={"nulls": told, "rows": before + rows})
