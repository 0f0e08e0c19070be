"""Runs the code of docs/migrate.md in one Spark session and writes down how before and after differ.

``python -m tests.spark.migration ROOT``: a process of its own, because the page brings an aggregate, and
Spark's Python workers look for installed ones when they start.
"""

import json
import re
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.routing.plan import RoutingPlan
from skewless.run.directory import RunDirectory
from skewless.spec.reading import parse_spec
from skewless_spark.comparison.compare import compare
from skewless_spark.comparison.other_side import OtherSide
from skewless_spark.entries.pipeline import run_pipeline
from skewless_spark.prepare.prepare import prepare
from skewless_spark.session.session import build_session
from tests.spark.scenario import DATE, Quiet, finished

PAGE = (Path(__file__).parents[2] / "docs/migrate.md").read_text(encoding="utf-8")
#: What the page calls the old result of each of its specs.
OLD = {"clicks_by_page": "plain", "visits_by_page": "unsalted", "times_by_page": "grouped"}


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", PAGE, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(code) for _, code in found]


def specs() -> dict[str, str]:
    return {yaml.safe_load(text)["name"]: text for text in blocks("yaml")}


def main(root: Path) -> None:
    spark = build_session("migrate", "local[2]")
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    names: dict[str, Any] = {"spark": spark, "root": str(root), "day": DATE.isoformat()}
    for block in blocks("python"):
        exec(block, names)
    outcome = {name: _compared(spark, root, text, names) for name, text in specs().items()}
    outcome["differences"] = _seen(spark, RunDirectory(str(root / "runs" / "clicks_by_page" / "run")), names["plain"])
    (root / "outcome.json").write_text(json.dumps(outcome))
    spark.stop()


def _compared(spark: SparkSession, root: Path, text: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run a spec under plain hashing into another folder, then as it is; how each differs from the old result."""
    spec = parse_spec(text)
    old: DataFrame = names[OLD[spec.name]].cache()
    found: dict[str, Any] = {"old_keys": old.count()}
    aside = parse_spec(text, overrides=("routing.policy=static", f"output.path=compare/{spec.name}"))
    for mode, one in (("static", aside), ("run", spec)):
        began = time.monotonic()
        run = RunDirectory(str(root / "runs" / spec.name / mode))
        prepare(run, one, DATE, str(root))
        run_pipeline(spark, run, Quiet())
        published = finished(run).publication.path
        new = spark.read.parquet(published)
        plans = [run.plan(stage) for stage in range(run.committed_stages())]
        found[mode] = {
            "path": str(Path(published).relative_to(root)),
            "new_keys": new.count(),
            "differences": _differ(spark, run, old),
            "head": [len(plan.head) for plan in plans],
            "split": sum(len(set(tasks)) > 1 for plan in plans for tasks in _tasks(plan)),
            "seconds": time.monotonic() - began,
        }
    return found


def _tasks(plan: RoutingPlan) -> list[list[int]]:
    return [[task for task, _ in shares] for shares in plan.head.values()]


def _differ(spark: SparkSession, run: RunDirectory, other: DataFrame) -> int:
    return compare(spark, run, OtherSide(other, dict(other.dtypes)), 1e-9, 0).differ


def _seen(spark: SparkSession, run: RunDirectory, old: DataFrame) -> dict[str, int]:
    """How many keys differ where there are differences, or none to speak of."""
    hot = F.col("clicks") == old.agg(F.max("clicks")).first()[0]  # type: ignore[index]
    changed = {
        "a count too many": old.withColumn("clicks", F.when(hot, F.col("clicks") + 1).otherwise(F.col("clicks"))),
        "a key missing": old.filter(~hot),
        "a key too many": old.unionByName(old.filter(hot).withColumn("page", F.lit("new"))),
        "another rounding": old.withColumn("ms", F.col("ms") * (1 + 1e-13)),
        "another mean": old.withColumn("ms", F.when(hot, F.col("ms") * 1.001).otherwise(F.col("ms"))),
        "a null for a number": old.withColumn("ms", F.when(~hot, F.col("ms"))),
    }
    return {what: _differ(spark, run, other) for what, other in changed.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
