"""An adaptive aggregation as a group of tasks, for a DAG of your own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, BaseOperator, TaskGroup, TriggerRule
from airflow.sdk.exceptions import DuplicateTaskIdFound

from skewless.errors import SpecError
from skewless.run.step_names import COMPARE, PUBLISH, RESULT_STEP, last_step_of, stage_step
from skewless.spec.schedule import RESULT_ASSET
from skewless.spec.spec import JobSpec
from skewless_airflow.operators.prepare_task import PlanStageOperator, PrepareOperator
from skewless_airflow.operators.publish_task import PublishOperator
from skewless_airflow.operators.spark_step import (
    CompareOperator,
    ShareStageOperator,
    SkewlessSparkOperator,
    ValidateOperator,
)
from skewless_airflow.trigger_form import read_spec

#: Longer than any step should take; without it a hung driver would block all later nights.
STEP_LIMIT = dt.timedelta(hours=6)
#: Between two tries of a task.
RETRY_DELAY = dt.timedelta(seconds=10)
_UNNAMED = "aggregation"


def adaptive_aggregation(
    spec: JobSpec | str | Path,
    group_id: str | None = None,
    *,
    form: bool = False,
    asset: Asset | None = None,
    default_args: Mapping[str, Any] | None = None,
) -> TaskGroup:
    """All tasks of an aggregation, from ``prepare`` to ``publish``, as a group in the DAG that is being defined.

    ``before >> adaptive_aggregation("clicks.yaml") >> after``

    Args:
        spec: a spec, or the path of its file; a relative one starts in the folder of the DAG file. A spec in Python is
            written into the run directory as JSON, never pickled.
        group_id: the id of the group. A DAG with several aggregations must give one to each: it keeps their run
            directories apart.
        form: whether the DAG has the params of ``form_params(spec)``, so that a run's conf can choose options.
        asset: the published result, by default ``Asset("skewless:NAME")``.
        default_args: arguments of the tasks, as of any ``TaskGroup``: ``retries``, ``pool``, ``queue``, and of the
            Spark steps ``conn_id``, ``conf`` and what else ``SparkSubmitOperator`` has. They go before those of the
            DAG, which go before those of the spec.

    Raises:
        SpecError: the spec's file cannot be read, or the run directory of the group would be that of another one.
    """
    loaded, path = read_spec(spec)
    try:
        group = TaskGroup(group_id or _UNNAMED, default_args=dict(default_args or {}))  # type: ignore[arg-type]
    except DuplicateTaskIdFound:
        hint = "give each aggregation of a DAG a group_id of its own, which names its run directories"
        raise SpecError(
            f"job {loaded.name}", "one group of tasks of an id", f"a second {group_id or _UNNAMED!r}", hint
        ) from None
    with group:
        if next(group.iter_mapped_task_groups(), None) is not None:
            raise SpecError(
                f"job {loaded.name}, group {group.group_id}", "a group that is not mapped, so that its runs are apart",
                "one within a mapped group", "give each aggregation a group, or a DAG, of its own",
            )  # fmt: skip
        set_before = {**group.dag.default_args, **group.default_args}
        ours = {name: value for name, value in task_defaults(loaded).items() if name not in set_before}
        group.default_args = {**group.default_args, **ours}
        unnamed = group_id is None and group.group_id == _UNNAMED
        aggregation_tasks(loaded, path, "" if unnamed else str(group.group_id), form=form, asset=asset)
    return group


def task_defaults(spec: JobSpec) -> dict[str, Any]:
    """The arguments of a job's tasks, unless the DAG sets others.

    Every step may be tried again: an attempt without a commit has no effect.
    """
    said = spec.airflow
    return {
        "retries": said.retries,
        "retry_delay": RETRY_DELAY,
        "execution_timeout": STEP_LIMIT,
        **{name: value for name, value in (("owner", said.owner), ("queue", said.queue)) if value},
    }


def aggregation_tasks(
    spec: JobSpec, path: Path | None, group: str = "", *, form: bool = False, asset: Asset | None = None, **spark: Any
) -> None:
    """The tasks of ``adaptive_aggregation`` without a group of their own; ``spark`` are arguments of the Spark steps.

    ``prepare > stage_00.run > stage_01.plan > stage_01.run > ... > merge > validate > publish`` (or ``compare``, of a
    job in the shadow of another one): one stage
    for each wave and one that drains the backlog. A plan task whose stage is not needed skips itself and with it the
    stage; the next plan task finds the same for its own stage.
    """
    spark = {**spark, "spark": spec.spark, "group": group}
    prepare = PrepareOperator(task_id="prepare", spec=spec, spec_path=str(path or ""), form=form, **spark)
    stages = [_stage(spec, 0, group, spark, after=prepare)]
    for number in range(1, len(spec.routing.waves) + 1):
        stages.append(_stage(spec, number, group, spark, after=stages[-1][0]))
    runs = [task for stage in stages for task in stage]
    # Merge runs after skipped stages, but not after a failed one. It waits for all of them, so that it cannot start
    # between a skipped stage and one that still runs.
    merge = SkewlessSparkOperator(
        task_id="merge",
        spark_step="merge",
        step=RESULT_STEP,
        trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
        **spark,
    )
    validate = ValidateOperator(task_id="validate", **spark)
    last: BaseOperator
    if last_step_of(spec).publishes:
        final = spec.covered.final_after is not None and spec.schedule.unit == "day"
        last = PublishOperator(task_id=PUBLISH.name, asset=asset or result_asset(spec), group=group, final=final)
    else:
        last = CompareOperator(task_id=COMPARE.name, **spark)
    runs >> merge >> validate >> last


def result_asset(spec: JobSpec) -> Asset:
    """The published result, as other DAGs wait for it: ``Asset("skewless:NAME")``."""
    return Asset(name=f"{RESULT_ASSET}{spec.name}")


def _stage(
    spec: JobSpec, number: int, group: str, spark: Mapping[str, Any], after: BaseOperator
) -> list[SkewlessSparkOperator]:
    """The tasks that run a stage: ``run``, which the next stage waits for, and one for each further cluster."""
    with TaskGroup(f"stage_{number:02d}"):
        first, further = "run", spec.sharing.connections
        if further:
            runs: list[SkewlessSparkOperator] = [
                ShareStageOperator(task_id=first, stage=number, further=False, **spark),
                *(
                    ShareStageOperator(
                        task_id=f"share_{name}", stage=number, further=True, **{**spark, "conn_id": name}
                    )
                    for name in further
                ),
            ]
        else:
            step, arguments = stage_step(number), ("--stage", str(number))
            runs = [SkewlessSparkOperator(task_id=first, spark_step="stage", step=step, step_args=arguments, **spark)]
        if number:
            plan = PlanStageOperator(task_id="plan", stage=number, trigger_rule=TriggerRule.NONE_FAILED, group=group)
            after = after >> plan
        after >> runs
    return runs
