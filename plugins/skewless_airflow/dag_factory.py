"""From a job spec to a DAG: the stages unrolled, since a DAG has no loop."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from zoneinfo import ZoneInfo

from airflow.sdk import DAG, Asset, CronTriggerTimetable, TaskGroup, TriggerRule

from skewless.run_directory import QUALITY_STEP, RESULT_STEP, stage_step
from skewless.spec import JobSpec, load_spec
from skewless_airflow.operators import PlanStageOperator, PrepareOperator, PublishOperator, SkewlessSparkOperator

#: No step of a nightly job takes longer; without a limit a hung driver blocks all nights after it.
STEP_TIMEOUT = dt.timedelta(hours=6)


def build_dag(spec_path: str | Path) -> DAG:
    """The DAG of one job spec.

    ``prepare > stage_00.run > stage_01.plan > stage_01.run > ... > merge > validate > publish``: one stage
    for each wave and one that drains. A plan task that finds no need for its stage skips it; its run task
    follows, and the next plan task says for itself why its stage is not needed either.

    Raises:
        SpecError: the spec cannot be read.
    """
    path = Path(spec_path).resolve()
    spec = load_spec(path)
    with DAG(
        dag_id=spec.name,
        description=spec.description or None,
        doc_md=_page(spec, path),
        schedule=_timetable(spec),
        start_date=dt.datetime.combine(spec.schedule.start, dt.time(), ZoneInfo(spec.schedule.timezone)),
        catchup=False,
        max_active_runs=1,
        default_args={
            "owner": "skewless",
            "retries": 2,
            "retry_delay": dt.timedelta(seconds=10),
            "execution_timeout": STEP_TIMEOUT,
        },
        tags=["skewless"],
        # Whoever builds a DAG to look at it does not own it: it belongs to the file that names it.
        auto_register=False,
    ) as dag:
        _wire(spec, path)
    return dag


def _wire(spec: JobSpec, path: Path) -> None:
    prepare = PrepareOperator(task_id="prepare", spec_path=str(path), timezone=spec.schedule.timezone)
    before = prepare >> _stage(0)
    runs = [before]
    for number in range(1, len(spec.routing.waves) + 1):
        runs.append(_stage(number, after=runs[-1]))
    # Skipped stages are no reason not to merge; a failed one is. Merge waits for all of them, so that
    # it cannot start between a skipped stage and one that still runs.
    merge = SkewlessSparkOperator(
        task_id="merge",
        entry="merge_states.py",
        step=RESULT_STEP,
        trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
    )
    validate = SkewlessSparkOperator(task_id="validate", entry="validate_result.py", step=QUALITY_STEP)
    published = PublishOperator(task_id="publish", asset=result_asset(spec))
    runs >> merge >> validate >> published


def _stage(number: int, after: SkewlessSparkOperator | None = None) -> SkewlessSparkOperator:
    with TaskGroup(f"stage_{number:02d}"):
        run = SkewlessSparkOperator(
            task_id="run",
            entry="run_stage.py",
            step=stage_step(number),
            entry_args=("--stage", str(number)),
        )
        if after is not None:
            plan = PlanStageOperator(task_id="plan", stage=number, trigger_rule=TriggerRule.NONE_FAILED)
            after >> plan >> run
    return run


def result_asset(spec: JobSpec) -> Asset:
    """The published result, as other DAGs wait for it: ``Asset("skewless:NAME")``."""
    return Asset(name=f"skewless:{spec.name}")


def _timetable(spec: JobSpec) -> CronTriggerTimetable | None:
    if spec.schedule.cron is None:
        return None
    return CronTriggerTimetable(spec.schedule.cron, timezone=spec.schedule.timezone)


def _page(spec: JobSpec, path: Path) -> str:
    aggregates = "\n".join(
        f"- `{name}`: {call.function}{f' of `{call.column}`' if call.column else ''}"
        for name, call in spec.aggregates.items()
    )
    return (
        f"{spec.description}\n\nKey `{', '.join(spec.key)}`, policy `{spec.routing.policy}`, "
        f"{spec.routing.reducers} reducers, from `{path.name}`.\n\n{aggregates}\n"
    )
