"""An example of a DAG of your own: an aggregation from a spec in Python, with tasks before and after it.

It counts the words of the demo's corpus by file. Its deadline and its failure callback are examples, too: they write
to a log.
"""

from __future__ import annotations

import datetime as dt

from airflow.sdk import DAG, task
from airflow.sdk.definitions.callback import SyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from skewless.spec import AggregateCall, Input, JobSpec, Map, Output, Routing
from skewless_airflow import adaptive_aggregation, form_params
from skewless_airflow.observability.callbacks import report_failure, report_lateness

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
    on_failure_callback=report_failure,
    deadline=DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=dt.timedelta(hours=2),
        callback=SyncCallback(report_lateness),
    ),
) as dag:

    @task
    def before() -> None:
        """A task of yours that completes the input."""

    @task
    def after() -> None:
        """A task of yours that uses the result."""

    before() >> adaptive_aggregation(SPEC, form=True) >> after()
