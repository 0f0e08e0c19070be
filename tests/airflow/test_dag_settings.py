"""What a spec says of its DAG, seen where it arrives: at the DAG and at spark-submit."""

import datetime as dt
import json
from pathlib import Path

import pytest
from airflow.sdk import DAG, Context
from fastapi import Request

from skewless.run.directory import RunDirectory
from skewless.spec.spec import JobSpec
from skewless_airflow import adaptive_aggregation, build_dag
from skewless_airflow.dags import build_restating_dag
from skewless_airflow.operators.spark_step import SkewlessSparkOperator
from skewless_airflow.run_store import run_location
from skewless_airflow.web.rendering import page
from skewless_airflow.web.views.quality_view import histories, read_quality
from tests import airflow_setting
from tests.airflow.test_dag_structure import SPEC
from tests.airflow.web_scenario import Moments, synthetic_run

pytestmark = airflow_setting.IN_PROCESS

WHOLE = {
    **SPEC,
    "schedule": {"cron": "0 2 * * *"},
    "airflow": {
        "owner": "team-data", "tags": ["clicks", "nightly"], "retries": 5,
    },
    "spark": {
        "submit": {"conn_id": "spark_east", "pool": "spark"},
        "conf": {"spark.a": "b", "spark.n": 4, "spark.t": True, "spark.driver.memory": "3g"},
    },
}  # fmt: skip


def test_each_field_arrives_at_the_dag_and_its_tasks() -> None:
    delay = dt.timedelta(seconds=300)
    dag = build_dag(JobSpec.model_validate(WHOLE), default_args={"retry_delay": delay})
    assert dag.tags == {"skewless", "clicks", "nightly"}
    for task in dag.tasks:
        assert (task.owner, task.retries, task.retry_delay) == ("team-data", 5, dt.timedelta(seconds=300))
        assert task.pool == ("spark" if isinstance(task, SkewlessSparkOperator) else "default_pool")


def test_a_group_in_a_dag_of_ones_own_and_the_dag_that_restates_have_what_is_of_their_tasks() -> None:
    spec = JobSpec.model_validate({**WHOLE, "input": {"path": "in/{date}"}, "window": 2})
    with DAG("mine", schedule=None, default_args={"queue": "mine"}) as dag:
        adaptive_aggregation(spec)
    assert {(task.owner, task.queue, task.retries) for task in dag.tasks} == {("team-data", "mine", 5)}
    with DAG("plain", schedule=None) as plain:
        adaptive_aggregation(JobSpec.model_validate(SPEC))
    assert {task.owner for task in plain.tasks} == {"airflow"}, "the DAG's own"
    restate = build_restating_dag(spec, "small.yaml", auto_register=False)
    assert {task.owner for task in restate.tasks} == {"team-data"}


def test_each_field_of_spark_arrives_at_spark_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"conn_type": "spark", "host": "spark://east:7077", "extra": {"deploy-mode": "client"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_EAST", json.dumps(given))
    dag = build_dag(JobSpec.model_validate(WHOLE), default_args={"conf": {"spark.c": "d"}})
    step = dag.get_task("merge")
    assert isinstance(step, SkewlessSparkOperator)
    asked = step.step_of(RunDirectory("/nowhere"), Context())
    words = asked.command()
    assert words[:3] == ["spark-submit", "--master", "spark://east:7077"]
    assert {"spark.a=b", "spark.n=4", "spark.t=true", "spark.c=d", "spark.driver.memory=3g"} <= set(words)
    assert words[words.index("--deploy-mode") + 1] == "client"


def test_a_runs_documents_have_nothing_of_it_so_it_may_change_meanwhile() -> None:
    spec = JobSpec.model_validate(WHOLE)
    plain = JobSpec.model_validate({**SPEC, "schedule": WHOLE["schedule"]})
    assert spec.model_dump_json() == plain.model_dump_json()
    assert spec != plain
    assert spec.of_run == plain


def test_a_published_run_that_warns_says_so_in_its_report_and_on_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    night = Moments(run_location("small", "r"), synthetic_run()).prepare().stages().merge()
    night.validate(success=False, severity="quarantine")
    assert (quality := night.run.quality()) is not None
    assert "; ".join(quality.warnings(len(night.run.job().spec.quality.expectations))).startswith(
        "3 keys in quarantine, of 70 rows of the input; quarantined: occurrences: values between, max_value=5 "
        "(1 of 400 values unexpected; in /page/1: 60,000; "
    )
    found = read_quality(night.run)
    assert found is not None
    assert (found.success, "Failed checks" in dict(found.sections), found.held) == (True, False, 3)
    titles = [title for title, _ in found.sections]
    assert titles[0] == "Warnings and quarantine"
    request = Request({"type": "http", "path": "/skewless/dags/small/runs/r/quality", "headers": []})
    answer = page(
        request, "quality.html", dag_id="small", run_id="r", group="", job=None, quality=found, going_on=False,
        history=histories(found.checks, []),
    )  # fmt: skip
    shown = bytes(answer.body).decode()
    assert "<strong>Quarantine:</strong> 3 keys in quarantine, of 70 rows of the input." in shown
    assert "! quarantined</span>" in shown
    assert "Nothing was published" not in shown
