"""The pages: each route reads its view and renders it."""

from __future__ import annotations

import re
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, HTTPException, Query, Request, status

from skewless.errors import nearest
from skewless.planner.policies import POLICIES
from skewless.standing.kept_merges import choice_of
from skewless_airflow.web.airflow_runs import (
    airflow_run,
    airflow_runs,
    airflow_tasks,
    coming_part,
    schedules,
    tagged_dags,
)
from skewless_airflow.web.rendering.template import page
from skewless_airflow.web.run_folders import groups_with_runs, open_run
from skewless_airflow.web.security import READ_DAG, READ_RUN, DagId, Group, RunId, with_readable_runs
from skewless_airflow.web.views.decision import decided_stages, read_decision
from skewless_airflow.web.views.history import LATEST_RUNS, JobRow, read_history, read_jobs, series, verdicts
from skewless_airflow.web.views.job import read_job
from skewless_airflow.web.views.parts_over_time import read_parts_history
from skewless_airflow.web.views.quality import histories, read_quality
from skewless_airflow.web.views.run import has_stages, read_run
from skewless_airflow.web.views.stage import MOST_TASKS, read_stage, read_stages
from skewless_airflow.web.views.what_if import read_what_if
from skewless_airflow.web.views.window import read_window, saving

router = APIRouter()

_PLAN_TASK = re.compile(r"(?:.+\.)?stage_(\d{1,4})\.plan")
#: At most so many bars for all stages of a run together, and at least so many for each stage.
_MOST_BARS, _FEWEST_BARS = 480, 12
#: How many changed parts of a window the page names one by one; the calendar has all.
_MOST_PARTS = 60
#: After so many seconds the page of replays shows those that are done, and asks for the others later.
_PATIENCE_SECONDS = 3.0
#: A replay of a large run takes up to a minute, so the number of policies in a request is limited.
Policies = Annotated[list[str], Query(alias="policy", max_length=2 * len(POLICIES))]


@router.get("/")
def jobs(request: Request, user: GetUserDep, session: SessionDep) -> Any:
    """All jobs that the user may read."""
    return page(request, "jobs.html", jobs=readable_jobs(user, session, LATEST_RUNS))


def readable_jobs(user: Any, session: Any, most: int) -> tuple[JobRow, ...]:
    """The jobs that the user may read, DAGs with our tag or with run directories, each with at most ``most`` runs.

    Of a DAG whose runs the user may not read, there are no runs, and not their number either.
    """
    allowed = get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)
    groups = groups_with_runs()
    ours = (tagged_dags(session) | groups.keys()) & allowed
    runs = {dag_id: airflow_runs(session, dag_id, most=30) for dag_id in with_readable_runs(user, ours, session)}
    names = {dag_id: groups.get(dag_id) or [""] for dag_id in ours}
    return read_jobs(names, schedules(session, sorted(ours)), runs, most)


@router.get("/dags/{dag_id}/over-time", dependencies=READ_DAG)
def over_time(request: Request, dag_id: DagId, group: Group, session: SessionDep) -> Any:
    """The runs of a DAG side by side."""
    history = read_history(dag_id, airflow_runs(session, dag_id), group)
    return page(
        request,
        "over_time.html",
        dag_id=dag_id,
        group=group,
        groups=groups_with_runs().get(dag_id, []),
        history=history,
        series=series(history),
    )


@router.get("/dags/{dag_id}/parts", dependencies=READ_DAG)
def parts_over_time(request: Request, dag_id: DagId, group: Group, session: SessionDep) -> Any:
    """The parts of a job with a window, over its runs."""
    return page(
        request,
        "parts_over_time.html",
        dag_id=dag_id,
        group=group,
        groups=groups_with_runs().get(dag_id, []),
        history=read_parts_history(dag_id, airflow_runs(session, dag_id), group),
    )


@router.get("/dags/{dag_id}/runs/{run_id}/skew", dependencies=READ_RUN)
def skew(request: Request, dag_id: DagId, run_id: RunId, group: Group, session: SessionDep) -> Any:
    """Everything about one run."""
    airflow, directory = airflow_run(session, dag_id, run_id), open_run(dag_id, run_id, group)
    tasks = airflow_tasks(session, dag_id, run_id, group)
    run, ours = read_run(directory, airflow, tasks), has_stages(tasks)
    if airflow is None and run.job is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"DAG {dag_id} has no run {run_id}.")
    return page(
        request,
        "skew.html",
        refresh=airflow is not None and airflow.going_on and (ours or run.job is not None),
        dag_id=dag_id,
        run_id=run_id,
        group=group,
        run=run,
        ours=ours,
        groups=_groups_with_job(dag_id, run_id),
        airflow=airflow,
        bars=max(_FEWEST_BARS, min(MOST_TASKS, _MOST_BARS // max(1, len(run.stages)))),
        place=str(directory),
        coming="" if run.job or not ours else coming_part(session, dag_id, run_id),
    )


@router.get("/dags/{dag_id}/runs/{run_id}/parts", dependencies=READ_RUN)
def parts(request: Request, dag_id: DagId, run_id: RunId, group: Group, session: SessionDep) -> Any:
    """The parts of a run's window: what it read of each, and what it reused."""
    directory, airflow = open_run(dag_id, run_id, group), airflow_run(session, dag_id, run_id)
    job = read_job(directory)
    window, report = read_window(directory) if job else None, directory.quality()
    going_on = airflow is not None and airflow.going_on
    return page(
        request,
        "parts.html",
        refresh=going_on and (job is None or (window is not None and window.new_rows is None)),
        dag_id=dag_id,
        run_id=run_id,
        group=group,
        groups=_groups_with_job(dag_id, run_id),
        job=job,
        window=window,
        saved=saving(window, read_stages(directory)) if window else None,
        choice=choice_of(directory) if window else None,
        measured=report.window if report else None,
        most=_MOST_PARTS,
    )


@router.get("/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/decision", dependencies=READ_RUN)
def decision(request: Request, dag_id: DagId, run_id: RunId, group: Group, task_id: str, session: SessionDep) -> Any:
    """The decision that a plan task took."""
    named, group = _PLAN_TASK.fullmatch(task_id), group or _group_of(dag_id, task_id)
    directory = open_run(dag_id, run_id, group)
    stage = int(named[1]) if named else None
    found = read_decision(directory, stage) if stage is not None else None
    job, airflow = read_job(directory), airflow_run(session, dag_id, run_id)
    return page(
        request,
        "decision.html",
        refresh=named is not None and found is None and airflow is not None and airflow.going_on,
        dag_id=dag_id,
        run_id=run_id,
        group=group,
        task_id=task_id,
        stage=stage,
        decision=found,
        before=read_stage(directory, stage - 1) if found and stage else None,
        taken=decided_stages(directory, job.last_stage) if job else [],
    )


def _groups_with_job(dag_id: str, run_id: str) -> list[str]:
    """The names of the aggregations of a DAG that a run has prepared."""
    return [one for one in groups_with_runs().get(dag_id, []) if open_run(dag_id, run_id, one).exists("job.json")]


def _group_of(dag_id: str, task_id: str) -> str:
    """The name of the aggregation that a task belongs to, from the groups around it; "" for the only one of a DAG."""
    known = groups_with_runs().get(dag_id, [])
    return next((part for part in reversed(task_id.split(".")[:-1]) if part in known), "")


@router.get("/dags/{dag_id}/runs/{run_id}/quality", dependencies=READ_RUN)
def quality(request: Request, dag_id: DagId, run_id: RunId, group: Group, session: SessionDep) -> Any:
    """The quality report of a run, with the history of each check."""
    directory, airflow = open_run(dag_id, run_id, group), airflow_run(session, dag_id, run_id)
    found, job = read_quality(directory), read_job(directory)
    past = verdicts(dag_id, airflow_runs(session, dag_id), group) if found else []
    return page(
        request,
        "quality.html",
        refresh=found is None and airflow is not None and airflow.going_on,
        dag_id=dag_id,
        run_id=run_id,
        group=group,
        job=job,
        quality=found,
        history=histories(found.checks, past) if found else [],
    )


@router.get("/dags/{dag_id}/runs/{run_id}/what-if", dependencies=READ_RUN)
async def what_if(request: Request, dag_id: DagId, run_id: RunId, group: Group, policies: Policies = []) -> Any:  # noqa: B006  # FastAPI's
    """A run as it ran, and replayed under other policies."""
    chosen = known_policies(policies)
    told = await read_what_if(open_run(dag_id, run_id, group), chosen, _PATIENCE_SECONDS)
    return page(
        request,
        "what_if.html",
        refresh=bool(told.pending),
        dag_id=dag_id,
        run_id=run_id,
        group=group,
        told=told,
        chosen=chosen,
        policies=tuple(POLICIES),
    )


def known_policies(names: list[str]) -> tuple[str, ...]:
    """The policies of a request, each once.

    Raises:
        HTTPException: there is no such policy.
    """
    for name in names:
        if name not in POLICIES:
            hint = nearest(name[:50], POLICIES)
            raise HTTPException(status.HTTP_422_UNPROCESSABLE_CONTENT, f"There is no such policy; {hint}")
    return tuple(dict.fromkeys(names))
