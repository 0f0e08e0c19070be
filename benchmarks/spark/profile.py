"""Where a run of ours spends its wall time: by the queries that Spark was given, and what is between them."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.spark.spark_work import JobWork, QueryWork

#: Purposes, in the order of a stage.
READ = "footers read for a schema"
ROWS = "rows: longest tasks"
ROWS_REST = "rows: planning, scheduling, commit"
MEASURE = "measuring: longest tasks"
MEASURE_REST = "measuring: planning, scheduling"
OTHER = "other queries"
DRIVER = "no query: decisions, listing, commits, building queries"


def profiled(queries: Sequence[QueryWork], jobs: Sequence[JobWork], wall_seconds: float) -> dict[str, float]:
    """Seconds by purpose; they add up to the wall time.

    A run gives Spark one query after the other, so that their times add up. Of a query's time the longest task of
    each of its stages is work; the rest is planning, scheduling and committing.

    Args:
        queries: those of the run.
        jobs: those of the run.
        wall_seconds: of the run.
    """
    found = dict.fromkeys((READ, ROWS, ROWS_REST, MEASURE, MEASURE_REST, OTHER), 0.0)
    within = {number for query in queries for number in query.jobs}
    stages = {job.number: job.stages for job in jobs}
    for query in queries:
        mine = [stage for number in sorted(query.jobs) for stage in stages.get(number, ())]
        busy = min(query.seconds, sum(stage.largest("busy_seconds") for stage in mine))
        # Workers that write states themselves report the paths of files, which a stage collects.
        if query.description.startswith(("parquet", "save")) or "stage.py" in query.description:
            found[ROWS] += busy
            found[ROWS_REST] += query.seconds - busy
        elif "stage_histogram.py" in query.description:
            found[MEASURE] += busy
            found[MEASURE_REST] += query.seconds - busy
        else:
            found[OTHER] += query.seconds
    found[READ] = sum(job.seconds for job in jobs if job.number not in within)
    return {**found, DRIVER: wall_seconds - sum(found.values())}
