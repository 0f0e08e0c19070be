"""From job specs to DAGs, one by one and for a whole catalog: schedule, trigger form, tasks, and the DAG that restates.

Airflow marks every DAG of a file stale when that file has an import error. So two files read the catalog:
``skewless_dags.py`` builds the valid specs and never fails, and ``skewless_broken_specs.py`` has no DAGs to lose and
fails with the messages of the broken ones.
"""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Asset, AssetAll, BaseOperator, Param, PartitionedAssetTimetable, get_parsing_context
from airflow.sdk.exceptions import AirflowException

from skewless.errors import SkewlessError, SpecError
from skewless.spec.reading import load_spec
from skewless.spec.schedule import RESULT_ASSET, Schedule
from skewless.spec.spec import JobSpec
from skewless_airflow.dags.task_group import STEP_DEFAULTS, aggregation_tasks
from skewless_airflow.dags.timetable import PartTimetable
from skewless_airflow.operators.find_runs import FIRST, LAST, FindSkippedOperator, FindStaleOperator
from skewless_airflow.partitions import PartMapper, parts_asset
from skewless_airflow.run_store import catalog_folder
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
        **_usual(loaded),
        "default_args": {"owner": "skewless", **STEP_DEFAULTS},
        "params": form_params(loaded),
        "tags": ["skewless"],
    }
    schedule = dag_args.pop("schedule") if "schedule" in dag_args else _timetable(loaded.schedule)
    with DAG(schedule=schedule, **{**from_spec, **dag_args}) as dag:
        ends = aggregation_tasks(path or loaded, form=True)
        if loaded.schedule.missed == "catch_up":
            find = FindSkippedOperator(task_id="find_skipped")
            ends.prepare >> find
            _trigger_each("catch_up", loaded, find)
    return dag


def _usual(spec: JobSpec) -> dict[str, Any]:
    return {
        "start_date": dt.datetime.combine(spec.schedule.start, dt.time(), ZoneInfo(spec.schedule.timezone)),
        "catchup": False,
        "max_active_runs": 1,
        # A DAG file registers the DAG by naming it; to build one elsewhere must not register it.
        "auto_register": False,
    }


def _trigger_each(task_id: str, spec: JobSpec, found: BaseOperator) -> None:
    """Trigger the runs that a task has found, one after the other, in the order of their parts.

    So the first run reads what changed, and those after it find its states.
    """
    TriggerDagRunOperator.partial(
        task_id=task_id, trigger_dag_id=spec.name, skip_when_already_exists=True, max_active_tis_per_dagrun=1
    ).expand_kwargs(found.output)


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
        **_usual(spec),
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
    }
    with DAG(schedule=dag_args.pop("schedule", None), **{**from_spec, **dag_args}) as dag:
        find = FindStaleOperator(task_id="find", spec=spec, spec_path=str(Path(path).resolve()))
        _trigger_each("restate", spec, find)
    return dag


class Catalog(NamedTuple):
    """The DAGs of the valid specs by their id, and the errors of all others."""

    dags: dict[str, DAG]
    faults: list[SkewlessError]


def read_catalog(folder: Path | None = None) -> Catalog:
    """Build the DAGs of each ``*.yaml`` and ``*.yml`` of the catalog; in a task, only the one that the task is of.

    A job with a window has a second DAG, which computes old results again.

    A task reads the file of its DAG anew. To check that Airflow accepts a DAG takes a tenth of a second, and Airflow
    has accepted that one.
    """
    wanted = get_parsing_context().dag_id
    catalog = Catalog({}, [])
    origin: dict[str, Path] = {}
    try:
        folder = folder or catalog_folder()
    except SpecError as err:
        return Catalog({}, [err])
    for path in sorted(folder.glob("*.y*ml")):
        try:
            if wanted is not None:
                spec = load_spec(path)
                if wanted == spec.name:
                    return Catalog({wanted: build_dag(path)}, [])
                if restates(spec) and wanted == restating_id(spec):
                    return Catalog({wanted: build_restating_dag(spec, path)}, [])
                continue
            dags = _sound(path)
            taken = next((dag.dag_id for dag in dags if dag.dag_id in origin), None)
            if taken is not None:
                raise SpecError(
                    f"spec {path}, field name", "a name that no other spec has",
                    f"{taken!r}, which {origin[taken].name} has", "rename one of the two",
                )  # fmt: skip
        except SkewlessError as err:
            catalog.faults.append(err)
            continue
        for dag in dags:
            origin[dag.dag_id] = path
            catalog.dags[dag.dag_id] = dag
    return catalog


def refuse_faults(catalog: Catalog) -> None:
    """Raise an error that names every broken spec, if there is any."""
    if len(catalog.faults) == 1:
        raise catalog.faults[0]
    if catalog.faults:
        raise SpecError(
            "job catalog", "specs that can be read",
            f"{len(catalog.faults)} that cannot: {' '.join(str(fault) for fault in catalog.faults)}",
        )  # fmt: skip


def _sound(path: Path) -> list[DAG]:
    """DAGs that Airflow will accept: a bad cron expression, say, which it would refuse only later, is found here."""
    from airflow.serialization.serialized_objects import DagSerialization  # noqa: PLC0415  # tasks do without it

    spec = load_spec(path)
    dags = [build_dag(path), *([build_restating_dag(spec, path)] if restates(spec) else [])]
    try:
        for dag in dags:
            dag.validate()
            DagSerialization.to_dict(dag)
    except (AirflowException, ValueError) as err:
        raise SpecError(f"spec {path}", "a DAG that Airflow accepts", " ".join(str(err).split())) from None
    return dags
