"""What the versions of Spark are compared by: states that one keeps and another reads.

Run in the environment of a version (``tests/spark_versions.py``): ``python -m tests.spark.of_version FOLDER DAY RUN``.
"""

import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from skewless_spark.session.session import build_session
from tests.spark.scenario import result_of
from tests.spark.test_window import AGGREGATES, Lake

#: By the aggregate, the sketches of a night; before Spark 4.1 there is only the first.
SKETCHES: dict[str, Any] = {
    "hll": {"function": "approx_count_distinct", "column": "word"},
    "theta": {"function": "theta_sketch_estimate", "column": "word"},
    "kll": {"function": "approx_percentile", "column": "value", "percentage": 0.5, "accuracy": 500},
    "top": {"function": "approx_top_k", "column": "word", "k": 3},
}


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
    night(session, Path(where), *map(int, numbers))
    session.stop()
