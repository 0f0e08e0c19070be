"""What a run says that it has saved, beside a run under plain hashing that was really made: rows that take their time.

Eight tasks sleep side by side, also where the machine has fewer cores.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
import yaml

from skewless.documents.bill import Savings
from skewless.replay.savings import longest_seconds
from skewless.run.directory import RunDirectory
from tests.spark.clusters import install_paced
from tests.spark.scenario import write_input
from tests.spark.test_command import SKEWLESS

SLOTS, ROW_SECONDS = 8, 0.0004
#: T*: what the rows take if all slots are busy until the end.
IDEAL_SECONDS = 6.0

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


class Made(NamedTuple):
    """A run that was made, and what it says of itself."""

    run: RunDirectory
    told: dict[str, Any]

    @property
    def savings(self) -> Savings:
        """Its document."""
        found = self.run.savings()
        assert found is not None
        return found

    @property
    def longest_seconds(self) -> float:
        """What its longest tasks took, as they measured it."""
        found = longest_seconds(self.run.job(), self.run.reports())
        assert found is not None
        return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """The same input under two policies."""
    folder = tmp_path_factory.mktemp("savings")
    rows = round(IDEAL_SECONDS * SLOTS / ROW_SECONDS)
    weights = np.arange(1, 1_001) ** -1.6
    drawn = np.random.default_rng(3).choice(1_000, rows, p=weights / weights.sum())
    table = pa.table({"key": [f"key-{number}" for number in drawn], "at": pa.array([1] * rows, pa.int64())})
    write_input(folder / "data" / "input", table, files=16)
    packages = install_paced(folder / "packages")
    paths = filter(None, (str(packages), os.environ.get("PYTHONPATH")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PACE_ROW_SECONDS": str(ROW_SECONDS)}
    found = {}
    for name in ("static", "adaptive"):
        spec = {
            "name": name,
            "input": {"path": "input"},
            "key": "key",
            "aggregates": {"total": {"function": "paced_sum", "column": "at"}},
            "engine": "staged",
            "routing": {"policy": name, "reducers": SLOTS, "waves": [1, 3], "first_plan": ["sample"]},
            "output": {"path": f"published/{name}"},
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(spec))
        words = [
            "run",
            f"{name}.yaml",
            "--master",
            f"local[{SLOTS}]",
            "--run-dir",
            str(folder / "runs" / name),
            "--json",
        ]
        done = subprocess.run(
            [*SKEWLESS, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        found[name] = Made(RunDirectory(str(folder / "runs" / name)), json.loads(done.stdout))
    return found


def test_what_plain_hashing_would_have_taken_is_within_a_tenth_of_what_it_took(made: dict[str, Made]) -> None:
    ours, plain = made["adaptive"], made["static"]
    savings = ours.savings
    assert savings.seconds is not None
    assert savings.against_seconds is not None
    said, measured = savings.against_seconds - savings.seconds, plain.longest_seconds - ours.longest_seconds
    assert measured > IDEAL_SECONDS, "there is something to be saved"
    assert said == pytest.approx(measured, rel=0.1)
    assert savings.against_over_bound == pytest.approx(plain.savings.over_bound, rel=0.02)
    assert f"{savings.against_seconds:,.1f} s in place of {savings.seconds:,.1f} s" in savings.sentence
    assert ours.told["savings"]["sentence"] == savings.sentence


def test_what_adaptive_would_have_taken_is_within_a_tenth_of_what_it_took(made: dict[str, Made]) -> None:
    savings = made["static"].savings
    assert savings.seconds is not None
    assert savings.against_seconds is not None
    said = savings.seconds - savings.against_seconds
    measured = made["static"].longest_seconds - made["adaptive"].longest_seconds
    assert said == pytest.approx(measured, rel=0.1)
