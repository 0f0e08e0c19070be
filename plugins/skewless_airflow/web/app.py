"""The app: pages and ``/api/v1``, their facts as JSON, behind a login; every error is answered in one sentence."""

import datetime as dt
from collections.abc import Awaitable, Callable
from functools import cache
from http import HTTPStatus
from typing import Any, Literal

import structlog
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from skewless.errors import RunDirectoryError, SkewlessError
from skewless_airflow.web import pages
from skewless_airflow.web.rendering import STATIC, page
from skewless_airflow.web.runs import airflow_run, airflow_runs, airflow_tasks, open_run
from skewless_airflow.web.security import LOGIN, READ_DAG, READ_DATA, READ_RUN, DagId, Group, RunId, harden
from skewless_airflow.web.views.jobs import JobLine, readable_jobs
from skewless_airflow.web.views.past_runs import ComparedNight, RunLine, read_comparisons, read_history
from skewless_airflow.web.views.run import RunView, read_run

log = structlog.get_logger(__name__)

#: The files that are served, with their kinds; a path that is no name of one leads nowhere.
_FILES = {
    "skewless.css": "text/css", "refresh.js": "text/javascript", "icon.svg": "image/svg+xml",
    "icon-dark.svg": "image/svg+xml",
}  # fmt: skip
_SENTENCES = {
    HTTPStatus.UNAUTHORIZED: "Log in to Airflow first.",
    HTTPStatus.FORBIDDEN: "You have no permission to read this.",
    HTTPStatus.NOT_FOUND: "There is no such page.",
}


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1


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


class Run(_Answer):
    """A run as it stands."""

    dag_id: str
    run_id: str
    airflow_state: str | None
    state: str
    run: RunView


class Refusal(BaseModel):
    """Why there is no answer, in one sentence."""

    model_config = ConfigDict(extra="forbid")

    error: str = Field(min_length=1)


#: The errors that any route of the API may answer with.
_REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"model": Refusal, "description": "Not logged in."},
    403: {"model": Refusal, "description": "The user has no permission to read this."},
    404: {"model": Refusal, "description": "There is no such DAG, run or document."},
    422: {"model": Refusal, "description": "A part of the address is not valid."},
}
router = APIRouter(prefix="/api/v1", responses=_REFUSALS)
_RUN = "/dags/{dag_id}/runs/{run_id}"


@router.get("/openapi.json", include_in_schema=False)
@cache
def schema() -> dict[str, Any]:
    """The schema of these routes, for users with a login."""
    return get_openapi(title="Skewless", version="1", routes=router.routes)


@router.get("/dags")
def dags(user: GetUserDep, session: SessionDep) -> Dags:
    """The jobs that the user may read, each with its last run."""
    return Dags(dags=readable_jobs(user, session, dt.datetime.now(dt.UTC)))


@router.get("/dags/{dag_id}/runs", dependencies=READ_DAG)
def runs(dag_id: DagId, group: Group, session: SessionDep) -> Runs:
    """The latest run directories of a DAG, newest first."""
    history = read_history(dag_id, airflow_runs(session, dag_id), group)
    return Runs(dag_id=dag_id, total=history.total, runs=history.lines)


@router.get("/dags/{dag_id}/comparisons", dependencies=READ_DATA)
def comparisons(dag_id: DagId, group: Group, session: SessionDep) -> Comparisons:
    """The latest runs of a DAG whose results were compared with another job's, newest first."""
    history = read_comparisons(dag_id, airflow_runs(session, dag_id), group)
    return Comparisons(dag_id=dag_id, verdict=history.verdict, runs=history.nights)


@router.get(_RUN, dependencies=READ_RUN)
def run(dag_id: DagId, run_id: RunId, group: Group, session: SessionDep) -> Run:
    """A run as it stands: what its page shows."""
    airflow = airflow_run(session, dag_id, run_id)
    view = read_run(open_run(dag_id, run_id, group), airflow, airflow_tasks(session, dag_id, run_id, group))
    if airflow is None and view.job is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"DAG {dag_id} has no run {run_id}.")
    state = airflow.state if airflow else None
    return Run(dag_id=dag_id, run_id=run_id, airflow_state=state, state=view.state, run=view)


def create_app() -> FastAPI:
    """The app that Airflow mounts."""
    app = FastAPI(
        title="Skewless", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, dependencies=LOGIN
    )
    app.middleware("http")(_hardened)
    app.add_api_route("/static/{path:path}", static)
    app.include_router(router)
    app.include_router(pages.router)
    # Every other address is not found, and no one without a login learns even that.
    app.add_api_route("/{_:path}", _nothing, methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(SkewlessError, _unreadable)
    app.add_exception_handler(Exception, _broken)
    return app


async def _hardened(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    return harden(await answer(request))


def static(path: str) -> FileResponse:
    """A static file."""
    if path not in _FILES:
        raise HTTPException(HTTPStatus.NOT_FOUND, "There is no such file.")
    return FileResponse(STATIC / path, media_type=_FILES[path], headers={"Cache-Control": "private, max-age=600"})


def _nothing() -> None:
    raise HTTPException(HTTPStatus.NOT_FOUND)


def _refused(request: Request, err: Exception) -> Response:
    status = HTTPStatus(getattr(err, "status_code", HTTPStatus.INTERNAL_SERVER_ERROR))
    detail = str(getattr(err, "detail", ""))
    own = detail if detail and detail != status.phrase and status not in {401, 403} else ""
    return _sentence(request, status, own or _SENTENCES.get(status, f"{status.phrase}."), getattr(err, "headers", None))


def _not_understood(request: Request, err: Exception) -> Response:
    fault = err.errors()[0] if isinstance(err, RequestValidationError) else {"loc": ("address",), "msg": "bad"}
    sentence = f"The {fault['loc'][-1]} in the address cannot be read: {fault['msg']}."
    return _sentence(request, HTTPStatus.UNPROCESSABLE_ENTITY, sentence)


def _unreadable(request: Request, err: Exception) -> Response:
    status = HTTPStatus.NOT_FOUND if isinstance(err, RunDirectoryError) else HTTPStatus.INTERNAL_SERVER_ERROR
    return _sentence(request, status, str(err))


def _broken(request: Request, err: Exception) -> Response:
    log.error("a page failed", path=request.url.path, kind=type(err).__name__)
    sentence = "Skewless could not make this page; see the log of the API server."
    return harden(_sentence(request, HTTPStatus.INTERNAL_SERVER_ERROR, sentence))  # it passes no middleware


def _sentence(request: Request, status: HTTPStatus, sentence: str, headers: dict[str, str] | None = None) -> Response:
    path = str(request.scope["path"]).removeprefix(request.scope.get("root_path", ""))
    if path.startswith("/api/"):
        return JSONResponse({"error": sentence}, status.value, headers)
    html: Response = page(request, "error.html", status_code=status.value, sentence=sentence, phrase=status.phrase)
    html.headers.update(headers or {})
    return html
