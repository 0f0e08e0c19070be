"""A task that finds the published results of a job whose window covers a part that has changed since."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from typing import Any

import structlog
from airflow.sdk import BaseOperator, Context

from skewless.spec.part import part_at
from skewless.spec.spec import JobSpec
from skewless_airflow.operators.ending import ending
from skewless_airflow.places import data_root
from skewless_airflow.trigger_form import DATE, HOUR

log = structlog.get_logger(__name__)

#: The params of the DAG: the first and the last day of published results to look at.
FIRST, LAST = "from", "to"


class FindStaleOperator(BaseOperator):
    """Returns the id and the conf of a run of the job's DAG for each result that is not up to date, oldest first.

    An id stays the same until the result is replaced or the input changes, so that no run is triggered twice.

    Args:
        spec: the spec.
        spec_path: its file.
    """

    def __init__(self, *, spec: JobSpec, spec_path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec = spec
        self.spec_path = spec_path

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Compare published results with the input, in a process of its own: it imports Spark's Python."""
        zone, given = self.spec.schedule.timezone, context["params"]
        last = given.get(LAST) or str(part_at(dt.datetime.now(tz=dt.UTC), zone, "day").date)
        command = [sys.executable, "-P", "-m", "skewless_spark.entries.find_stale", "--spec", self.spec_path]
        command += ["--root", data_root(), "--first", str(given[FIRST]), "--last", str(last)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own command
        if done.returncode:
            log.error(done.stderr)
            raise ending(done.returncode, done.stderr.strip().rpartition("\n")[2].removeprefix("skewless: "))
        found = json.loads(done.stdout)
        for one in found:
            log.info("a result is not up to date", date=one[DATE], hour=one[HOUR], reasons=one["reasons"])
        return [_run_of(one) for one in found]


def _run_of(stale: dict[str, Any]) -> dict[str, Any]:
    conf = {DATE: stale[DATE], **({HOUR: stale[HOUR]} if stale[HOUR] else {})}
    return {"trigger_run_id": stale["run_name"], "conf": conf}
