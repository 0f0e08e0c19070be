"""Nights that build on nights: the demo's corpus as twelve days, a window of four days, and a file that comes late.

Each night reads the files that changed, and takes the states of all other days from the nights before. In the end the
last result is computed again from all rows, and compared.
"""

from __future__ import annotations

import datetime as dt
import shutil
import sys
import time
import zlib
from pathlib import Path

from pyspark.sql import SparkSession

from examples import data_root, say
from skewless.run.directory import RunDirectory
from skewless.spec.reading import load_spec
from skewless.spec.spec import FRESH, JobSpec
from skewless_cli.run_view import rows_read
from skewless_spark.comparison import compare, compared_columns, other_side
from skewless_spark.entries.pipeline import run_pipeline
from skewless_spark.prepare.prepare import prepare
from skewless_spark.session.session import build_session

SPEC = Path(__file__).with_name("nights.yaml")
FIRST = dt.date(2026, 11, 1)
#: The days that the corpus is cut into; the days that are computed; and when a file of a day comes late.
DAYS, NIGHTS, LATE_NIGHT, LATE_DAY = 12, range(3, 8), 6, 4


def make_days(sources: Path, lake: Path) -> Path:
    """Deal the files out over the days by a hash of their path; one file of a day is kept back.

    Returns:
        The file that is kept back, where it will come later.
    """
    shutil.rmtree(lake, ignore_errors=True)
    files: dict[int, list[Path]] = {day: [] for day in range(DAYS)}
    for source in sorted(sources.rglob("*.py")):
        name = str(source.relative_to(sources))
        day = zlib.crc32(name.encode()) % DAYS
        target = lake / f"date={FIRST + dt.timedelta(days=day)}" / f"lib.{name.replace('/', '.')}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        files[day].append(target)
    late = files[LATE_DAY][0]
    late.rename(lake / late.name)
    return late


def night(spark: SparkSession, spec: JobSpec, day: int, root: Path) -> RunDirectory:
    """Run the job of a day to its publication."""
    run = RunDirectory(str(root / "nights" / "runs" / f"{time.time_ns()}"))
    prepare(run, spec, FIRST + dt.timedelta(days=day), str(root), str(SPEC))
    run_pipeline(spark, run)
    return run


def main() -> None:
    """``python -m examples.nights``: works below ``$SKEWLESS_ROOT``, or ``data``."""
    root = data_root().absolute()
    shutil.rmtree(root / "nights", ignore_errors=True)
    late = make_days(root / "corpus" / "python_sources", root / "nights" / "lake")
    spec = load_spec(SPEC)
    spark = build_session("nights", "local[*]")
    say("night        days  files reused  added  lines read  tokens reused  seconds")
    for day in NIGHTS:
        if day == LATE_NIGHT:
            (root / "nights" / "lake" / late.name).rename(late)
            say(f"a file of {FIRST + dt.timedelta(days=LATE_DAY)} comes late: {late.name}")
        begun = time.monotonic()
        run = night(spark, spec, day, root)
        window, seconds = run.job().window, time.monotonic() - begun
        if window is None:
            raise ValueError("a run without its window")
        counts, read = window.counts(), rows_read(run)
        say(
            f"{run.job().date!s:<12} {len(window.parts):>4} {counts['reused']:>13,} {counts['added']:>6,} "
            f"{read:>11,} {window.unchanged_rows:>14,} {seconds:>8.1f}"
        )
    fresh = other_side(spark, FRESH, run.job(), compared_columns(run, spark))
    comparison = compare(spark, run, fresh, tolerance=1e-9, examples=3)
    say(f"the last result beside one of all rows: {comparison.verdict}")
    spark.stop()
    sys.exit(3 if comparison.found else 0)


if __name__ == "__main__":
    main()
