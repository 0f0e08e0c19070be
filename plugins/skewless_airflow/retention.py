"""Pruning of run directories, as a task."""

from __future__ import annotations

import datetime as dt

import structlog

from skewless.publication.retention import Limits
from skewless_airflow.run_store import runs_folder
from skewless_lake.pruning import prune_each

log = structlog.get_logger(__name__)


def prune_runs(finished_days: int, unfinished_days: int, *, dry_run: bool) -> dict[str, int]:
    """Log what is done with each run directory of so many days and why, and do it unless this is a dry run.

    Returns:
        How many runs were kept, thinned and removed, and how many bytes were deleted.
    """
    limits = Limits(finished=dt.timedelta(days=finished_days), unfinished=dt.timedelta(days=unfinished_days))
    found = []
    for fate in prune_each(runs_folder(), dt.datetime.now(tz=dt.UTC), limits, dry_run=dry_run):
        log.info("%s%s", "dry run: " if dry_run else "", fate.sentence)
        found.append(fate)
    counts = {action: sum(one.action == action for one in found) for action in ("keep", "thin", "remove")}
    return {**counts, "bytes": sum(one.size_bytes for one in found)}
