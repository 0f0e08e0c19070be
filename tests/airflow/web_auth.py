"""An auth manager with permissions of its own. Airflow imports it by name; it imports Airflow's whole API."""

from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

from tests.airflow.web_scenario import FORBIDDEN_DAG, NO_RUNS, NO_TASKS

#: What each may not read of any DAG.
_DENIED = {NO_RUNS: DagAccessEntity.RUN, NO_TASKS: DagAccessEntity.TASK_INSTANCE}


class SomeDenied(SimpleAuthManager):
    """The simple auth manager gives everybody every DAG.

    This one denies a DAG to whoever is no admin, runs to one user, and tasks to another.
    """

    def is_authorized_dag(self, *, method: Any, user: SimpleAuthManagerUser, **rest: Any) -> bool:
        details = rest.get("details")
        if details is not None and details.id == FORBIDDEN_DAG and user.username != "admin":
            return False
        if rest.get("access_entity") is _DENIED.get(user.username, object()):
            return False
        return super().is_authorized_dag(method=method, user=user, **rest)
