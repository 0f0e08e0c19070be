"""Clusters as processes: each a driver with a Spark of its own, which can be slowed, stopped and killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from skewless.documents.commit import STAGE_SHARES, StageShares
from skewless.run.directory import RunDirectory, stage_step
from skewless_leases import open_store
from skewless_leases.lease_tables import Look, look_at
from skewless_spark.sharing import lease_address
from tests.packages import install

#: Long enough for a Spark to start beside others; a condition that is met later than this is not met.
PATIENCE_SECONDS = 200.0

#: A package of somebody's own: what takes as long as the environment of its process says.
_PACED = """
import os
import time

import numpy as np
import pyarrow as pa
from pydantic import BaseModel
from skewless.aggregates import GroupsAccumulator, PythonAggregate, number_required
from skewless.mapping import PythonMapper

class Options(BaseModel, strict=True, extra="forbid", frozen=True):
    pass

class Sums(GroupsAccumulator):
    def __init__(self, options):
        self.sums = np.zeros(0, dtype=np.int64)
    def update(self, values, groups, groups_total):
        time.sleep(len(values) * float(os.environ.get("PACE_ROW_SECONDS", "0")))
        self._add(values, groups, groups_total)
    def merge(self, states, groups, groups_total):
        self._add(states, groups, groups_total)
    def _add(self, values, groups, groups_total):
        self.sums = np.concatenate([self.sums, np.zeros(groups_total - len(self.sums), dtype=np.int64)])
        np.add.at(self.sums, groups, values.fill_null(0).to_numpy(zero_copy_only=False))
    def state(self):
        return pa.array(self.sums, pa.int64())
    def evaluate(self):
        return self.state()

PACED_SUM = PythonAggregate(
    name="paced_sum", mergeable=True, ordered=False, options=Options, accepts=number_required,
    argument_type=pa.int64(), state_type=pa.int64(), result_type=pa.int64(), create=Sums,
)

SCHEMA = pa.schema([("key", pa.string()), ("at", pa.int64())])

def create(options):
    def up_to_twice(batch):
        time.sleep(batch.num_rows * float(os.environ.get("PACE_ROW_SECONDS", "0")))
        rows = np.repeat(np.arange(batch.num_rows), batch.column("at").to_numpy() % 3)
        return pa.RecordBatch.from_arrays(
            [batch.column(name).take(pa.array(rows)).cast(SCHEMA.field(name).type) for name in SCHEMA.names],
            schema=SCHEMA,
        ), rows
    return up_to_twice

UP_TO_TWICE = PythonMapper(
    name="up_to_twice", options=Options, columns=lambda options: ("key", "at"), schema=lambda options: SCHEMA,
    create=create,
)
"""


def install_paced(folder: Path) -> Path:
    """Install the package: aggregate ``paced_sum`` and mapper ``up_to_twice``."""
    return install(
        folder, "paced", _PACED, aggregates="paced_sum = paced:PACED_SUM", mappers="up_to_twice = paced:UP_TO_TWICE"
    )


class ClusterProcess:
    """A cluster that takes part in all stages of a run; in a process group of its own, its Spark among it."""

    def __init__(self, run: RunDirectory, name: str, packages: Path | None = None, row_seconds: float = 0.0) -> None:
        self.run, self.name = run, name
        self.log = Path(f"{run.root}-{name}.log")
        paths = filter(None, (str(packages or ""), os.environ.get("PYTHONPATH")))
        self._log = self.log.open("w")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "skewless_spark.entries.pipeline", "share", "--run-dir", run.root),
                *("--cluster", name, "--master", "local[1]"),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PACE_ROW_SECONDS": str(row_seconds)},
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def kill_driver(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def ended_well(self) -> bool:
        return self.process.wait(PATIENCE_SECONDS) == 0

    def holds(self, look: Look) -> list[str]:
        """What it works on, by its leases: of what nothing has been committed."""
        committed = look.committed()
        return [
            name
            for name, row in look.allocations.items()
            if row.record.kept and name not in committed and (row.record.holder or "").startswith(f"{self.name}-")
        ]


def leases(run: RunDirectory, stage: int) -> Look:
    return look_at(open_store(lease_address(run, stage)), 0.0)


def await_that(condition: Callable[[], bool], *clusters: ClusterProcess) -> None:
    """Wait for a condition; a cluster that ends with an error meanwhile is shown."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        for cluster in clusters:
            assert cluster.process.poll() in {None, 0}, cluster.log.read_text()
        assert time.monotonic() < deadline, [cluster.log.read_text() for cluster in clusters]
        time.sleep(0.01)


def shares(run: RunDirectory) -> dict[str, int]:
    found: dict[str, int] = {}
    for stage in range(run.committed_stages()):
        commit = run.committed(stage_step(stage))
        for cluster, tasks in run.committed_document(commit, STAGE_SHARES, StageShares).done.items():
            found[cluster] = found.get(cluster, 0) + tasks
    return found
