"""The versions of Spark beside each other: kept states that each reads of all others."""

import math
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.spark.of_version import SKETCHES
from tests.spark_versions import JAVAS, ROOT, VERSIONS, with_spark

made = (ROOT / ".spark-versions").is_dir()
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not made, reason="make test-versions makes the environments"),
]

#: The columns of sketches, of which two results may be so far apart, of the greater one.
APPROXIMATE = {*SKETCHES, "some"}
APART = 0.12


def told(version: str, *words: object, java: str = JAVAS[0]) -> str:
    command = with_spark(version, java, "python", "-m", "tests.spark.of_version", *words)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def like(name: str, one: Any, other: Any) -> bool:
    """Whether two values are equal; of sketches, within their error; of floating-point numbers, but for rounding."""
    if name in APPROXIMATE:
        return not isinstance(one, int | float) or abs(one - other) <= APART * max(abs(one), abs(other), 100)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12) or (math.isnan(one) and math.isnan(other))
    return repr(one) == repr(other)  # NaN within a list, too


def require_like(path: Path, other: Path) -> None:
    """Require two tables to have the same keys, and like values in the columns that both have."""
    left, right = (pq.read_table(one) for one in (path, other))
    names = [name for name in left.column_names if name in right.column_names]
    left, right = left.select(names), right.select(names)
    assert [field.type for field in left.schema] == [field.type for field in right.schema], path
    rows = [sorted(zip(*table.columns, strict=True), key=str) for table in (left, right)]
    pairs = [pair for both in zip(*rows, strict=True) for pair in zip(names, *both, strict=True)]
    odd = [(name, one, two) for name, one, two in pairs if not like(name, one.as_py(), two.as_py())]
    assert odd == [], path


@pytest.mark.parametrize("makers", [VERSIONS[:3] + VERSIONS[4:], VERSIONS[2:]], ids=["states", "sketches"])
def test_states_that_one_version_keeps_each_other_one_reads(tmp_path: Path, makers: tuple[str, ...]) -> None:
    """A night of each version, on two Javas in turn, and then the same night of each: all read what all have made."""
    shared = tmp_path / "shared"
    shared.mkdir()
    if makers[0] != VERSIONS[0]:
        (shared / "sketches").touch()
    for day, version in enumerate(makers):
        assert told(version, shared, day, day, java=JAVAS[day % 2]).endswith(f"reused {day}\n")
    for number, version in enumerate(makers):
        reused = told(version, shared, len(makers) - 1, 10 + number, java=JAVAS[number % 2])
        assert reused.endswith(f"reused {len(makers)}\n")
    alone = tmp_path / "alone"
    (alone / "lake").parent.mkdir()
    if (shared / "sketches").exists():
        (alone / "sketches").touch()
    (alone / "lake").symlink_to(shared / "lake")
    assert told(makers[-1], alone, len(makers) - 1, 0).endswith("reused 0\n")
    for number in range(len(makers)):
        require_like(shared / f"{10 + number}.parquet", alone / "0.parquet")
