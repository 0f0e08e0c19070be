"""An auth manager with a permission of its own. Airflow imports it by name; it imports Airflow's whole API."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

from tests.airflow_face.web_scenario import FORBIDDEN_DAG


class OneDagDenied(SimpleAuthManager):
    """The simple auth manager gives everybody every DAG; this one denies a DAG to whoever is no admin."""

    def is_authorized_dag(self, *, method: Any, user: SimpleAuthManagerUser, **rest: Any) -> bool:
        details = rest.get("details")
        if details is not None and details.id == FORBIDDEN_DAG and user.username != "admin":
            return False
        return super().is_authorized_dag(method=method, user=user, **rest)
