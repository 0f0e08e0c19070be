"""From a job spec to its DAGs: schedule, trigger form and the tasks of the aggregation; and the one that restates."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Asset, AssetAll, Param, PartitionedAssetTimetable

from skewless.spec.reading import load_spec
from skewless.spec.schedule import RESULT_ASSET, Schedule
from skewless.spec.spec import JobSpec
from skewless_airflow.dags.task_group import STEP_DEFAULTS, aggregation_tasks
from skewless_airflow.dags.timetable import PartTimetable
from skewless_airflow.operators.find_runs import FIRST, LAST, FindSkippedOperator, FindStaleOperator
from skewless_airflow.partitions import PartMapper, parts_asset
from skewless_airflow.trigger_form import form_params

#: Characters with a meaning in markdown.
_SIGN = re.compile(r"[!-/:-@\[-`{-~]")


def build_dag(spec: JobSpec | str | Path, **dag_args: Any) -> DAG:
    """The DAG of one job spec.

    Args:
        spec: a spec, or the path of its file.
        dag_args: of Airflow's ``DAG``, instead of what follows from the spec: a timetable of your own as
            ``schedule``, a ``deadline``, an ``on_failure_callback``.

    Raises:
        SpecError: the spec cannot be read.
    """
    path = None if isinstance(spec, JobSpec) else Path(spec).resolve()
    loaded = spec if isinstance(spec, JobSpec) else load_spec(spec)
    from_spec: dict[str, Any] = {
        "dag_id": loaded.name,
        "description": loaded.description or None,
        "doc_md": _page(loaded, path),
        "start_date": dt.datetime.combine(loaded.schedule.start, dt.time(), ZoneInfo(loaded.schedule.timezone)),
        "catchup": False,
        "max_active_runs": 1,
        "default_args": {"owner": "skewless", **STEP_DEFAULTS},
        "params": form_params(loaded),
        "tags": ["skewless"],
        # A DAG file registers the DAG by naming it; to build one elsewhere must not register it.
        "auto_register": False,
    }
    schedule = dag_args.pop("schedule") if "schedule" in dag_args else _timetable(loaded.schedule)
    with DAG(schedule=schedule, **{**from_spec, **dag_args}) as dag:
        ends = aggregation_tasks(path or loaded, form=True)
        if loaded.schedule.missed == "catch_up":
            find = FindSkippedOperator(task_id="find_skipped")
            ends.prepare >> find
            TriggerDagRunOperator.partial(
                task_id="catch_up",
                trigger_dag_id=loaded.name,
                skip_when_already_exists=True,
                max_active_tis_per_dagrun=1,  # in the order of the parts
            ).expand_kwargs(find.output)
    return dag


def _timetable(schedule: Schedule) -> PartTimetable | PartitionedAssetTimetable | list[Asset] | None:
    if schedule.partitioned:
        assets = [parts_asset(name) if name.startswith(RESULT_ASSET) else Asset(name=name) for name in schedule.assets]
        mapper = PartMapper(unit=schedule.unit, timezone=schedule.timezone)
        # A mapper of a plugin is of the core's class, as a timetable is; the SDK's is of those that Airflow ships.
        return PartitionedAssetTimetable(assets=AssetAll(*assets), default_partition_mapper=mapper)  # type: ignore[arg-type]
    if schedule.assets:
        return [Asset(name=name) for name in schedule.assets]
    if not schedule.crons:
        return None
    return PartTimetable(*schedule.crons, timezone=schedule.timezone, unit=schedule.unit, offset=schedule.offset)


def _page(spec: JobSpec, path: Path | None) -> str:
    """The documentation of a DAG; without code in backticks, around which Airflow draws padding over other lines."""
    aggregates = "\n".join(
        f"- {_literal(name)}: {call.function}{f' of {_literal(call.column)}' if call.column else ''}"
        for name, call in spec.aggregates.items()
    )
    lengths = ", ".join(str(one or "all") for one in spec.lengths)
    window = f", window {lengths}" if lengths else ""
    return (
        f"{spec.description}\n\nKey {', '.join(map(_literal, spec.key))}, policy {spec.routing.policy.name}, "
        f"{spec.routing.reducers} reducers{window}{f', from {_literal(path.name)}' if path else ''}.\n\n{aggregates}\n"
    )


def _literal(name: str) -> str:
    """A name in bold, escaped for markdown."""
    escaped = _SIGN.sub(r"\\\g<0>", name)
    return f"**{escaped}**"


def restates(spec: JobSpec) -> bool:
    """Whether a job has such a DAG: it keeps states, and its runs compute anew what came late."""
    return spec.window is not None and spec.window.late == "recompute"


def restating_id(spec: JobSpec) -> str:
    """The id of that DAG."""
    return f"{spec.name}_restate"


def build_restating_dag(spec: JobSpec, path: str | Path, **dag_args: Any) -> DAG:
    """The DAG ``NAME_restate``, which triggers one run of the job's DAG for each result that is not up to date.

    These runs publish as every run does: consumers of the asset run for just those days. Unless ``dag_args`` has a
    schedule, the DAG is triggered by hand, with the first day to look at.
    """
    from_spec: dict[str, Any] = {
        "dag_id": restating_id(spec),
        "description": f"Computes results of {spec.name} again whose window covers a part that has changed since.",
        "start_date": dt.datetime.combine(spec.schedule.start, dt.time(), ZoneInfo(spec.schedule.timezone)),
        "catchup": False,
        "max_active_runs": 1,
        "default_args": {"owner": "skewless"},
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
        "tags": ["skewless-restate"],
        "auto_register": False,
    }
    with DAG(schedule=dag_args.pop("schedule", None), **{**from_spec, **dag_args}) as dag:
        find = FindStaleOperator(task_id="find", spec=spec, spec_path=str(Path(path).resolve()))
        TriggerDagRunOperator.partial(
            task_id="restate",
            trigger_dag_id=spec.name,
            skip_when_already_exists=True,
            # In the order of the parts: the first run reads what changed, and those after it find its states.
            max_active_tis_per_dagrun=1,
        ).expand_kwargs(find.output)
    return dag
