"""What B8 found, in words."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from benchmarks.result_files import table


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    setting = ", ".join(f"{name} {value}" for name, value in document["setting"].items())
    about = (
        f"A job of {document['rows']:,} rows and {document['keys']:,} keys as a DAG in the Airflow of `make up`, in"
        " turn with a DAG of tasks that do nothing. Between two stages is from the last Spark"
        " job of one to the first of the next, the decision included. The demo's job, of which nothing is known before,"
        " is triggered in turn with a new process of plain PySpark."
        f" Medians of {document['repetitions']}. Setting: {setting}."
    )
    between = _table("between two stages, s", document["between_stages"])
    whole = _table("trigger to published, or the whole process, s", document["trigger_to_published"])
    return f"# B8: seconds outside Spark's work\n\n{about}\n\n{between}\n\n{whole}\n"


def _table(head: str, found: Mapping[str, Any]) -> str:
    return table(("", head), [(name, f"{median(seconds):.2f}") for name, seconds in found.items()])
