"""What the versions of Spark are compared by: tables of jobs, and states that one keeps and another reads.

Run in the environment of a version (``tests/spark_versions.py``): ``python -m tests.spark.of_version FOLDER`` for
tables, or ``... FOLDER DAY RUN``.
"""

import sys
import zlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from skewless_spark.session.session import build_session
from tests.spark.scenario import plain, reduce_job, result_of, spec_of, write_input
from tests.spark.test_native_aggregates import CASES, nasty
from tests.spark.test_window import AGGREGATES, Lake

#: By the aggregate, the sketches of a night; before Spark 4.1 there is only the first.
SKETCHES: dict[str, Any] = {
    "hll": {"function": "approx_count_distinct", "column": "word"},
    "theta": {"function": "theta_sketch_estimate", "column": "word"},
    "kll": {"function": "approx_percentile", "column": "value", "percentage": 0.5, "accuracy": 500},
    "top": {"function": "approx_top_k", "column": "word", "k": 3},
}
#: By engine, how many jobs share the cases of native aggregates.
ENGINES, JOBS = ("combine", "staged", "bypass"), 7
#: How the cases begin that are sketches.
SKETCHED = ("approx", "theta")


def name_of(case: str) -> str:
    return f"a{zlib.crc32(case.encode())}"


def tables(spark: SparkSession, folder: Path) -> None:
    """The result of each job, as ``ENGINE-NUMBER.parquet``, over values that have rules of their own.

    And what the sketches are estimates of, as ``exact.parquet``.
    """
    source = write_input(folder / "input", nasty(2_400), files=2)
    exact = [F.expr(CASES[case].sql).alias(name_of(case)) for case in CASES if case.startswith(SKETCHED)]
    plain(spark, source, ["key"], *exact).write.parquet(str(folder / "exact.parquet"))
    for engine in ENGINES:
        for job in range(JOBS):
            calls = {name_of(one): case.call for one, case in CASES.items() if zlib.crc32(one.encode()) % JOBS == job}
            spec = spec_of(source, "key", calls, engine=engine)
            run, _ = reduce_job(spark, spec, folder / "runs" / f"{engine}-{job}")
            pq.write_table(result_of(run), folder / f"{engine}-{job}.parquet")


def night(spark: SparkSession, folder: Path, day: int, run: int) -> None:
    """A night over a window of five days, in a lake and over kept states that versions share."""
    lake = Lake(spark, folder)
    for number in range(5):
        lake._seed = number
        if not lake.path(number, "a").exists():
            lake.put(number, "a")
    lake._runs = run - 1
    sketches = SKETCHES if (folder / "sketches").exists() else {"hll": SKETCHES["hll"]}
    made = lake.night(day, lake.spec(window=5, aggregates={**AGGREGATES, **sketches}))
    window = made.job().window
    assert window is not None
    pq.write_table(result_of(made), folder / f"{run}.parquet")
    sys.stdout.write(f"reused {sum(part.reused for part in window.parts)}\n")


if __name__ == "__main__":
    session = build_session("versions", "local[2]")
    session.conf.set("spark.sql.shuffle.partitions", 2)
    where, *numbers = sys.argv[1:]
    if numbers:
        night(session, Path(where), *map(int, numbers))
    else:
        tables(session, Path(where))
    session.stop()
