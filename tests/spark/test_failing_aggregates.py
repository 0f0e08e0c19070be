"""Somebody's aggregate fails: one sentence with the key, its traceback, and nothing committed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.scenario import write_input
from tests.tiers import mostly_long

MODULE = """
import pyarrow as pa
from skewless.aggregates import Accumulator, PythonAggregate

class Sum(Accumulator):
    def __init__(self):
        self.total = 0
    def update(self, values):
        self.total += sum(value or 0 for value in values.to_pylist())
    def merge(self, state):
        self.total += state
    def state(self):
        return self.total
    def evaluate(self):
        return self.total

class Picky(Sum):
    def update(self, values):
        if 13 in values.to_pylist():
            raise ValueError("thirteen is bad luck")

class Hoarder(Sum):
    def state(self):
        return "x" * (257 << 20 if self.total > 90 else 1)
    def merge(self, state):
        pass

def made(name, kind, state=pa.int64()):
    return PythonAggregate.per_key(
        name=name, mergeable=True, create=lambda options: kind(), argument_type=pa.int64(), state_type=state,
        result_type=pa.int64() if state == pa.int64() else state,
    )

PICKY, HOARDER = made("picky", Picky), made("hoarder", Hoarder, pa.string())

class WrongType(Sum):
    def state(self):
        return "not a number"

LIAR = made("liar", WrongType)
"""
ENTRY_POINTS = "[skewless.aggregates]\npicky = failing:PICKY\nhoarder = failing:HOARDER\nliar = failing:LIAR\n"

RAISED = "expected update to take it, but got ValueError: thirteen is bad luck; its traceback is above;"
CASES = [
    ("picky", "staged", f"aggregate 'x' (picky), key 'unlucky': {RAISED}", 'raise ValueError("thirteen is bad luck")'),
    ("picky", "combine", f"aggregate 'x' (picky), key 'unlucky': {RAISED}", 'raise ValueError("thirteen is bad luck")'),
    ("hoarder", "combine", "aggregate 'x' (hoarder), key 'big': expected a state of at most 268,435,456 bytes", ""),
    ("liar", "combine", "aggregate 'x' (liar): expected state to take it, but got ArrowInvalid: Could not convert", ""),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with aggregates that fail, and an input with keys that make them."""
    folder = tmp_path_factory.mktemp("home")
    packages = folder / "packages"
    info = packages / "failing-1.0.dist-info"
    info.mkdir(parents=True)
    (packages / "failing.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: failing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    keys = ["good"] * 300 + ["unlucky"] * 3 + ["big"] * 2
    values = [1] * 89 + [0] * 211 + [1, 13, 2] + [90, 1]
    write_input(folder / "input", pa.table({"key": keys, "value": values}), files=4)
    return folder


@pytest.mark.parametrize(
    ("function", "engine", "sentence", "trace"),
    mostly_long(CASES, CASES[1]),
    ids=[f"{case[0]}-{case[1]}" for case in CASES],
)
def test_one_sentence_and_nothing_committed(
    home: Path, tmp_path: Path, function: str, engine: str, sentence: str, trace: str
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"{{name: failing, input: {{path: {home / 'input'}}}, key: key, engine: {engine}, "
        f"routing: {{reducers: 2, waves: [1]}}, output: {{path: published}}, "
        f"aggregates: {{x: {{function: {function}, column: value}}}}}}"
    )
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("skewless")), "run", str(spec), "--root", str(tmp_path),
            "--master", "local[2]", "--date", "2026-11-20", "--run-dir", str(tmp_path / "run"),
        ],
        env={**os.environ, "PYTHONPATH": str(home / "packages")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"skewless: {sentence}"), done.stderr[-3000:]
    assert trace in done.stderr, done.stderr[-6000:]
    assert not list((tmp_path / "run").rglob("stages/**/COMMIT.json"))
    assert not (tmp_path / "published").exists()
