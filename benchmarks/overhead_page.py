"""What B8 found, in words."""

from __future__ import annotations

from typing import Any

_COLUMNS = {
    "gap_seconds": "before it",
    "task_seconds": "task",
    "spark_seconds": "Spark jobs",
    "outside_seconds": "outside",
    "first_job_seconds": "to its first job",
    "between_jobs_seconds": "between jobs",
    "after_jobs_seconds": "after its last",
}


def sentence(document: dict[str, Any]) -> str:
    """The figures in one sentence."""
    told = [
        f"{way} {found['outside_seconds_per_stage']:.1f} s per stage and {found['outside_seconds']:.1f} s of the"
        f" {found['run_seconds']:.1f} s of the run"
        for way, found in document["ways"].items()
    ]
    between = document["between_stages"]
    empty = between["empty"]
    above = "; ".join(f"{way} {between[way]:.1f} s" for way in document["ways"])
    return (
        f"between two stages: {above}; tasks that do nothing {empty:.1f} s. Outside Spark's work: {'; '.join(told)} "
        f"(medians of {document['repetitions']})"
    )


def page(document: dict[str, Any]) -> str:
    """The page, in Markdown."""
    setting = ", ".join(f"{name} {value}" for name, value in document["setting"].items())
    about = (
        f"A job of {document['rows']:,} rows and {document['keys']:,} keys as a DAG in the Airflow of `make up`, the"
        " ways in turn. Spark's work is the time in which a Spark job runs, by the event log; a stage's seconds are"
        f" those of its `run` task. Setting: {setting}."
    )
    parts = ["# B8: seconds outside Spark's work", f"{sentence(document)}.", about]
    for way, found in document["ways"].items():
        spread = ", ".join(f"{one:.1f}" for one in found["outside_seconds_per_stage_of_runs"])
        head = ["task", *_COLUMNS.values()]
        lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        for task, figures in found["tasks"].items():
            cells = [f"{figures[name]:.2f}" if name in figures else "" for name in _COLUMNS]
            lines.append(f"| {' | '.join([task, *cells])} |")
        parts += [f"## {way}", f"Seconds per stage of each run: {spread}.", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"
