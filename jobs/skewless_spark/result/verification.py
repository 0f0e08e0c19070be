"""Compares the result that was made of kept states with that of a run that has read all rows."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from skewless.documents.job import Job
from skewless.errors import InputError
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless_spark.states.committed_files import RESULT, read_files

#: Aggregates whose result depends on the order in which states are merged, within their stated error.
APPROXIMATE = frozenset(
    {
        "approx_count_distinct", "approx_percentile", "approx_top_k", "percentile_approx", "space_saving",
        "streaming_histogram", "theta_sketch_estimate",
    }
)  # fmt: skip
#: Sums of floating-point numbers are rounded at each step: relative to the larger of two results.
ROUNDING = 1e-9


class Differences(NamedTuple):
    """How two results over the same input differ.

    Attributes:
        keys: how many keys there are in either.
        missing_keys: how many are in one of them only.
        exact: for each aggregate that must be equal, how many keys have another value.
        approximate: the same of aggregates that are equal within their error only.
    """

    keys: int
    missing_keys: int
    exact: dict[str, int]
    approximate: dict[str, int]

    @property
    def found(self) -> bool:
        """Whether the kept states are wrong."""
        return bool(self.missing_keys or any(self.exact.values()))


def require_same_input(kept: Job, whole: Job) -> None:
    """Refuse to compare runs that have found different files.

    Raises:
        InputError: names the part.
    """
    left_out = next((part for part in kept.window.parts if part.ignored_files), None) if kept.window else None
    if left_out is not None:
        raise InputError(
            f"part {left_out.name}", "states of all files that there are", f"{left_out.ignored_files:,} left out",
            "verify with late: recompute, which takes them in",
        )  # fmt: skip
    now = _files(whole)
    for name, files in _files(kept).items():
        if files != now.pop(name, None):
            raise InputError(f"part {name}", "the same files for both runs", "others", "try again")
    if now:
        raise InputError(f"part {min(now)}", "the same files for both runs", "some for one only", "try again")


def _files(job: Job) -> dict[str, list[tuple[str, int]]]:
    parts = job.window.parts if job.window else ()
    return {part.name: [(file.path, file.size_bytes) for file in part.files] for part in parts}


def differences(spark: SparkSession, kept: RunDirectory, whole: RunDirectory) -> Differences:
    """Compare the merged results of two runs of one job, key by key.

    Args:
        spark: the session.
        kept: the run that used kept states.
        whole: the run that has read all rows.

    Raises:
        InputError: the two have read different files.
    """
    job = kept.job()
    require_same_input(job, whole.job())
    keys = [f"k{number}" for number in range(len(job.spec.result_key))]
    ours, theirs = _numbered(spark, kept, "a"), _numbered(spark, whole, "b")
    same_key = F.lit(True)
    for key in keys:
        same_key = same_key & F.col(f"a.{key}").eqNullSafe(F.col(f"b.{key}"))
    both = ours.alias("a").join(theirs.alias("b"), same_key, "full")
    there = F.col("a_there").isNotNull() & F.col("b_there").isNotNull()
    calls = list(job.spec.aggregates.items())
    counts = [F.count(F.lit(1)).alias("keys"), F.count(F.when(~there, 1)).alias("missing")]
    for number in range(len(calls)):
        kind = ours.schema[f"a{number}"].dataType
        same = _alike(F.col(f"a{number}"), F.col(f"b{number}"), rounded=isinstance(kind, DoubleType | FloatType))
        counts.append(F.count(F.when(there & ~same, 1)).alias(f"d{number}"))
    found = both.agg(*counts).collect()[0]
    differing = {name: int(found[f"d{number}"]) for number, (name, _) in enumerate(calls)}
    approximate = {name for name, call in calls if call.function in APPROXIMATE}
    return Differences(
        keys=int(found["keys"]),
        missing_keys=int(found["missing"]),
        exact={name: count for name, count in differing.items() if name not in approximate},
        approximate={name: count for name, count in differing.items() if name in approximate},
    )


def _numbered(spark: SparkSession, run: RunDirectory, prefix: str) -> DataFrame:
    """A result with its columns by number: ``k0``, ... and, behind the prefix, the aggregates."""
    spec = run.job().spec
    frame = read_files(spark, run, run.committed(RESULT_STEP).of_kind(RESULT))
    names = [*(f"k{number}" for number in range(len(spec.result_key)))]
    names += [f"{prefix}{number}" for number in range(len(spec.aggregates))]
    return frame.toDF(*names).withColumn(f"{prefix}_there", F.lit(1))


def _alike(one: Column, other: Column, *, rounded: bool) -> Column:
    if not rounded:
        return one.eqNullSafe(other)
    near = F.abs(one - other) <= F.greatest(F.abs(one), F.abs(other)) * ROUNDING
    return one.eqNullSafe(other) | F.coalesce(near, F.lit(False))
