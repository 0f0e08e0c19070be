"""Prepares a run: freezes the job, draws its turn, and writes the first decision and plan 0."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from pyspark.sql import SparkSession

from skewless.documents.decision import Decision
from skewless.documents.job import Job
from skewless.documents.quality import Check, InputChecks
from skewless.errors import QualityError, SkewlessError, SpecError
from skewless.history.input_checks import input_checks
from skewless.planner.engine_choice import combined_unseen, first_choice
from skewless.planner.first_plan import first_decision, first_plan, plain_plan, plans_from, sampled_plan, warm_plan
from skewless.planner.forecast.key_sample import KeySample
from skewless.routing.plan import RoutingPlan
from skewless.run.directory import INPUT_CHECKS, RunDirectory
from skewless.run.step_names import last_step_of
from skewless.spec.part import Part
from skewless.spec.routing import ENGINES
from skewless.spec.spec import JobSpec
from skewless.standing.states_retention import pin
from skewless_lake.publication import drawn_turn, latest_turn
from skewless_spark.prepare import earlier_runs
from skewless_spark.prepare.earlier_runs import skipped_parts
from skewless_spark.prepare.freezing import check_spec, freeze
from skewless_spark.prepare.sampled_keys import sample_keys
from skewless_spark.session.session import slots_to_come
from skewless_spark.session.step_measures import JobsSeen
from skewless_spark.sources.locations import check_apart, check_kept, input_location, output_location


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
        check_apart(output_path, input_location(spec, part, root, where), where)
        check_kept(spec, root, {"run directory": str(run)}, where)
        warm_from = earlier_runs.newest_in_tasks(run, spec, 2)
        publishes, job, shown = last_step_of(spec).publishes, None, 0
        # Again if a prune came in between, or a later run that has published: the turn is drawn before the listing.
        while job is None or 0 < job.turn <= shown or (job.window is not None and not pin(job.window, run)):
            turn = drawn_turn(spec, output_path, root, shown) if publishes else 0
            job = freeze(spec, date, root, where, hour=hour, master=master).model_copy(update={"turn": turn})
            shown = latest_turn(job) if publishes else 0
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
    asked = ENGINES.get(job.spec.engine)
    wanted = not combined_unseen(job) if asked is None else places and asked.places
    sample = sample_keys(job) if wanted else None
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
