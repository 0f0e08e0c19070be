"""The versions of Spark beside each other, if all are installed: equal tables, and states that each reads."""

import math
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.spark.of_version import ENGINES, JOBS, SKETCHED, SKETCHES, name_of
from tests.spark.test_native_aggregates import CASES
from tests.spark_versions import JAVAS, ROOT, VERSIONS, is_made, with_spark

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

#: When a value of a case is like another; of a sketch, like all values that it is an estimate of.
HOLDS = {name_of(case): CASES[case].holds for case in CASES}
SKETCHED_HERE = {name_of(case) for case in CASES if case.startswith(SKETCHED)}
#: How far the sketches of two nights may be apart, of the greater one.
APART = 0.12


def told(version: str, *words: object, java: str = JAVAS[0]) -> str:
    command = with_spark(version, java, "python", "-m", "tests.spark.of_version", *words)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def require_made(versions: Sequence[str]) -> None:
    if not all(map(is_made, versions)):
        pytest.skip("make test-versions makes the environments")


def like(name: str, one: Any, other: Any) -> bool:
    """Whether two values are equal; of sketches, within their error; of floating-point numbers, but for rounding."""
    if name in HOLDS:
        return HOLDS[name](one, other)
    if name in {*SKETCHES, "some"}:
        return not isinstance(one, int | float) or abs(one - other) <= APART * max(abs(one), abs(other), 100)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12) or (math.isnan(one) and math.isnan(other))
    return repr(one) == repr(other)  # NaN within a list, too


def require_like(path: Path, other: Path) -> None:
    """Require two tables to have the same keys, and like values in the columns that both have."""
    left, right = (pq.read_table(one) for one in (path, other))
    estimated = set() if other.name == "exact.parquet" else SKETCHED_HERE
    names = [name for name in left.column_names if name in right.column_names and name not in estimated]
    left, right = left.select(names), right.select(names)
    # On Spark 3.5 a merged set may hold nulls, by its type.
    typed = [
        [str(table.field(name).type).replace(" not null", "") for name in names if name not in SKETCHED_HERE]
        for table in (left, right)
    ]
    assert typed[0] == typed[1], path
    rows = [sorted(zip(*table.columns, strict=True), key=str) for table in (left, right)]
    pairs = [pair for both in zip(*rows, strict=True) for pair in zip(names, *both, strict=True)]
    odd = [(name, one, two) for name, one, two in pairs if not like(name, one.as_py(), two.as_py())]
    assert odd == [], path


def test_twenty_jobs_have_equal_tables_on_each_version(tmp_path: Path) -> None:
    require_made(VERSIONS)
    with ThreadPoolExecutor(2) as two:
        list(two.map(lambda version: told(version, tmp_path / version), VERSIONS))
    for table in (f"{engine}-{job}.parquet" for engine in ENGINES for job in range(JOBS)):
        for version in VERSIONS:
            require_like(tmp_path / version / table, tmp_path / version / "exact.parquet")
            require_like(tmp_path / version / table, tmp_path / VERSIONS[-1] / table)


@pytest.mark.parametrize("makers", [VERSIONS[:3] + VERSIONS[4:], VERSIONS[2:]], ids=["states", "sketches"])
def test_states_that_one_version_keeps_each_other_one_reads(tmp_path: Path, makers: tuple[str, ...]) -> None:
    """A night of each version, on two Javas in turn, and then the same night of each: all read what all have made."""
    require_made(makers)
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
