"""The code of docs/migrate.md runs: before and after give the same answers, and a comparison sees what differs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from deploy import PROJECT
from tests.packages import install
from tests.spark import migration
from tests.spark.scenario import write_input

pytestmark = pytest.mark.long

ROWS = 12_000


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("migrate")
    write_input(root / "clicks", _clicks(), files=10)
    packages = _installed(tmp_path_factory.mktemp("packages"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.migration", str(root)],
        cwd=PROJECT, env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads((root / "outcome.json").read_text())
    return found


@pytest.mark.parametrize("mode", ["static", "run"])
@pytest.mark.parametrize("name", migration.OLD)
def test_before_and_after_give_the_same_answer(outcome: dict[str, Any], name: str, mode: str) -> None:
    found = outcome[name]
    assert found[mode]["differences"] == 0
    assert found[mode]["new_keys"] == found["old_keys"] > 20


@pytest.mark.parametrize("name", migration.OLD)
def test_the_run_aside_goes_into_another_folder(outcome: dict[str, Any], name: str) -> None:
    assert outcome[name]["static"]["path"] == f"compare/{name}/date=2026-11-20"
    assert outcome[name]["run"]["path"] == f"marts/{name}/date=2026-11-20"


def test_a_hot_key_is_split_where_all_aggregates_can_be_merged_and_only_there(outcome: dict[str, Any]) -> None:
    assert outcome["visits_by_page"]["run"]["split"] > 0
    assert outcome["times_by_page"]["run"]["split"] == 0, "the median beside it keeps keys whole"


def test_the_comparison_finds_what_differs_and_nothing_else(outcome: dict[str, Any]) -> None:
    assert outcome["differences"] == {
        "a count too many": 1, "a key missing": 1, "a key too many": 1, "another rounding": 0, "another mean": 1,
        "a null for a number": 1,
    }  # fmt: skip


def test_every_spec_of_the_page_is_run() -> None:
    assert list(migration.specs()) == list(migration.OLD)
    assert len(re.findall(r"^ *```(?:python|yaml)$", migration.PAGE, re.MULTILINE)) == len(
        migration.blocks("python") + migration.blocks("yaml")
    )


def _clicks() -> pa.Table:
    """Clicks of which one page has a third, with missing pages and times, and no time twice."""
    rng = np.random.default_rng(11)
    pages = [f"/{number}" for number in np.minimum(rng.zipf(1.6, ROWS), 60)]
    return pa.table(
        {
            "site": pa.array(np.where(rng.random(ROWS) < 0.8, "ch", "de")),
            "page": pa.array(pages, mask=rng.random(ROWS) < 0.02),
            "visitor": pa.array(rng.integers(0, 900, ROWS)),
            "ms": pa.array(rng.permutation(ROWS), mask=rng.random(ROWS) < 0.05),
        }
    )


def _installed(folder: Path) -> Path:
    (code,) = [block for block in migration.blocks("python") if "TRIMMED_MEAN" in block]
    return install(folder, "trimmed", code, aggregates="trimmed_mean = trimmed:TRIMMED_MEAN")
