"""Prepares a run: freezes the job, draws its turn, samples keys, and writes the first decision and plan 0."""

import datetime as dt
import math
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from skewless.documents.job import Job, Unit
from skewless.documents.quality import Check, InputChecks
from skewless.documents.stage_report import Decision
from skewless.errors import QualityError, SkewlessError, SpecError
from skewless.history import input_checks
from skewless.planner.engine_choice import combined_unseen, first_choice, to_be_found_out
from skewless.planner.first_plan import first_decision, first_plan, plain_plan, plans_from, sampled_plan, warm_plan
from skewless.planner.forecast.key_sample import KeySample, unit_spread
from skewless.publication.places import beside_output
from skewless.routing.plan import GOLDEN_SECTION, RoutingPlan
from skewless.run.directory import INPUT_CHECKS, RunDirectory
from skewless.run.folder import open_location
from skewless.run.step_names import last_step_of
from skewless.spec.part import Part
from skewless.spec.routing import ENGINES
from skewless.spec.spec import JobSpec
from skewless.standing.states_retention import pin
from skewless_lake.publication import drawn_turn, latest_turn
from skewless_spark.aggregates.keys import arrow_key_text
from skewless_spark.prepare import earlier_runs
from skewless_spark.prepare.earlier_runs import skipped_parts
from skewless_spark.prepare.freezing import check_spec, freeze, key_counts
from skewless_spark.session.session import slots_to_come
from skewless_spark.session.step_measures import JobsSeen
from skewless_spark.sources.formats.column_types import arrow_type_of
from skewless_spark.sources.formats.input_files import in_threads
from skewless_spark.sources.formats.parquet import odd_columns, old_columns, open_parquet
from skewless_spark.sources.locations import check_apart, check_kept, input_location, output_location
from skewless_spark.sources.worker_files import as_declared, read_unit, readable
from skewless_spark.states.job_columns import NULL_KEY


def prepare(
    run: RunDirectory, spec: JobSpec, date: dt.date, root: str, where: str = "spec", *, hour: str | None = None,
    master: str | None = None,
) -> Job:  # fmt: skip
    """Freeze a run, unless it is frozen already from the same spec for the same part of the input.

    The job names the earlier runs that plan 0 is made from, so that a retry uses the same ones. A job and a plan 0
    that have been written are never changed.

    Args:
        date: the day to compute, under which the result is published.
        root: where relative paths of the spec start.
        hour: the hour of that day, for an hourly job (``Part.hour``).
        master: of Spark, if it is needed and this process has no session.

    Raises:
        SpecError: the spec cannot be run, or the directory belongs to another spec or part.
        InputError: the input is missing, or it is not what the spec says.
        QualityError: the input is not what the spec expects of it.
    """
    spec = spec.of_run
    check_spec(spec, where)
    part = Part(date, hour)
    if not run.exists("job.json"):
        output_path = output_location(spec, part, root, where)
        check_apart(output_path, input_location(spec, part, root, where), where, spec)
        check_kept(spec, root, {"run directory": str(run)}, where)
        warm_from = earlier_runs.newest_in_tasks(run, spec, 2)
        publishes, job, shown, first = last_step_of(spec).publishes, None, 0, False
        with suppress(ImportError, OSError, ValueError):  # who draws a turn is told of it
            fs, turns = open_location(f"{beside_output(spec, output_path, root)}/turns")
            first = publishes and not fs.exists(turns)
        # Again if a prune came in between, or a later run that has published: the turn is drawn before the listing.
        # Only the first of all is drawn after it: a run that is refused leaves nothing beside a new output.
        while job is None or 0 < job.turn <= shown or (job.window is not None and not pin(job.window, run)):
            turn = drawn_turn(spec, output_path, root, shown) if publishes and not first else 0
            job = freeze(spec, date, root, where, hour=hour, master=master)
            if first:
                turn = drawn_turn(spec, output_path, root)
            job = job.model_copy(update={"turn": turn})
            overtaken = first and turn > 1  # by a run whose turn is earlier, and which may have listed later
            shown, first = turn if overtaken else latest_turn(job) if publishes else 0, False
        # Two processes that prepare one run may find different earlier runs: the first to write decides.
        skipped = tuple(one.name for one in skipped_parts(run, spec, part, root, where))
        spark = SparkSession.getActiveSession()
        slots = JobsSeen(spark).slots if spark else slots_to_come(master)
        run.begin(job.model_copy(update={"warm_from": warm_from, "skipped": skipped, "slots": slots}))
    job = _same(run, spec, part, root)
    if job.facts is not None:
        if not run.exists(INPUT_CHECKS):
            run.write_once(INPUT_CHECKS, InputChecks(checks=tuple(input_checks(job))))
        hint = f"nothing was read; mend the input and begin a new run, as {run} has been judged"
        require_input(run.read(INPUT_CHECKS, InputChecks).checks, hint)
    if not run.exists("plans/0000.json"):
        # The decision comes first: if the process dies before the plan is written, a retry enacts the same decision,
        # even if the earlier runs or the sample would lead to another by then.
        if not run.exists("decisions/0000.json"):
            run.write_once("decisions/0000.json", _first_decision(job))
        run.enact(run.decision(0))
    return job


def require_input(checks: Sequence[Check], hint: str) -> list[str]:
    """What does not hold and is a warning, in words.

    Raises:
        QualityError: a check of severity fail does not hold.
    """
    told = {check: f"{check.name(own=True)}, {check.required or 'as told'} ({check.found})" for check in checks}
    failed = [words for check, words in told.items() if check.fails]
    if failed:
        raise QualityError.saying(f"{len(failed)} of {len(checks)} checks of the input failed", "; ".join(failed), hint)
    return [words for check, words in told.items() if not check.success]


def _first_decision(job: Job) -> Decision:
    """The engine of stage 0 and its plan, from the earlier runs that the job names or from a sample of its keys."""
    places = plans_from(job.spec, "sample")
    asked = ENGINES.get(job.asked_engine)
    wanted = not combined_unseen(job) if asked is None else places and asked.places
    sample = (sample_keys(job) if wanted else None) or _sampled_by_spark(job)
    known = sample is not None and sample.texts is not None
    choice = first_choice(job, sample.key_counts if sample else None, named=known and places)
    plan = _staged_plan_0(job, sample) if choice.traits.in_stages else first_plan(job)
    return first_decision(job, plan, choice, sample if places else None)


def _sampled_by_spark(job: Job) -> KeySample | None:
    """How often keys occur that a query makes, where a stage would be made just to find that out."""
    spark = SparkSession.getActiveSession() if to_be_found_out(job) else None
    if spark and job.spec.of_all_rows:
        return KeySample(np.array([job.rows]))
    counts = key_counts(spark, job) if spark else np.zeros(0, np.int64)
    return KeySample(counts) if len(counts) else None


def _staged_plan_0(job: Job, sample: KeySample | None) -> RoutingPlan:
    """Plan 0 from the earlier runs that the job names; else from a sample, taken now if needed; else the plain ring."""
    plan = _from_earlier(job) if job.warm_from else first_plan(job)
    if plan.expected_rows or not plans_from(job.spec, "sample"):
        return plan
    sample = sample or sample_keys(job)
    return sampled_plan(job, plan, sample) if sample else plan


def _from_earlier(job: Job) -> RoutingPlan:
    try:
        runs = map(RunDirectory, job.warm_from)
        last, *before = [run.report(max(0, run.committed_stages() - 1)).histogram for run in runs]
    except (SkewlessError, OSError) as err:
        return plain_plan(job, f"an earlier run that it was to be made from cannot be read any more ({err})")
    return warm_plan(job, last, before[0] if before else None)


def _same(run: RunDirectory, spec: JobSpec, part: Part, root: str) -> Job:
    job = run.job()
    if job.spec not in (spec, spec.joining):
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
    input_path = input_location(spec, part, root, "spec") or job.input_path
    if (job.input_path, job.output_path) != (input_path, output_location(spec, part, root, "spec")):
        raise SpecError(
            f"run directory {run}", f"the data root that it was begun with (input {job.input_path})", str(root),
            "choose another --run-dir, or that root",
        )  # fmt: skip
    return job


#: At most this many source partitions are sampled, and at most this many rows in total. The sample stays small in
#: comparison with the smallest first wave, and takes some megabytes.
SAMPLED_UNITS = 64
SAMPLED_ROWS = 262_144
#: Bytes of a column that are read at a time, since only its first rows are needed.
BUFFER_BYTES = 1 << 18
#: Partitions are compared by this many of the heaviest keys; each must have at least one row per partition on average.
COMPARED_KEYS = 32
#: Key types whose texts are easy to compute without Spark; see ``skewless_spark.aggregates.keys``.
TOLD_TYPES = ("string", "tinyint", "smallint", "int", "bigint", "date")
_BATCH_ROWS = 1 << 16
#: Columns beside the key columns. No column of an input has such a name.
_UNIT, _ROWS, _KEY = "\0unit", "\0rows", "\0key"


def sample_keys(job: Job) -> KeySample | None:
    """Count the keys of a sample of the input; None if its keys cannot be read without a stage.

    The first rows of a source partition represent it, in proportion to its rows. The sampled partitions are spread
    over the listing, as waves are.
    """
    units = [unit for unit in job.units if unit.rows]
    inside = set(job.source.columns) - set(job.source.partition_columns)
    if job.source.format != "parquet" or not units or job.spec.map or set(job.spec.key) - inside:
        return None
    chosen, names = spread_over(units), list(job.spec.key)
    scale = SAMPLED_ROWS / max(SAMPLED_ROWS, sum(unit.rows or 0 for unit in chosen))
    plain = not any(unit.inner for unit in chosen)
    read = _read if plain else _read_as_in_a_stage
    found_in = list(in_threads(lambda unit: read(job, unit, names, math.ceil((unit.rows or 0) * scale)), chosen))
    tables = [one for one in found_in if one is not None]
    if len(tables) < len(chosen):
        return None
    found = pa.concat_tables(tables, promote_options="default")  # files may differ in what may be null
    keys = found.group_by(names, use_threads=False).aggregate([([], "count_all")]).rename_columns([*names, _ROWS])
    units_of_rows = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    spread = _spread(found, units_of_rows, keys, names, len(chosen) / len(units))
    return KeySample(keys[_ROWS].to_numpy().astype(np.int64), _texts(job, keys), spread)


def spread_over(units: Sequence[Unit]) -> list[Unit]:
    """At most ``SAMPLED_UNITS`` source partitions, spread over the listing."""
    if len(units) <= SAMPLED_UNITS:
        return list(units)
    places = {(number * GOLDEN_SECTION % (1 << 32)) * len(units) >> 32 for number in range(1, SAMPLED_UNITS + 1)}
    return [units[place] for place in sorted(places)]


def _spread(found: pa.Table, units: npt.NDArray[np.int64], keys: pa.Table, names: Sequence[str], part: float) -> float:
    rows = np.bincount(units)
    heavy = keys.take(pc.select_k_unstable(keys, min(COMPARED_KEYS, len(keys)), [(_ROWS, "descending")]))
    heavy = heavy.filter(pc.greater_equal(heavy[_ROWS], len(rows)))
    numbered = heavy.drop_columns([_ROWS]).append_column(_KEY, pa.array(np.arange(len(heavy))))
    cells = found.append_column(_UNIT, pa.array(units)).join(numbered, list(names), join_type="inner")
    counts = np.zeros((len(rows), len(heavy)), dtype=np.int64)
    np.add.at(counts, (cells[_UNIT].to_numpy(), cells[_KEY].to_numpy()), 1)
    return unit_spread(counts, rows, part)


def _texts(job: Job, keys: pa.Table) -> list[str | None] | None:
    """The key text of each row of a table with the key columns, as ``JobColumns.routing_key`` has it."""
    if any(job.key_types[name] not in TOLD_TYPES for name in job.spec.key):
        return None
    null = NULL_KEY if job.forwards_states else None
    columns, types = zip(*((keys[name].combine_chunks(), job.key_types[name]) for name in job.spec.key), strict=True)
    try:
        return [null if text is None else text.decode() for text in arrow_key_text(columns, types).to_pylist()]
    except UnicodeDecodeError:
        return None  # bytes that are not UTF-8


def _read(job: Job, unit: Unit, names: list[str], rows: int) -> pa.Table | None:
    """The keys of the first rows of a source partition; deleted rows are taken to be like the others.

    None if only Spark reads them right.
    """
    fs, path = open_location(unit.path)
    groups = range(*unit.span) if unit.span else None
    parts, wanted = [], rows
    with readable(unit, job.source), fs.open(path, "rb") as opened:
        file = open_parquet(opened, buffer_size=BUFFER_BYTES)
        if not _only_for_spark(file).isdisjoint(names):
            return None
        for batch in file.iter_batches(min(rows, _BATCH_ROWS), row_groups=groups, columns=names, use_threads=False):
            parts.append(pa.Table.from_batches([as_declared(batch.slice(0, wanted), job.source, names)]))
            wanted -= len(parts[-1])
            if wanted <= 0:
                break
    return pa.concat_tables(parts) if parts else _empty(job, names)


def _only_for_spark(file: pq.ParquetFile) -> set[str]:
    return {*old_columns(file), *odd_columns(file)}


def _read_as_in_a_stage(job: Job, unit: Unit, names: list[str], rows: int) -> pa.Table | None:
    fs, path = open_location(unit.path)
    with readable(unit, job.source), fs.open(path, "rb") as opened:
        if not _only_for_spark(open_parquet(opened)).isdisjoint(unit.inner.get(name, name) for name in names):
            return None
    parts = [_empty(job, names)]
    for batch in read_unit(unit, job.source, names):
        parts.append(pa.Table.from_batches([batch.slice(0, rows)]).select(names))
        rows -= len(parts[-1])
        if rows <= 0:
            break
    return pa.concat_tables(parts, promote_options="default")


def _empty(job: Job, names: list[str]) -> pa.Table:
    return pa.schema([(name, arrow_type_of(job.source.columns[name])) for name in names]).empty_table()
