"""A spec in Python in somebody's own DAG, triggered with the form: through Spark, to the published day."""

from __future__ import annotations

import collections
import datetime as dt
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.dagrun import DagRun

from skewless.run.directory import SPEC_DOCUMENT, RunDirectory
from skewless_airflow.run_store import run_location
from tests import airflow_setting

pytestmark = [pytest.mark.long, airflow_setting.IN_PROCESS, pytest.mark.timeout(900)]

NIGHT = dt.datetime(2026, 11, 20, 2, tzinfo=dt.UTC)
#: As the form sends it: every field, most of them with the spec's own value.
FORM = {"date": "2026-11-01", "policy": "adaptive", "reducers": 3, "waves": ["1", "3"], "budget": None}
WORDS = ["self"] * 900 + ["if"] * 300 + [f"word-{n % 40}" for n in range(400)]

_DAG = """
from airflow.sdk import DAG, task
from skewless.spec import AggregateCall, Input, JobSpec, Output, Routing
from skewless_airflow import adaptive_aggregation, form_params

SPEC = JobSpec(
    name="mine",
    input=Input(path="words"),
    key=("word",),
    aggregates={"occurrences": AggregateCall(function="count")},
    engine="staged",
    routing=Routing(waves=(1, 3), reducers=4, stage_overhead=0),
    output=Output(path="published/mine", files=1),
)

with DAG("mine", schedule=None, params=form_params(SPEC)) as dag:

    @task
    def after():
        pass

    adaptive_aggregation(SPEC, form=True) >> after()
"""


class Done(NamedTuple):
    """A finished run of the DAG."""

    dag_run: DagRun
    run: RunDirectory
    root: Path


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, airflow_database: None, dags_folder: Path) -> Done:  # noqa: ARG001
    root = tmp_path_factory.mktemp("root")
    (root / "words").mkdir()
    for number in range(4):
        pq.write_table(pa.table({"word": WORDS[number::4]}), root / "words" / f"{number}.parquet")
    (dags_folder / "mine.py").write_text(_DAG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKEWLESS_ROOT", str(root))
        dag = DagBag(dags_folder / "mine.py").dags["mine"]
        dag_run = dag.test(logical_date=NIGHT, run_after=NIGHT, run_conf=FORM)
        return Done(dag_run, RunDirectory(run_location("mine", dag_run.run_id)), root)


def test_the_run_ends_well(done: Done) -> None:
    states = {ti.task_id: str(ti.state) for ti in done.dag_run.get_task_instances()}
    assert set(states.values()) <= {"success", "skipped"}
    assert states["after"] == states["aggregation.publish"] == "success"


def test_what_was_chosen_is_in_the_frozen_job_and_the_spec_travelled_as_a_document(done: Done) -> None:
    spec = done.run.job().spec
    assert (spec.routing.policy.name, spec.routing.reducers) == ("adaptive", 3)
    assert done.run.exists(SPEC_DOCUMENT)


def test_the_day_of_the_form_is_published_with_the_right_counts(done: Done) -> None:
    table = pq.read_table(done.root / "published" / "mine" / "date=2026-11-01")
    counted = dict(zip(table["word"].to_pylist(), table["occurrences"].to_pylist(), strict=True))
    assert counted == collections.Counter(WORDS)
