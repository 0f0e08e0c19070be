"""An example of a DAG of your own: an aggregation from a spec in Python, with tasks before and after it.

It counts the words of the demo's corpus by file.
"""

from __future__ import annotations

from airflow.sdk import DAG, task

from skewless.spec import AggregateCall, Input, JobSpec, Map, Output, Routing
from skewless_airflow import adaptive_aggregation, form_params

SPEC = JobSpec(
    name="words_by_file",
    description="How many words each file of the corpus has.",
    input=Input(path="corpus/python_sources/**/*.py", format="text"),
    map=Map(mapper="tokens", options={"pattern": r"[A-Za-z_]\w*", "below": "python_sources"}),
    key=("file",),
    aggregates={"words": AggregateCall(function="count")},
    routing=Routing(reducers=4, waves=(1, 9)),
    output=Output(path="results/words_by_file", files=1),
)

with DAG(
    "skewless_example_own_dag",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    tags=["skewless-example"],
    params=form_params(SPEC),
) as dag:

    @task
    def before() -> None:
        """A task of yours that completes the input."""

    @task
    def after() -> None:
        """A task of yours that uses the result."""

    before() >> adaptive_aggregation(SPEC, form=True) >> after()
