"""An adaptive aggregation as a group of tasks, for a DAG of your own."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from airflow.configuration import conf
from airflow.sdk import Asset, BaseOperator, TaskGroup, TriggerRule

from skewless.run.directory import RESULT_STEP, stage_step
from skewless.spec.reading import load_spec
from skewless.spec.schedule import RESULT_ASSET
from skewless.spec.spec import JobSpec
from skewless_airflow.operators.planning import ApproveForwardingOperator, PlanStageOperator
from skewless_airflow.operators.prepare import PrepareOperator
from skewless_airflow.operators.publish import PublishOperator
from skewless_airflow.operators.spark_step import ShareStageOperator, SkewlessSparkOperator, ValidateOperator

#: The arguments of tasks unless the DAG sets others. Every step may be tried again: an attempt without a commit has
#: no effect. The limit is longer than any step should take; without it a hung driver would block all later nights.
STEP_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {"retries": 2, "retry_delay": dt.timedelta(seconds=10), "execution_timeout": dt.timedelta(hours=6)}
)


class Ends(NamedTuple):
    """The first and the last task of an aggregation."""

    prepare: BaseOperator
    publish: BaseOperator


def adaptive_aggregation(
    spec: JobSpec | str | Path, group_id: str | None = None, *, form: bool = False, asset: Asset | None = None
) -> TaskGroup:
    """All tasks of an aggregation, from ``prepare`` to ``publish``, as a group in the DAG that is being defined.

    ``before >> adaptive_aggregation("clicks.yaml") >> after``

    Args:
        spec: a spec, or the path of its file. A spec in Python is written into the run directory as JSON, never
            pickled.
        group_id: the id of the group. A DAG with several aggregations must give one to each: it keeps their run
            directories apart.
        form: whether the DAG has the params of ``form_params(spec)``, so that a run's conf can choose options.
        asset: the published result, by default ``Asset("skewless:NAME")``.

    Raises:
        SpecError: the spec's file cannot be read.
    """
    with TaskGroup(group_id or "aggregation") as group:
        set_by_dag = group.dag.default_args if group.dag else {}
        step_args = {name: value for name, value in STEP_DEFAULTS.items() if name not in set_by_dag}
        aggregation_tasks(spec, group_id or "", form=form, asset=asset, step_args=step_args)
    return group


def aggregation_tasks(
    spec: JobSpec | str | Path,
    group: str = "",
    *,
    form: bool = False,
    asset: Asset | None = None,
    step_args: Mapping[str, Any] | None = None,
) -> Ends:
    """The tasks of ``adaptive_aggregation`` without a group of their own.

    ``prepare > stage_00.run > stage_01.plan > stage_01.run > ... > merge > validate > publish``: one stage
    for each wave and one that drains the backlog. A plan task whose stage is not needed skips itself and with it the
    stage; the next plan task finds the same for its own stage.
    """
    path = "" if isinstance(spec, JobSpec) else str(Path(spec).resolve())
    loaded = spec if isinstance(spec, JobSpec) else load_spec(path)
    common = {"group": group, **(step_args or {})}
    spark = {**common, "pool": spark_pool()}
    prepare = PrepareOperator(task_id="prepare", spec=loaded, spec_path=path, form=form, **spark)
    stages = [_stage(loaded, 0, common, spark, after=prepare)]
    for number in range(1, len(loaded.routing.waves) + 1):
        stages.append(_stage(loaded, number, common, spark, after=stages[-1][0]))
    runs = [task for stage in stages for task in stage]
    # Merge runs after skipped stages, but not after a failed one. It waits for all of them, so that it cannot start
    # between a skipped stage and one that still runs.
    merge = SkewlessSparkOperator(
        task_id="merge",
        entry="merge_states.py",
        step=RESULT_STEP,
        trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
        **spark,
    )
    validate = ValidateOperator(task_id="validate", **spark)
    publish = PublishOperator(task_id="publish", asset=asset or result_asset(loaded), **common)
    runs >> merge >> validate >> publish
    return Ends(prepare, publish)


def result_asset(spec: JobSpec) -> Asset:
    """The published result, as other DAGs wait for it: ``Asset("skewless:NAME")``."""
    return Asset(name=f"{RESULT_ASSET}{spec.name}")


def spark_pool() -> str:
    """The pool of the Spark steps: ``$SKEWLESS_POOL``, ``[skewless] pool``, or Airflow's default.

    A task of a pool that does not exist waits for ever, so another pool than Airflow's default is used only where a
    setting names it.
    """
    return os.environ.get("SKEWLESS_POOL") or conf.get("skewless", "pool", fallback="") or "default_pool"


def _stage(
    spec: JobSpec, number: int, common: Mapping[str, Any], spark: Mapping[str, Any], after: BaseOperator
) -> list[SkewlessSparkOperator]:
    """The tasks that run a stage: ``run``, which the next stage waits for, and one for each further cluster."""
    with TaskGroup(f"stage_{number:02d}"):
        if spec.sharing.connections:
            runs = _shared(spec, number, spark)
        else:
            step, arguments = stage_step(number), ("--stage", str(number))
            runs = [
                SkewlessSparkOperator(task_id="run", entry="run_stage.py", step=step, entry_args=arguments, **spark)
            ]
        if number:
            plan = PlanStageOperator(task_id="plan", stage=number, trigger_rule=TriggerRule.NONE_FAILED, **common)
            after = after >> plan
            limit = spec.routing.approve_forwarding
            if limit is not None:
                after = after >> ApproveForwardingOperator(task_id="approve", stage=number, limit=limit, **common)
        after >> runs
    return runs


def _shared(spec: JobSpec, number: int, spark: Mapping[str, Any]) -> list[SkewlessSparkOperator]:
    first: SkewlessSparkOperator = ShareStageOperator(task_id="run", stage=number, further=False, **spark)
    rest = [
        ShareStageOperator(
            task_id=f"share_{connection}", stage=number, further=True, **{**spark, "conn_id": connection}
        )
        for connection in spec.sharing.connections
    ]
    return [first, *rest]
