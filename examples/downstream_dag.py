"""An example of a DAG that waits for a published result and reads the facts in its asset event."""

from typing import Any

from airflow.sdk import Asset, dag, task

RESULT = Asset(name="skewless:python_tokens")


@dag(
    "skewless_example_downstream",
    schedule=[RESULT],
    catchup=False,
    max_active_runs=1,
    tags=["skewless-example"],
    doc_md="Starts after each publication of `python_tokens` and reads the published files by the path in the event.",
)
def downstream() -> None:
    """One task that reads."""

    @task(inlets=[RESULT])
    def read_result(inlet_events: Any = None) -> dict[str, Any]:
        """Read the files that the newest event names, and compare them with its facts."""
        import pandas as pd  # noqa: PLC0415  # a DAG file is parsed often, and should need next to nothing

        extra = inlet_events[RESULT][-1].extra
        table = pd.read_parquet(extra["path"])
        if len(table) != extra["keys"]:
            # A later run has published the same day meanwhile: its own event starts this DAG again.
            return {"read": len(table), "said": extra["keys"], "newer": True}
        return {
            "read": len(table),
            "columns": list(table.columns),
            "quality": extra["quality"],
            "balance": extra["balance"],
        }

    read_result()


downstream()
