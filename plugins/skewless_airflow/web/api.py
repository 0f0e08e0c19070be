"""``/api/v1``: the facts of the pages as JSON, with the same permissions."""

from __future__ import annotations

import datetime as dt
import json
from functools import cache
from typing import Any, Literal

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, HTTPException, Request, status
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_jsonable_python

from skewless.document import Document
from skewless.documents.decision import Decision
from skewless.documents.stage_report import StageReport
from skewless_airflow.web.airflow_runs import airflow_run, airflow_runs, airflow_tasks
from skewless_airflow.web.pages import readable_jobs
from skewless_airflow.web.run_folders import open_run
from skewless_airflow.web.security import READ_DAG, READ_DATA, READ_RUN, DagId, Group, RunId, harden
from skewless_airflow.web.views.history import ComparedNight, RunLine, read_comparisons, read_history
from skewless_airflow.web.views.jobs import JobLine
from skewless_airflow.web.views.run import RunView, WhatIfView, read_run, read_what_if


class Refusal(BaseModel):
    """Why there is no answer, in one sentence."""

    model_config = ConfigDict(extra="forbid")

    error: str = Field(min_length=1)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Literal[1]


class Dags(_Answer):
    """The jobs that the user may read."""

    dags: tuple[JobLine, ...]


class Runs(_Answer):
    """The latest runs of a DAG, newest first; ``total`` is how many there are in all."""

    dag_id: str
    total: int = Field(ge=0)
    runs: tuple[RunLine, ...]


class Comparisons(_Answer):
    """The latest runs of a DAG that were compared with another job, newest first."""

    dag_id: str
    verdict: str
    runs: tuple[ComparedNight, ...]


class _OfRun(_Answer):
    dag_id: str
    run_id: str


class Run(_OfRun):
    """A run as it stands."""

    airflow_state: str | None
    state: str
    run: RunView


class WhatIf(_OfRun):
    """A run under other policies."""

    what_if: WhatIfView


#: The errors that any route may answer with.
_REFUSALS = {
    401: "Not logged in.",
    403: "The user has no permission to read this.",
    404: "There is no such DAG, run or document.",
    422: "A part of the address is not valid.",
}


def answers(good: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The answers of a route, for its schema."""
    refused: dict[int | str, dict[str, Any]] = {
        code: {"model": Refusal, "description": words} for code, words in _REFUSALS.items()
    }
    return {200: {"model": good, "description": (good.__doc__ or "").partition("\n")[0]}, **refused}


VERSION = 1
_PATH = f"/api/v{VERSION}"
router = APIRouter(prefix=_PATH)
_RUN = "/dags/{dag_id}/runs/{run_id}"


def is_asked(request: Request) -> bool:
    """Whether a request is for the API, so that errors are answered as JSON."""
    mount = request.scope.get("root_path", "")
    return str(request.scope["path"]).removeprefix(mount).startswith("/api/")


@router.get("/openapi.json", include_in_schema=False)
def schema() -> Any:
    """The schema of these routes, for users with a login."""
    return harden(Response(json.dumps(_schema()), media_type="application/json"))


@cache
def _schema() -> dict[str, Any]:
    return get_openapi(title="Skewless", version=str(VERSION), routes=router.routes)


@router.get("/dags", responses=answers(Dags))
def dags(user: GetUserDep, session: SessionDep) -> Any:
    """The jobs that the user may read, each with its last run."""
    return _answer(dags=[row.job for row in readable_jobs(user, session, dt.datetime.now(dt.UTC))])


@router.get("/dags/{dag_id}/runs", dependencies=READ_DAG, responses=answers(Runs))
def runs(dag_id: DagId, group: Group, session: SessionDep) -> Any:
    """The latest run directories of a DAG, newest first."""
    history = read_history(dag_id, airflow_runs(session, dag_id), group)
    return _answer(dag_id=dag_id, total=history.total, runs=history.lines)


@router.get("/dags/{dag_id}/comparisons", dependencies=READ_DATA, responses=answers(Comparisons))
def comparisons(dag_id: DagId, group: Group, session: SessionDep) -> Any:
    """The latest runs of a DAG whose results were compared with another job's, newest first."""
    history = read_comparisons(dag_id, airflow_runs(session, dag_id), group)
    return _answer(dag_id=dag_id, verdict=history.verdict, runs=history.nights)


@router.get(_RUN, dependencies=READ_RUN, responses=answers(Run))
def run(dag_id: DagId, run_id: RunId, group: Group, session: SessionDep) -> Any:
    """A run as it stands: what its page shows."""
    airflow = airflow_run(session, dag_id, run_id)
    found = read_run(open_run(dag_id, run_id, group), airflow, airflow_tasks(session, dag_id, run_id, group))
    if airflow is None and found.job is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"DAG {dag_id} has no run {run_id}.")
    return _answer(
        dag_id=dag_id, run_id=run_id, airflow_state=airflow.state if airflow else None, state=found.state, run=found
    )


@router.get(_RUN + "/stages/{stage}", dependencies=READ_RUN, responses=answers(StageReport))
def stage_report(dag_id: DagId, run_id: RunId, group: Group, stage: int) -> Any:
    """The report of a committed stage, as the stage wrote it."""
    return _document(open_run(dag_id, run_id, group).report(_whole(stage)))


@router.get(_RUN + "/decisions/{stage}", dependencies=READ_RUN, responses=answers(Decision))
def stage_decision(dag_id: DagId, run_id: RunId, group: Group, stage: int) -> Any:
    """The decision about a stage, as the planner wrote it."""
    return _document(open_run(dag_id, run_id, group).decision(_whole(stage)))


@router.get(_RUN + "/what-if", dependencies=READ_RUN, responses=answers(WhatIf))
def what_if(dag_id: DagId, run_id: RunId, group: Group) -> Any:
    """A run under other policies."""
    return _answer(dag_id=dag_id, run_id=run_id, what_if=read_what_if(open_run(dag_id, run_id, group)))


def _whole(stage: int) -> int:
    if not 0 <= stage <= 9999:
        raise HTTPException(status.HTTP_422_UNPROCESSABLE_CONTENT, "A stage is a number from 0 to 9999.")
    return stage


def _document(document: Document) -> Response:
    return harden(Response(document.to_json(), media_type="application/json"))


def _answer(**values: Any) -> Response:
    content = to_jsonable_python({"version": VERSION, **values})
    return harden(Response(json.dumps(content), media_type="application/json"))
