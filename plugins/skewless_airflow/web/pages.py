"""The pages: each route reads its view and renders it."""

import datetime as dt
import re
from typing import Annotated, Any, NamedTuple

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, Request, status

from skewless.run.directory import RunDirectory
from skewless.standing.tree import plan_of
from skewless_airflow.web.rendering import day, page
from skewless_airflow.web.runs import (
    AirflowRun,
    airflow_run,
    airflow_runs,
    airflow_tasks,
    coming_part,
    groups_with_runs,
    open_run,
    owners_of,
)
from skewless_airflow.web.security import READ_DAG, READ_DATA, READ_RUN, DagId, Group, RunId
from skewless_airflow.web.views.job_view import read_job, read_window
from skewless_airflow.web.views.jobs import by_need, counts_of, readable_jobs, verdict_of
from skewless_airflow.web.views.past_runs import latest_runs, read_comparisons, read_history, readers_by, verdicts
from skewless_airflow.web.views.quality_view import histories, read_quality
from skewless_airflow.web.views.run import has_stages, read_run, read_state, read_what_if
from skewless_airflow.web.views.stage_view import MOST_TASKS, decided_stages, read_decision, read_stage

router = APIRouter()

_PLAN_TASK = re.compile(r"(?:.+\.)?stage_(\d{1,4})\.plan")
#: At most so many bars for all stages of a run together, and at least so many for each stage.
_MOST_BARS, _FEWEST_BARS = 480, 12
#: How many changed parts of a window the page names one by one.
_MOST_PARTS = 60
#: The page of all jobs, which reads many runs, is made anew every so many seconds.
_JOBS_SECONDS = 20


class AskedRun(NamedTuple):
    """What the pages of a run have in common."""

    request: Request
    dag_id: str
    run_id: str
    group: str
    directory: RunDirectory
    airflow: AirflowRun | None

    @property
    def going_on(self) -> bool:
        """Whether Airflow knows the run, and it has not ended."""
        return self.airflow is not None and self.airflow.going_on

    def groups(self) -> list[str]:
        """The names of the aggregations of the DAG that the run has prepared."""
        known = groups_with_runs().get(self.dag_id, [])
        return [one for one in known if open_run(self.dag_id, self.run_id, one).exists("job.json")]

    def heading(self) -> str:
        """The job, the day and how the run stands: what tells its pages from those of other runs."""
        job, state = read_job(self.directory), read_state(self.directory)[0].sentence.partition(";")[0]
        if self.airflow and (self.going_on or self.airflow.state == "failed"):
            state = self.airflow.state
        return f"{_named(self.dag_id, self.group)}, {day(job.date if job else self.run_id)}: {state}"

    def page(self, template: str, **values: Any) -> Any:
        """Render a page about the run."""
        return page(
            self.request, template, heading=self.heading(), dag_id=self.dag_id, run_id=self.run_id, group=self.group,
            **values,
        )  # fmt: skip


def _named(dag_id: str, group: str) -> str:
    return f"{dag_id}, {group}" if group else dag_id


def asked_run(request: Request, dag_id: DagId, run_id: RunId, group: Group, session: SessionDep) -> AskedRun:
    """The run in the address."""
    directory = open_run(dag_id, run_id, group)
    return AskedRun(request, dag_id, run_id, group, directory, airflow_run(session, dag_id, run_id))


@router.get("/")
def jobs(request: Request, user: GetUserDep, session: SessionDep, find: str = "", state: str = "") -> Any:
    """All jobs that the user may read, on one page, or those with a text in their name or in a state."""
    now = dt.datetime.now(dt.UTC)
    morning = by_need(readable_jobs(user, session, now))
    heading = verdict_of(morning).capitalize() if morning else ""
    return page(
        request, "jobs.html", heading=heading, refresh=True, every=_JOBS_SECONDS, morning=morning, now=now,
        counts=counts_of(morning), find=find[:100], state=state,
    )  # fmt: skip


@router.get("/dags/{dag_id}/over-time", dependencies=READ_DAG)
def over_time(request: Request, dag_id: DagId, group: Group, session: SessionDep) -> Any:
    """The runs of a DAG side by side."""
    history = read_history(dag_id, airflow_runs(session, dag_id), group)
    return _dag_page(request, "over_time.html", dag_id, group, history=history)


@router.get("/dags/{dag_id}/comparisons", dependencies=READ_DATA)
def comparisons(request: Request, dag_id: DagId, group: Group, session: SessionDep) -> Any:
    """The nights of a job beside another one's."""
    history = read_comparisons(dag_id, airflow_runs(session, dag_id), group)
    return _dag_page(request, "comparisons.html", dag_id, group, history=history)


def _dag_page(request: Request, template: str, dag_id: str, group: str, **values: Any) -> Any:
    groups = groups_with_runs().get(dag_id, [])
    return page(request, template, heading=_named(dag_id, group), dag_id=dag_id, group=group, groups=groups, **values)


@router.get("/dags/{dag_id}/runs/{run_id}/skew", dependencies=READ_RUN)
def skew(asked: Annotated[AskedRun, Depends(asked_run)], session: SessionDep) -> Any:
    """Everything about one run."""
    dag_id, run_id, airflow = asked.dag_id, asked.run_id, asked.airflow
    tasks = airflow_tasks(session, dag_id, run_id, asked.group)
    run, ours = read_run(asked.directory, airflow, tasks), has_stages(tasks)
    if airflow is None and run.job is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"DAG {dag_id} has no run {run_id}.")
    return asked.page(
        "skew.html", refresh=asked.going_on and (ours or run.job is not None), run=run, ours=ours,
        groups=asked.groups(), airflow=airflow, owner=owners_of(session, dag_id),
        bars=max(_FEWEST_BARS, min(MOST_TASKS, _MOST_BARS // max(1, len(run.stages)))), place=str(asked.directory),
        coming="" if run.job or not ours else coming_part(session, dag_id, run_id),
    )  # fmt: skip


@router.get("/dags/{dag_id}/runs/{run_id}/parts", dependencies=READ_RUN)
def parts(asked: Annotated[AskedRun, Depends(asked_run)]) -> Any:
    """The parts of a run's window: what it read of each, and what it reused."""
    directory = asked.directory
    job = read_job(directory)
    window = read_window(directory) if job else None
    return asked.page(
        "parts.html", refresh=asked.going_on and (job is None or (window is not None and window.new_rows is None)),
        groups=asked.groups(), job=job, window=window, plan=plan_of(directory) if window else None,
        finality=directory.finality(), most=_MOST_PARTS,
    )  # fmt: skip


@router.get("/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/decision", dependencies=READ_RUN)
def decision(request: Request, dag_id: DagId, run_id: RunId, group: Group, task_id: str, session: SessionDep) -> Any:
    """The decision that a plan task took."""
    if not group:  # of the task, by the groups around it
        known = groups_with_runs().get(dag_id, [])
        group = next((part for part in reversed(task_id.split(".")[:-1]) if part in known), "")
    asked = asked_run(request, dag_id, run_id, group, session)
    named, directory = _PLAN_TASK.fullmatch(task_id), asked.directory
    stage = int(named[1]) if named else None
    found = read_decision(directory, stage) if stage is not None else None
    job = read_job(directory)
    return asked.page(
        "decision.html", refresh=named is not None and found is None and asked.going_on, task_id=task_id, stage=stage,
        decision=found, several=job is not None and len(job.key) > 1,
        before=read_stage(directory, stage - 1) if found and stage else None,
        taken=decided_stages(directory, job.last_stage) if job else [],
    )  # fmt: skip


@router.get("/dags/{dag_id}/runs/{run_id}/quality", dependencies=READ_RUN)
def quality(asked: Annotated[AskedRun, Depends(asked_run)], session: SessionDep) -> Any:
    """The quality report of a run, with the history of each check."""
    found, job, runs = read_quality(asked.directory), read_job(asked.directory), airflow_runs(session, asked.dag_id)
    past = latest_runs(asked.dag_id, runs, asked.group)
    return asked.page(
        "quality.html", refresh=found is None and asked.going_on, job=job, quality=found,
        readers=readers_by(past, job.date) if found and job and not found.success else "",
        history=histories(found.checks, verdicts(past)) if found else [],
    )  # fmt: skip


@router.get("/dags/{dag_id}/runs/{run_id}/what-if", dependencies=READ_RUN)
def what_if(asked: Annotated[AskedRun, Depends(asked_run)]) -> Any:
    """A run as it ran, and replayed under other policies."""
    return asked.page("what_if.html", told=read_what_if(asked.directory))
