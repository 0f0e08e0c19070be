"""The task that lists published results that are not up to date."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import structlog
from airflow.sdk import BaseOperator, Context

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

    def __init__(self, *, spec_path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec_path = spec_path

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Ask ``skewless restate --dry-run``, which imports Spark's Python, in a process of its own."""
        with end_with_sentence(context):
            command = [sys.executable, "-P", "-m", "skewless_cli.main", "restate", self.spec_path]
            command += ["--dry-run", "--json", "--root", data_root(), "--from", str(context["params"][FIRST])]
        if last := context["params"].get(LAST):
            command += ["--to", str(last)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own command
        if done.returncode:
            before, _, sentence = done.stderr.strip().rpartition("\n")
            if before:
                log.warning(before)
            raise ending(done.returncode, sentence.removeprefix("skewless: "), context)
        runs = []
        for result in json.loads(done.stdout)["results"]:
            log.info("a result is not up to date", part=result["part"], reasons=result["reasons"])
            conf = {name: result[name] for name in (DATE, HOUR) if result[name]}
            runs.append({"trigger_run_id": result["run_name"], "conf": conf})
        return runs
