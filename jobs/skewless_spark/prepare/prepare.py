"""Prepares a run: freezes the job, draws its turn, and writes the first decision and plan 0."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial

from skewless.documents.decision import Decision
from skewless.documents.job import Job
from skewless.errors import SkewlessError, SpecError
from skewless.planner.engine_choice import first_choice
from skewless.planner.first_plan import first_decision, first_plan, plain_plan, plans_from, sampled_plan, warm_plan
from skewless.planner.forecast.key_sample import KeySample
from skewless.routing.plan import RoutingPlan
from skewless.run.directory import RunDirectory
from skewless.run.publication.publish import draw_turn, with_turn
from skewless.run.step_names import last_step_of
from skewless.spec.part import Part
from skewless.spec.routing import ENGINES
from skewless.spec.spec import JobSpec
from skewless.standing.retention import pin
from skewless_lake.publication import turn_in_table
from skewless_lake.staged import OutputPart
from skewless_leases import Turns, open_store
from skewless_spark.prepare import earlier_runs
from skewless_spark.prepare.freezing import check_spec, freeze
from skewless_spark.prepare.key_sample import sample_keys
from skewless_spark.prepare.restating import skipped_parts
from skewless_spark.sources.locations import beside_output, check_apart, check_kept, input_location, output_location


def prepare(
    run: RunDirectory, spec: JobSpec, date: dt.date, root: str, where: str = "spec", *, hour: str | None = None
) -> Job:
    """Freeze a run, unless it is frozen already from the same spec for the same part of the input.

    The job names the earlier runs that plan 0 is made from, so that a retry uses the same ones. A job and a plan 0
    that have been written are never changed.

    Args:
        date: the day to compute, under which the result is published.
        root: where relative paths of the spec start.
        hour: the hour of that day, for an hourly job (``Part.hour``).

    Raises:
        SpecError: the spec cannot be run, or the directory belongs to another spec or part.
        InputError: the input is missing, or it is not what the spec says.
    """
    spec = spec.of_run
    check_spec(spec, where)
    part = Part(date, hour)
    if not run.exists("job.json"):
        output_path = output_location(spec, part, root, where)
        check_apart(output_path, input_location(spec, part, root, where), where)
        check_kept(spec, root, {"run directory": str(run)}, where)
        in_turn = _drawn(spec, output_path, root)  # before the input is listed: see ``draw_turn``
        job = in_turn(freeze(spec, date, root, where, hour=hour))
        while job.window is not None and not pin(job.window, run):  # a prune came in between
            job = in_turn(freeze(spec, date, root, where, hour=hour))
        # Two processes that prepare one run may find different earlier runs: the first to write decides.
        skipped = tuple(one.name for one in skipped_parts(run, spec, part, root, where))
        run.begin(job.model_copy(update={"warm_from": earlier_runs.last_two(run, spec), "skipped": skipped}))
    job = _same(run, spec, part, root)
    if not run.exists("plans/0000.json"):
        # The decision comes first: if the process dies before the plan is written, a retry enacts the same decision,
        # even if the earlier runs or the sample would lead to another by then.
        if not run.exists("decisions/0000.json"):
            run.write_once("decisions/0000.json", _first_decision(job))
        run.enact(run.decision(0))
    return job


def _drawn(spec: JobSpec, output_path: str, root: str) -> Callable[[Job], Job]:
    """Draw the turn of a run that will publish; what gives it to the job."""
    if not last_step_of(spec).publishes:
        return lambda job: job
    turns = Turns(open_store(f"{beside_output(spec, output_path, root)}/turns"))
    turn = turns.draw() if spec.output.is_table else draw_turn(output_path, turns, allow_gap=spec.output.allow_gap)
    return partial(_with_turn, turn=turn, turns=turns)


def _with_turn(job: Job, turn: int, turns: Turns) -> Job:
    if not job.spec.output.is_table:
        return with_turn(job, turn, turns)
    latest = turn_in_table(OutputPart.of(job))
    return job.model_copy(update={"turn": turn if latest < turn else turns.draw(above=latest)})


def _first_decision(job: Job) -> Decision:
    """The engine of stage 0 and its plan, from the earlier runs that the job names or from a sample of its keys."""
    places = plans_from(job.spec, "sample")
    asked = ENGINES.get(job.spec.engine)
    sample = sample_keys(job) if asked is None or (places and asked.places) else None
    known = sample is not None and sample.texts is not None
    choice = first_choice(job, sample.key_counts if sample else None, named=known and places)
    plan = _staged_plan_0(job, sample) if choice.traits.in_stages else first_plan(job)
    return first_decision(job, plan, choice, sample if places else None)


def _staged_plan_0(job: Job, sample: KeySample | None) -> RoutingPlan:
    """Plan 0 from the earlier runs that the job names; else from a sample, taken now if needed; else the plain ring."""
    plan = _from_earlier(job) if job.warm_from else first_plan(job)
    if plan.expected_rows or not plans_from(job.spec, "sample"):
        return plan
    sample = sample or sample_keys(job)
    return sampled_plan(job, plan, sample) if sample else plan


def _from_earlier(job: Job) -> RoutingPlan:
    try:
        last, *before = [earlier_runs.last_histogram(location) for location in job.warm_from]
    except (SkewlessError, OSError) as err:
        return plain_plan(job, f"an earlier run that it was to be made from cannot be read any more ({err})")
    return warm_plan(job, last, before[0] if before else None)


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
    input_path = input_location(spec, part, root, "spec") or job.input_path
    if (job.input_path, job.output_path) != (input_path, output_location(spec, part, root, "spec")):
        raise SpecError(
            f"run directory {run}", f"the data root that it was begun with (input {job.input_path})", str(root),
            "choose another --run-dir, or that root",
        )  # fmt: skip
    return job
