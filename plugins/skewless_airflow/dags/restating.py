"""A DAG beside that of a job with a window: it runs the job again for days whose results are not up to date."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Param

from skewless.spec.spec import JobSpec
from skewless_airflow.operators.find_stale import FIRST, LAST, FindStaleOperator


def restates(spec: JobSpec) -> bool:
    """Whether a job has such a DAG: it keeps states, and its runs compute anew what came late."""
    return spec.window is not None and spec.window.late == "recompute"


def restating_id(spec: JobSpec) -> str:
    """The id of that DAG."""
    return f"{spec.name}_restate"


def build_restating_dag(spec: JobSpec, path: str | Path, **dag_args: Any) -> DAG:
    """The DAG ``NAME_restate``, which triggers one run of the job's DAG for each result that is not up to date.

    These runs publish as every run does: consumers of the asset run for just those days. The DAG has no schedule, and
    is triggered with the first day to look at.

    Args:
        spec: the spec.
        path: its file.
        dag_args: of Airflow's ``DAG``, such as a ``schedule``.
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
                title="From",
                description="The first day of published results to look at.",
                type="string",
                format="date",
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
