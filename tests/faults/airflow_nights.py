"""A real Airflow, and in it one run of a small job for each trial: begun, watched, and held to the right result."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from deploy.local.rest import AirflowRest, TaskState
from skewless.run.publication.records import PUBLISHED
from tests.faults.airflow_parts import Parts
from tests.faults.harness import Outcome
from tests.load.days import FIRST, pages, write_lake, wrong_results
from tests.load.installation import Installation, installation

JOB = "nightly"
#: What has not happened by then will not.
PATIENCE_SECONDS = 420.0
#: How long an orphan may take to notice that it is one, or to end its step.
ORPHAN_SECONDS = 90.0
#: A component that was started again reports for work within that.
HEALTHY_SECONDS = 90.0
#: With Airflow's own, minutes pass until it notices a death; all of them are what its documentation says to change.
SETTINGS = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "25",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "25",
    "AIRFLOW__SCHEDULER__JOB_HEARTBEAT_SEC": "2",
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "40",
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "5",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
    # Nobody changes a DAG meanwhile.
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "900",
}
#: Stages although there is little; a dead attempt is known as one after four times as many seconds.
SPEC = {"engine": "staged", "sharing": {"lease_seconds": 1.0}}


class AirflowHarness:
    def __init__(self) -> None:
        self._held = ExitStack()

    @cached_property
    def installation(self) -> Installation:
        folder = self._held.enter_context(tempfile.TemporaryDirectory(prefix="skewless-kills-"))
        return self._held.enter_context(installation(Path(folder), [], [JOB], SETTINGS, **SPEC))

    @cached_property
    def parts(self) -> Parts:
        parts = Parts(self.installation)
        self._held.callback(parts.close)
        return parts

    def close(self) -> None:
        self._held.close()

    def ready(self) -> None:
        """Let nothing of an earlier trial, one that went wrong, be in the way of the next one."""
        deadline = time.monotonic() + HEALTHY_SECONDS
        while not self.installation.running().healthy():
            if time.monotonic() > deadline:
                self.parts.kill_all(spark=False)
                self.installation.up()
                break
            time.sleep(1)
        for run_id in self.installation.rest.active_runs(JOB):
            self.installation.rest.fail_run(JOB, run_id)


class Night:
    """A run of the job, for a day of its own that was published before; readers look at that day all the time."""

    def __init__(self, harness: AirflowHarness, seed: int) -> None:
        harness.ready()
        self._harness, self._root = harness, harness.installation.root
        self.day = (FIRST + timedelta(days=seed)).isoformat()
        write_lake(self._root, [self.day])
        self.published = self._root / "published" / JOB / f"date={self.day}"
        self.published.mkdir(parents=True)
        pq.write_table(pa.table({"page": ["before"], "visits": [1]}), self.published / "part-00000.parquet")
        self.ident = harness.installation.trigger(JOB, self.day, seed)
        self.run = harness.installation.run_of(JOB, self.ident)
        self._readers = Readers(self.published, Counter(pages(self.day)))

    def __enter__(self) -> Self:
        self._readers.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._readers.stop()

    def await_task(self, task: str, after: str) -> str:
        """Wait until a task is at work."""
        self.awaited((Path(self.run.root) / after).exists, f"{after} of {self.ident}", 0.05)

        def at_work() -> str:
            one = next(one for one in self.tasks() if one.task == task)
            assert one.state != "success", f"{task} ended before it was looked at"
            return one.try_id if one.state == "running" else ""

        return str(self.awaited(at_work, f"{task} to be at work", 0.2))

    def tasks(self) -> list[TaskState]:
        return self._rest.tasks(JOB, self.ident)

    def end(self) -> Outcome:
        """Wait for the end; if that is a failure with a sentence, clear the run once."""
        if self._ended() == "success":
            return "right"
        self._check_sentence()
        assert self._readers.last == "before", "a run that failed has published"
        self._rest.of_run("POST", JOB, self.ident, "/clear", {"dry_run": False, "only_failed": True})
        assert self._ended() == "success", f"cleared, it failed again: {self._told()}"
        return "stopped"

    def check(self) -> None:
        """The published day is right, the ledger balances, readers saw nothing else, nothing is left over."""
        root = Path(self.run.root)
        orphans = self._harness.parts.started_by
        self.awaited(lambda: not orphans(str(root)), "the last process of the run to end", 0.5, ORPHAN_SECONDS)
        self._readers.stop()
        wrong = wrong_results(self._root, self.run, JOB, self.day)
        assert not wrong, "; ".join(wrong)
        assert not self._readers.wrong, f"readers saw {self._readers.wrong}"
        assert self._readers.last == "new", "readers never saw the new result"
        assert self.run.exists(PUBLISHED), "no record of the publication"
        beside = [path.name for path in self.published.parent.iterdir() if path.name.startswith((".", "_"))]
        assert not beside, f"left beside what was published: {beside}"

    def awaited(
        self, condition: Callable[[], Any], what: str, every: float, patience_seconds: float = PATIENCE_SECONDS
    ) -> Any:
        deadline = time.monotonic() + patience_seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, f"waited {patience_seconds:.0f} s for {what}: {self._told()}"
            time.sleep(every)
        return found

    @property
    def _rest(self) -> AirflowRest:
        return self._harness.installation.rest

    def _ended(self) -> str:
        try:
            return self._rest.await_end(JOB, self.ident, PATIENCE_SECONDS)
        except TimeoutError as err:
            raise AssertionError(f"{err} {self._told()}") from None

    def _check_sentence(self) -> None:
        for one in self.tasks():
            if one.state != "failed":
                continue
            told = self._rest.of_run("GET", JOB, self.ident, f"/taskInstances/{one.task}/logs/{one.tries}")
            words = json.dumps(told["content"])
            assert ": expected " in words or "heartbeat" in words, f"{one.task} failed without a sentence"

    def _told(self) -> str:
        return ", ".join(f"{one.task} {one.state} in try {one.tries}" for one in self.tasks())


class Readers:
    """Somebody who reads a published day again and again."""

    def __init__(self, folder: Path, right: Counter[str]) -> None:
        self._folder, self._right = folder, right
        self.wrong: list[str] = []
        self.last = "before"
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def start(self) -> None:
        self._reader.start()

    def stop(self) -> None:
        """Read once more, and no longer."""
        self._over.set()
        self._reader.join()

    def _read(self) -> None:
        while True:
            over = self._over.wait(0.2)
            self._look()
            if over:
                return

    def _look(self) -> None:
        try:
            table = pq.read_table(self._folder, partitioning=None)
        except FileNotFoundError:
            if self._folder.is_dir():
                return  # exchanged between its listing and its reading: the next look finds the other one
            self.wrong.append("no folder")
            return
        rows = dict(zip(table["page"].to_pylist(), table["visits"].to_pylist(), strict=True))
        seen = "before" if rows == {"before": 1} else "new" if rows == self._right else "something else"
        if seen == "something else" or (seen == "before" and self.last == "new"):
            self.wrong.append(f"{seen} after {self.last}: {len(rows)} rows")
        self.last = seen
