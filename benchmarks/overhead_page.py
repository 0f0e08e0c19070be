"""What B8 found, in words."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

_COLUMNS = {"before_seconds": "before it", "step_seconds": "step", "spark_seconds": "Spark jobs"}


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    setting = ", ".join(f"{name} {value}" for name, value in document["setting"].items())
    about = (
        f"A job of {document['rows']:,} rows and {document['keys']:,} keys as a DAG in the Airflow of `make up`, in"
        " both ways in turn, beside a DAG of tasks that do nothing. Between two stages: from the end of the last"
        " Spark job of one to the first of the next, the decision included, by the times that steps record."
        " The demo's job, of which nothing is known before, is triggered in turn with a new process of plain PySpark."
        f" Medians of {document['repetitions']}. Setting: {setting}."
    )
    aims = "\n".join(f"- {one['words']}" for one in document["verdicts"])
    between = _table("between two stages, s", document["between_stages"])
    whole = _table("trigger to published, or the whole process, s", document["trigger_to_published"])
    parts = ["# B8: seconds outside Spark's work", about, aims, between, whole]
    for way, steps in document["steps"].items():
        lines = [f"| step | {' | '.join(_COLUMNS.values())} |", f"|---{'|---' * len(_COLUMNS)}|"]
        lines += [
            f"| {step} | {' | '.join(f'{figures[name]:.2f}' for name in _COLUMNS)} |" for step, figures in steps.items()
        ]
        parts += [f"## The small job with {way}, in seconds", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _table(head: str, found: Mapping[str, Any]) -> str:
    lines = [f"| | {head} | of each run |", "|---|---|---|"]
    lines += [
        f"| {name} | {median(seconds):.2f} | {', '.join(f'{one:.1f}' for one in seconds)} |"
        for name, seconds in found.items()
    ]
    return "\n".join(lines)
