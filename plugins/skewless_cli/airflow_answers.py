"""A process that imports Airflow, to ask it: ``python -m skewless_cli.airflow_answers CONNECTION ...``.

Its last line on standard output is one JSON object. Airflow's imports write to both outputs, and may hang.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any


def answers(connections: Sequence[str]) -> dict[str, Any]:
    """The names of the loaded plugins; type and host of each connection, null for one that is not there."""
    from airflow.models.connection import Connection  # noqa: PLC0415  # this module is also imported without it
    from airflow.plugins_manager import get_plugin_info  # noqa: PLC0415
    from airflow.sdk.exceptions import AirflowNotFoundException  # noqa: PLC0415
    from airflow.utils.session import create_session  # noqa: PLC0415
    from sqlalchemy import select  # noqa: PLC0415

    plugins = [one["name"] for one in get_plugin_info()]
    with create_session() as session:  # else a database that does not answer would be one without connections
        session.execute(select(Connection.conn_id).limit(1))
    found: dict[str, dict[str, str] | None] = {}
    for name in connections:
        try:
            one = Connection.get_connection_from_secrets(name)
        except AirflowNotFoundException:
            found[name] = None
        else:
            found[name] = {"type": one.conn_type or "", "host": one.host or ""}
    return {"plugins": plugins, "connections": found}


if __name__ == "__main__":
    try:
        told = answers(sys.argv[1:])
    except Exception as err:  # noqa: BLE001  # whatever it is, the doctor says it in its line
        told = {"error": f"{type(err).__name__}: {err}".splitlines()[0][:200]}
    sys.stdout.write(f"\n{json.dumps(told)}\n")
