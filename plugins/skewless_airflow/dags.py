"""From job specs to DAGs, one by one and by folder; or as a group of tasks for a DAG of your own."""

import datetime as dt
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from airflow.sdk import (
    DAG,
    Asset,
    AssetAll,
    BaseOperator,
    Param,
    PartitionedAssetTimetable,
    TaskGroup,
    TriggerRule,
    get_parsing_context,
)
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import AirflowException, DuplicateTaskIdFound
from airflow.sdk.execution_time.context import OutletEventAccessor

from skewless.errors import SkewlessError, SpecError
from skewless.run.step_names import COMPARE, PUBLISH, RESULT_STEP, last_step_of, stage_step
from skewless.spec.reading import DEFAULTS, load_defaults, load_spec, require_own, spec_files
from skewless.spec.schedule import FINAL_ASSET, RESULT_ASSET, Schedule
from skewless.spec.spec import JobSpec
from skewless_airflow.operators.run_tasks import (
    FIRST,
    LAST,
    FindStaleOperator,
    PlanStageOperator,
    PrepareOperator,
    PublishOperator,
)
from skewless_airflow.operators.spark_step import (
    CompareOperator,
    ShareStageOperator,
    SkewlessSparkOperator,
    ValidateOperator,
)
from skewless_airflow.partitions import PartMapper, PartTimetable, parts_asset
from skewless_airflow.run_store import catalog_folder
from skewless_airflow.trigger_form import beside_caller, form_params, list_import_errors, read_spec

#: Longer than any step should take; without it a hung driver would block all later nights.
STEP_LIMIT = dt.timedelta(hours=6)
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
        **({"owner": said.owner} if said.owner else {}),
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
        asset = asset or Asset(name=f"{RESULT_ASSET}{spec.name}")
        last = PublishOperator(task_id=PUBLISH.name, asset=asset, group=group, final=final)
    else:
        last = CompareOperator(task_id=COMPARE.name, **spark)
    runs >> merge >> validate >> last


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


_SIGN = re.compile(r"[!-/:-@\[-`{-~]")


def build_dag(spec: JobSpec | str | Path, **dag_args: Any) -> DAG:
    """The DAG of one job spec, which Airflow registers also if the DAG file gives it no name.

    Args:
        spec: a spec, or the path of its file; a relative one starts in the folder of the DAG file.
        dag_args: of Airflow's ``DAG``, instead of what follows from the spec: a timetable of your own as
            ``schedule``, a ``deadline``, an ``on_failure_callback``. ``default_args`` are merged over those of the
            spec, field by field. Build a DAG just to look at it with ``auto_register=False``.

    Raises:
        SpecError: the spec cannot be read.
    """
    return _job_dag(*read_spec(spec), **dag_args)


def _job_dag(spec: JobSpec, path: Path | None, **dag_args: Any) -> DAG:
    # A task that triggers runs has a `conf`, too: it is not that of Spark.
    tasks = dict(dag_args.pop("default_args", None) or {})
    spark = {"conf": tasks.pop("conf")} if "conf" in tasks else {}
    from_spec: dict[str, Any] = {
        "dag_id": spec.name,
        "description": spec.description or None,
        "doc_md": _page(spec, path),
        **_usual(spec),
        "tags": ["skewless", *spec.airflow.tags],
    }
    schedule = dag_args.pop("schedule") if "schedule" in dag_args else _timetable(spec)
    form = dag_args.pop("params") if "params" in dag_args else form_params(spec)
    form = {**form, **tasks.pop("params", {})}
    default_args = {"owner": "skewless", **task_defaults(spec), **tasks}
    with DAG(schedule=schedule, **{**from_spec, **dag_args}, default_args=default_args) as dag:
        aggregation_tasks(spec, path, form=True, **spark)
    # Tasks that are made in a DAG with params each take a copy, which Airflow validates anew whenever it stores the
    # DAG: half of the time that this takes. A run's params are those of its DAG anyway.
    dag.params = ParamsDict(form)
    return dag


def _usual(spec: JobSpec) -> dict[str, Any]:
    return {
        # Any day that a backfill may ask for comes after it.
        "start_date": dt.datetime(2000, 1, 1, tzinfo=ZoneInfo(spec.schedule.timezone)),
        "catchup": False,
        "max_active_runs": 1,
    }


def _timetable(spec: JobSpec) -> PartTimetable | PartitionedAssetTimetable | list[Asset] | None:
    schedule = spec.schedule
    if schedule.partitioned:
        _require_keys(schedule)
        results = {name for name in schedule.assets if name.startswith(RESULT_ASSET) and not name.endswith(FINAL_ASSET)}
        assets = [parts_asset(name) if name in results else Asset(name=name) for name in schedule.assets]
        mapper = PartMapper(unit=schedule.unit, timezone=schedule.timezone)
        # A mapper of a plugin is of the core's class, as a timetable is; the SDK's is of those that Airflow ships.
        return PartitionedAssetTimetable(assets=AssetAll(*assets), default_partition_mapper=mapper)  # type: ignore[arg-type]
    if schedule.assets:
        return [Asset(name=name) for name in schedule.assets]
    if not schedule.crons:
        return None
    return PartTimetable(*schedule.crons, timezone=schedule.timezone, unit=schedule.unit, offset=schedule.offset)


def _require_keys(schedule: Schedule) -> None:
    """Require that results of Skewless have the events that a job waits for: it would wait for ever.

    Raises:
        SpecError: Airflow gives events no partition keys.
    """
    waited = next((name for name in schedule.assets if name.startswith(RESULT_ASSET)), None)
    if waited is not None and not hasattr(OutletEventAccessor, "add_partitions"):
        raise SpecError(
            "schedule.partitioned", f"an Airflow that gives events of {waited} partition keys", "one before 3.3",
            "upgrade it, or leave partitioned out",
        )  # fmt: skip


def _page(spec: JobSpec, path: Path | None) -> str:
    """The documentation of a DAG; without code in backticks, around which Airflow draws padding over other lines."""
    aggregates = "\n".join(
        f"- {_literal(name)}: {call.function}{f' of {_literal(call.column)}' if call.column else ''}"
        for name, call in spec.aggregates.items()
    )
    lengths = ", ".join(str(one or "all") for one in spec.covered.lengths)
    window = f", window {lengths}" if lengths else ""
    key = ", ".join(map(_literal, spec.of_results.key))
    return (
        f"{spec.description}\n\nKey {key}, policy {spec.routing.policy.name}, "
        f"{spec.routing.reducers} reducers{window}{f', from {_literal(path.name)}' if path else ''}.\n\n{aggregates}\n"
    )


def _literal(name: str) -> str:
    escaped = _SIGN.sub(r"\\\g<0>", name)
    return f"**{escaped}**"


def restates(spec: JobSpec) -> bool:
    """Whether a job has such a DAG: it publishes, keeps states, and its runs compute anew what came late."""
    return last_step_of(spec).publishes and spec.window is not None and spec.window.late == "recompute"


def build_restating_dag(spec: JobSpec, path: str | Path, **dag_args: Any) -> DAG:
    """The DAG ``NAME_restate``, which triggers one run of the job's DAG for each result that is not up to date.

    These runs publish as every run does: consumers of the asset run for just those days. Unless ``dag_args`` has a
    schedule, the DAG is triggered by hand, with the first day to look at.
    """
    from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator

    from_spec: dict[str, Any] = {
        "dag_id": f"{spec.name}_restate",
        "description": f"Computes results of {spec.name} again whose window covers a part that has changed since.",
        **_usual(spec),
        "default_args": {"owner": spec.airflow.owner or "skewless"},
        "params": {
            FIRST: Param(
                title="From", description="The first day of published results to look at.", type="string", format="date"
            ),
            LAST: Param(
                None,
                title="To",
                description="The last day, inclusive; left empty, today.",
                type=["string", "null"],
                format="date",
            ),
        },
        "tags": ["skewless-restate", *spec.airflow.tags],
    }
    with DAG(schedule=dag_args.pop("schedule", None), **{**from_spec, **dag_args}) as dag:
        find = FindStaleOperator(task_id="find", spec_path=str(Path(path).resolve()))
        # One after the other: the first run reads what changed, and those after it find its states.
        TriggerDagRunOperator.partial(
            task_id="restate", trigger_dag_id=spec.name, skip_when_already_exists=True, max_active_tis_per_dagrun=1
        ).expand_kwargs(find.output)
    return dag


def catalog_dags(folder: str | Path | None = None, **dag_args: Any) -> list[DAG]:
    """The DAGs of each ``*.yaml`` and ``*.yml`` of a folder, registered with Airflow: one line in a DAG file.

    ``catalog_dags("specs/")``

    A job with a window has a second DAG, which computes old results again. Fields that all specs share stand in
    ``_defaults.yaml`` (``skewless.spec.reading.load_spec``). A broken spec leaves the other DAGs as they are, and is an
    import error of its own. In a task, which reads the file of its DAG anew, only the DAG of the task is built.

    Args:
        folder: a relative one starts in the folder of the DAG file; by default ``$SKEWLESS_CATALOG``.
        dag_args: of the DAG of each spec, as of ``build_dag``.

    Raises:
        SpecError: there is no such folder.
    """
    place = catalog_folder() if folder is None else beside_caller(folder)
    if not place.is_dir():
        raise SpecError("catalog_dags", "a folder of job specs", f"no folder {place}")
    wanted = get_parsing_context().dag_id
    made, seen = dict[str, DAG](), dict[str, Path]()
    faults: dict[Path, SkewlessError] = {}
    try:
        load_defaults(place)
    except SkewlessError as err:
        list_import_errors({place / DEFAULTS: err})
        return []
    for path in spec_files(place):
        try:
            spec = load_spec(path)
            builders = {spec.name: partial(_job_dag, spec, path, **dag_args)}
            if restates(spec):
                builders[f"{spec.name}_restate"] = partial(build_restating_dag, spec, path)
            require_own(spec, path, seen, builders)
            wanted_here = [dag_id for dag_id in builders if wanted in {None, dag_id}]
            made |= {dag_id: _sound(builders[dag_id], path) for dag_id in wanted_here}
        except SkewlessError as err:
            faults[path] = err
        if wanted in made:
            faults = {}
            break
    list_import_errors(faults)
    dags = [*made.values()]
    for dag in dags if dag_args.get("auto_register", True) else ():
        dag.auto_register = True
        with dag:
            pass  # Airflow registers a DAG when its context ends
    return dags


def _sound(build: Callable[..., DAG], path: Path) -> DAG:
    try:
        dag = build(auto_register=False)
        dag.validate()
    except (AirflowException, ValueError) as err:
        raise SpecError(f"spec {path}", "a DAG that Airflow accepts", " ".join(str(err).split())) from None
    return dag
