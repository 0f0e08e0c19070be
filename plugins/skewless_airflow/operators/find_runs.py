"""The task that lists published results that are not up to date."""

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
from skewless_airflow.operators import end_with_sentence, ending
from skewless_airflow.run_store import data_root
from skewless_airflow.trigger_form import DATE, HOUR

log = structlog.get_logger(__name__)

#: The params of the DAG that restates: the first and the last day of published results to look at.
FIRST, LAST = "from", "to"


class FindStaleOperator(BaseOperator):
    """Returns the id and the conf of a run of the job's DAG for each result that is not up to date, oldest first.

    An id stays the same until the result is replaced or the input changes, so that no run is triggered twice.
    """

    def __init__(self, *, spec: JobSpec, spec_path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec, self.spec_path = spec, spec_path

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Compare published results with the input, in a process of its own: it imports Spark's Python."""
        zone, given = self.spec.schedule.timezone, context["params"]
        last = given.get(LAST) or str(part_at(dt.datetime.now(tz=dt.UTC), zone, "day").date)
        command = [sys.executable, "-P", "-m", "skewless_spark.entries.find_stale", "--spec", self.spec_path]
        with end_with_sentence(context):
            root = data_root()
        command += ["--root", root, "--first", str(given[FIRST]), "--last", str(last)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own command
        if done.returncode:
            before, _, sentence = done.stderr.strip().rpartition("\n")
            if before:
                log.warning(before)
            raise ending(done.returncode, sentence.removeprefix("skewless: "), context)
        found = json.loads(done.stdout)
        for one in found:
            log.info("a result is not up to date", date=one[DATE], hour=one[HOUR], reasons=one["reasons"])
        return [_run_of(one["run_name"], one[DATE], one[HOUR]) for one in found]


def _run_of(run_id: str, date: str, hour: str | None) -> dict[str, Any]:
    return {"trigger_run_id": run_id, "conf": {DATE: date, **({HOUR: hour} if hour else {})}}
