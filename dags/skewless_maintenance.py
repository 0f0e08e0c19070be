"""Maintenance: once a week, run directories that are no longer needed are thinned or removed."""

import datetime as dt
from typing import Any

from airflow.sdk import Param, dag, task


@dag(
    "skewless_maintenance",
    schedule="30 5 * * 0",
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    catchup=False,
    max_active_runs=1,
    tags=["skewless-maintenance"],
    doc_md="Thins and removes old run directories. It never touches the two newest finished runs of a job, young "
    "unfinished runs, and the documents of a run whose result is the published one. The task log says for each run "
    "what is done with it, and why.",
    params={
        "finished_days": Param(30, type="integer", minimum=1, title="Days that finished runs are kept"),
        "unfinished_days": Param(7, type="integer", minimum=1, title="Days that unfinished runs are kept"),
        "dry_run": Param(False, type="boolean", title="Dry run: only log what would be removed"),
    },
)
def maintenance() -> None:
    """One task."""

    @task
    def prune(params: dict[str, Any] | None = None) -> dict[str, int]:
        """Log what is done with each run, and do it."""
        from skewless_airflow.run_store import prune_runs  # noqa: PLC0415  # a DAG file is parsed often

        given = params or {}
        return prune_runs(given["finished_days"], given["unfinished_days"], dry_run=given["dry_run"])

    prune()


maintenance()
