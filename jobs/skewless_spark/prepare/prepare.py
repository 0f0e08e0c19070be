"""Freezing a run: the spec bound to a date and to a listed input, waves cut, plan 0 written."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from skewless.documents.decision import Decision
from skewless.documents.job import Algebra, Job, Selected, Source
from skewless.errors import InputError, SkewlessError, SpecError, nearest
from skewless.planner.engine_choice import first_choice
from skewless.planner.first_plan import first_decision, plain_plan, sampled_plan, samples, warm_plan
from skewless.planner.forecast.key_sample import KeySample
from skewless.planner.plain_ring import first_plan, first_ring
from skewless.routing.plan import RoutingPlan
from skewless.routing.waves import cut_waves
from skewless.run.directory import RunDirectory
from skewless.run.publication import beside, draw_turn, turns_folder, with_turn
from skewless.spec.part import Part, resolve_path
from skewless.spec.spec import JobSpec
from skewless_leases import Turns, open_store
from skewless_spark.aggregates.binding import argument_columns, assumed_types, check_calls, check_types
from skewless_spark.aggregates.key_text import KEY_TYPES
from skewless_spark.mapping import map_types, python_mapper
from skewless_spark.prepare import earlier_runs
from skewless_spark.prepare.key_sample import sample_keys
from skewless_spark.quality.validate import check_expectations
from skewless_spark.result.merge import result_schema
from skewless_spark.result.output_formats import refuse_nested
from skewless_spark.session.session import build_session
from skewless_spark.sources import EMPTY_KEY_TYPE, UNSUPPORTED, Listing, list_input
from skewless_spark.sources.tables import list_table
from skewless_spark.sources.uris import FILE_COLUMNS


def check_spec(spec: JobSpec, where: str) -> None:
    """Everything that can be said of a spec without its input.

    Raises:
        SpecError: one sentence.
    """
    check_calls(spec, where)
    check_expectations(spec, where)
    first_ring(spec.routing, where)
    if spec.map is not None and spec.map.mapper is not None:
        python_mapper.bound(spec.map, where)


def needs_session(spec: JobSpec) -> bool:
    """Whether only Spark can say what the columns are: of a table, of a select list, or of a result for CSV."""
    csv = spec.output.format == "csv"
    return csv or spec.input.table is not None or (spec.map is not None and spec.map.select is not None)


def _session(spec: JobSpec) -> SparkSession | None:
    return (
        (SparkSession.getActiveSession() or build_session(f"skewless {spec.name} prepare"))
        if needs_session(spec)
        else None
    )


def prepare(
    run: RunDirectory, spec: JobSpec, date: dt.date, root: str, where: str = "spec", *, hour: str | None = None
) -> Job:
    """Freeze a run, or find that it was frozen from the same spec for the same part of the input.

    A new run's job names the earlier runs that its plan 0 is made from, so that a retry finds the
    same ones. What was written stands: the job, and plan 0.

    Args:
        run: its directory, new or of an earlier attempt.
        spec: the spec with its overrides applied.
        date: the day that is computed, under which the result is published.
        root: where relative paths of the spec start.
        where: the spec's file, for messages.
        hour: of a job of hours, the hour of that day (``Part.hour``).

    Raises:
        SpecError: the spec cannot be run, or the directory belongs to another spec or part.
        InputError: the input is missing or not what the spec says.
    """
    check_spec(spec, where)
    part = Part(date, hour)
    if not run.exists("job.json"):
        output_path = _output_path(spec, part, root, where)
        _check_apart(output_path, _input_path(spec, part, root, where) if spec.input.table is None else "", where)
        turns = Turns(open_store(turns_folder(output_path)))
        # Before the input is listed: see ``draw_turn``.
        turn = draw_turn(output_path, turns, allow_gap=spec.output.allow_gap)
        job = with_turn(freeze(spec, date, root, where, hour=hour), turn, turns)
        # Of two who prepare one run at once the first to write counts: they may find different earlier runs.
        run.write_once("job.json", job.model_copy(update={"warm_from": earlier_runs.last_two(run, spec)}))
    job = _same(run, spec, part, root)
    if not run.exists("plans/0000.json"):
        # The decision first: killed between the two documents, it stands, whatever has become of what it was made from.
        if not run.exists("decisions/0000.json"):
            run.write_once("decisions/0000.json", _first_decision(job))
        run.enact(run.decision(0))
    return job


def _first_decision(job: Job) -> Decision:
    """The engine of stage 0 and its plan, from the earlier runs that the job names or from a sample of its keys."""
    sample = sample_keys(job) if job.spec.engine == "auto" else None
    choice = first_choice(job, sample.key_counts if sample else None)
    plan = first_plan(job) if choice.engine == "combine" else _staged_plan_0(job, sample)
    return first_decision(job, plan, choice)


def _staged_plan_0(job: Job, sample: KeySample | None) -> RoutingPlan:
    """From the earlier runs that the job names; else from a sample, taken now if it was not; else the plain ring."""
    plan = _from_earlier(job) if job.warm_from else first_plan(job)
    if plan.expected_rows or not samples(job.spec):
        return plan
    sample = sample or sample_keys(job)
    return sampled_plan(job, plan, sample) if sample else plan


def _from_earlier(job: Job) -> RoutingPlan:
    try:
        last, *before = [earlier_runs.last_histogram(location) for location in job.warm_from]
    except (SkewlessError, OSError) as err:
        return plain_plan(job, f"an earlier run that it was to be made from cannot be read any more ({err})")
    return warm_plan(job, last, before[0] if before else None)


def freeze(spec: JobSpec, date: dt.date, root: str, where: str, *, hour: str | None = None) -> Job:
    """List the input, hold the spec to its columns, and cut the waves.

    Raises:
        InputError: the input is missing or not what the spec says.
    """
    part = Part(date, hour)
    spark = _session(spec)
    input_path, listing = _listed(spark, spec, part, root, where)
    at = f"{where}, input {input_path}"
    found: dict[str, str] = listing.types
    reads: tuple[str, ...] = ()
    selected: tuple[Selected, ...] = ()
    if spec.map is not None and found:
        found, reads, selected = map_types(spark, spec.map, found, at)
    types = found or _assumed_types(spec)
    for column in spec.key:
        _check_key(column, types, at)
    algebra = check_types(spec, types, at)
    arguments = argument_columns(spec)
    used = list(dict.fromkeys([*spec.key, *arguments]))
    _refuse_twins(used, types, at)
    _refuse_twins([name for name in reads if name not in FILE_COLUMNS], listing.types, at)
    output_path = _output_path(spec, part, root, where)
    _check_output(output_path, input_path, listing, where)
    shares = spec.routing.waves
    job = Job(
        spec=spec,
        date=part.date,
        hour=part.hour,
        input_path=input_path,
        output_path=output_path,
        units=listing.units,
        waves=cut_waves([unit.rows for unit in listing.units], shares, in_order=_in_order(spec, algebra)),
        key_types={column: types[column] for column in spec.key},
        column_types={column: types[column] for column in arguments if column not in spec.key},
        algebra=algebra,
        source=_read_of(listing.source, reads if spec.map else tuple(used)).model_copy(update={"selected": selected}),
    )
    if spark is not None and spec.output.format == "csv":
        refuse_nested(result_schema(spark, job), where)
    return job


def _in_order(spec: JobSpec, algebra: Mapping[str, Algebra]) -> bool:
    """Whether a wave may only come after all rows of the waves before: where somebody sees the order."""
    return spec.state == "forward" or any(one.ordered for one in algebra.values())


def _listed(spark: SparkSession | None, spec: JobSpec, part: Part, root: str, where: str) -> tuple[str, Listing]:
    """Where the input is, and its listing."""
    share = min(spec.routing.waves) / sum(spec.routing.waves)
    if spec.input.table is not None and spark is not None:
        return list_table(spark, spec.input, share)
    input_path = _input_path(spec, part, root, where)
    return input_path, list_input(spec.input, input_path, share)


def _read_of(source: Source, reads: tuple[str, ...]) -> Source:
    """The source with the columns that a job reads; a csv and a JSON line have to be read as a whole."""
    if source.format in {"csv", "json"}:
        return source.model_copy(update={"reads": reads})
    columns = {name: kind for name, kind in source.columns.items() if name in reads}
    # Where only paths are read, rows are counted by some column.
    some = columns or dict(next(iter([[one] for one in source.columns.items() if _readable(one[1])]), []))
    return source.model_copy(update={"reads": reads, "columns": some})


def _readable(kind: str) -> bool:
    return not kind.startswith(UNSUPPORTED)


def _input_path(spec: JobSpec, part: Part, root: str, where: str) -> str:
    at = f"{where}, field input.path"
    return resolved(resolve_path(str(spec.input.path), part, at), root, at)


def _output_path(spec: JobSpec, part: Part, root: str, where: str) -> str:
    at = f"{where}, field output.path"
    return resolved(resolve_path(spec.output.path, part, at), root, at)


def resolved(path: str, root: str, at: str) -> str:
    """A path of a spec: absolute as it is, relative below the data root.

    Raises:
        SpecError: it is relative, and a symbolic link on the way leads out of the data root.
    """
    if "://" in path:
        return path
    base = Path(root).absolute()
    full = os.path.normpath(base / path)
    if not Path(path).is_absolute():
        led = os.path.realpath(full)
        if not Path(led).is_relative_to(os.path.realpath(base)):
            raise SpecError(
                at, f"a relative path that stays below the data root {base}", f"{path}, which leads to {led}",
                "write the absolute path, if that is meant",
            )  # fmt: skip
    return full


def _check_key(column: str, types: dict[str, str], at: str) -> None:
    if column not in types:
        raise InputError(f"{at}, key", "an existing column", repr(column), nearest(column, types))
    if types[column].split("(")[0] not in KEY_TYPES:
        raise InputError(f"{at}, key", "a column that can be a key", f"{column!r} of type {types[column]}")


def _refuse_twins(used: list[str], types: dict[str, str], at: str) -> None:
    """Spark does not tell names apart by their case, and has a hidden column of its own."""
    for column in used:
        twin = next((name for name in types if name != column and name.lower() == column.lower()), None)
        if twin is not None:
            raise InputError(
                at, "columns whose names differ in more than case", f"{column!r} and {twin!r}", "rename one"
            )
        if column.lower() == "_metadata":
            raise InputError(at, "a column name that Spark does not use itself", repr(column), "rename it")


def _check_output(output_path: str, input_path: str, listing: Listing, where: str) -> None:
    """A result among the input would be the next night's input."""
    at = f"{where}, field output.path"
    _check_apart(output_path, input_path, where)
    below = Path(output_path)
    # A pattern may also lead to versions that were published before.
    ours = (below, beside(output_path))
    if below.is_relative_to(input_path) or any(
        Path(unit.path).is_relative_to(one) for unit in listing.units for one in ours
    ):
        raise SpecError(at, f"a folder apart from the input {input_path}", output_path, "choose another folder")


def _check_apart(output_path: str, input_path: str, where: str) -> None:
    """What can be said before the input is listed; an object store cannot exchange folders yet."""
    at = f"{where}, field output.path"
    if "://" in output_path:
        raise SpecError(at, "a path of a local or shared file system", output_path)
    # Whatever symbolic links are on the way: what is written there would lie among the input.
    real, read = Path(os.path.realpath(output_path)), os.path.realpath(input_path)
    if input_path and "://" not in input_path and real.is_relative_to(read):
        raise SpecError(at, f"a folder apart from the input {input_path}", f"{output_path}", "choose another folder")


def _assumed_types(spec: JobSpec) -> dict[str, str]:
    """An input without files has no schema; its empty result needs one all the same."""
    return assumed_types(spec) | dict.fromkeys(spec.key, EMPTY_KEY_TYPE)


def _same(run: RunDirectory, spec: JobSpec, part: Part, root: str) -> Job:
    job = run.job()
    if job.spec != spec:
        differing = next(name for name in JobSpec.model_fields if getattr(job.spec, name) != getattr(spec, name))
        raise SpecError(
            f"run directory {run}", "the spec that it was begun with", f"one that differs in {differing!r}",
            "choose another --run-dir, or the spec as it was",
        )  # fmt: skip
    if job.part != part:
        raise SpecError(
            f"run directory {run}", f"the date that it was begun with, {job.part}", str(part),
            "choose another --run-dir, or that date",
        )  # fmt: skip
    input_path = job.input_path if spec.input.table else _input_path(spec, part, root, "spec")
    if (job.input_path, job.output_path) != (input_path, _output_path(spec, part, root, "spec")):
        raise SpecError(
            f"run directory {run}", f"the data root that it was begun with (input {job.input_path})", str(root),
            "choose another --run-dir, or that root",
        )  # fmt: skip
    return job
