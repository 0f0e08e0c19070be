"""Who may see what, and which names an address may contain.

Airflow mounts a plugin's app without authentication. Here every route requires a login and the permission to see
plugins, and every route about a DAG the permission to read that DAG.
"""

import re
from collections.abc import Collection
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import requires_access_dag, requires_access_view
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Path, Query, status
from fastapi.responses import Response
from sqlalchemy import select
from sqlalchemy.orm import Session

#: Pages load nothing from other hosts, run no scripts, and other sites may not frame them.
_STRICT = {
    "default-src": "'none'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'self'",
}
#: The page of a run that has not ended runs one script of ours, which reloads the page.
_REFRESHING = {**_STRICT, "script-src": "'self'", "connect-src": "'self'"}
STRICT_POLICY, REFRESHING_POLICY = (
    "; ".join(f"{name} {value}" for name, value in rules.items()) for rules in (_STRICT, _REFRESHING)
)

_DAG_ID = re.compile(r"\w[\w.-]{0,249}")
_LONGEST_RUN_ID = 250


def harden(response: Response) -> Response:
    """Set the headers that every answer has; a policy that is set already stays."""
    response.headers.setdefault("Content-Security-Policy", STRICT_POLICY)
    response.headers.setdefault("Cache-Control", "private, no-store")
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    return response


def _invalid(what: str, rule: str) -> HTTPException:
    sentence = f"The {what} in the address is not valid: it may {rule}."
    return HTTPException(status.HTTP_422_UNPROCESSABLE_CONTENT, sentence)


def shaped_dag_id(dag_id: Annotated[str, Path()]) -> str:
    """A DAG id of valid form: it becomes part of a path and of queries, so ``..`` is refused, for example."""
    if not _DAG_ID.fullmatch(dag_id):
        raise _invalid("DAG id", "contain letters, digits, dots, dashes and underscores")
    return dag_id


def known_dag_id(dag_id: Annotated[str, Depends(shaped_dag_id)], session: SessionDep) -> str:
    """The id of a DAG that Airflow knows: for any other there are no permissions to check."""
    if session.scalar(select(DagModel.dag_id).where(DagModel.dag_id == dag_id)) != dag_id:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"Airflow knows no DAG {dag_id}.")
    return dag_id


def shaped_run_id(run_id: Annotated[str, Path()]) -> str:
    """A run id that cannot be taken for a path."""
    bad = not run_id.isprintable() or len(run_id) > _LONGEST_RUN_ID or "/" in run_id or "\\" in run_id
    if bad or run_id in {"~", ".", ".."}:
        raise _invalid("run id", f"be at most {_LONGEST_RUN_ID} printable characters without a slash")
    return run_id


def shaped_group(group: Annotated[str, Query()] = "") -> str:
    """The name of one aggregation of several in a DAG, which becomes part of a path; empty for the only one."""
    if group and not _DAG_ID.fullmatch(group):
        raise _invalid("group", "contain letters, digits, dots, dashes and underscores")
    return group


def readable(user: Any, dag_ids: Collection[str], entity: DagAccessEntity, session: Session) -> set[str]:
    """Those of some DAGs whose runs, or tasks, a user may read: the permission to read a DAG does not include that."""
    teams = DagModel.get_dag_id_to_team_name_mapping(list(dag_ids), session=session)
    allowed = get_auth_manager().is_authorized_dag
    return {
        dag_id
        for dag_id in dag_ids
        if allowed(
            method="GET", access_entity=entity, details=DagDetails(id=dag_id, team_name=teams.get(dag_id)), user=user
        )
    }


#: A login and the permission to see plugins: required by every route.
LOGIN: list[Any] = [Depends(requires_access_view(AccessView.PLUGINS))]
#: The permission to read the runs of the DAG in the address, which Airflow has to know.
READ_DAG: list[Any] = [
    Depends(shaped_dag_id),
    Depends(requires_access_dag("GET", DagAccessEntity.RUN)),
    Depends(known_dag_id),
]
#: The same, and the permission to read its tasks, for what shows keys of the data.
READ_DATA: list[Any] = [*READ_DAG, Depends(requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE))]
#: The same of one run.
READ_RUN: list[Any] = [
    Depends(shaped_dag_id),
    Depends(shaped_run_id),
    Depends(requires_access_dag("GET", DagAccessEntity.RUN)),
    Depends(requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE)),
    Depends(known_dag_id),
]
DagId = Annotated[str, Depends(known_dag_id)]
RunId = Annotated[str, Depends(shaped_run_id)]
Group = Annotated[str, Depends(shaped_group)]
