"""Links on tasks."""

from __future__ import annotations

from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from airflow.sdk import BaseOperatorLink
from airflow.serialization.serialized_objects import DagSerialization

from skewless.spec.spec import JobSpec
from skewless_airflow import build_dag
from skewless_airflow.observability.links import (
    DecisionLink,
    QualityReportLink,
    SkewReportLink,
    SparkUiLink,
    quality_page,
)
from tests import airflow_setting
from tests.airflow.test_dag_structure import SPEC

TI = SimpleNamespace(dag_id="small", run_id="manual__2026-11-20T02:00:00+00:00/..", task_id="stage_01.plan")
RUN = "small/runs/manual__2026-11-20T02%3A00%3A00%2B00%3A00%2F.."
IDLE = SimpleNamespace(spark_application="", spark_address="")
LIVE = SimpleNamespace(spark_application="app-1", spark_address="http://driver:4040")


@pytest.mark.parametrize(
    ("link", "path"),
    [
        (SkewReportLink(), f"/dags/{RUN}/plugin/skew"),
        (DecisionLink(), f"/dags/{RUN}/tasks/stage_01.plan/plugin/decision"),
        (QualityReportLink(), f"/skewless/dags/{RUN}/quality"),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_a_link_is_a_path_with_its_ids_quoted(link: BaseOperatorLink, path: str) -> None:
    assert link.get_link(IDLE, ti_key=TI) == path  # type: ignore[arg-type]
    assert urlsplit(path).netloc == ""


def test_a_link_is_below_the_path_that_airflow_is_served_under(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://example.org/airflow/")
    assert quality_page("a b", "r") == "/airflow/skewless/dags/a%20b/runs/r/quality"


def test_sparks_ui_is_linked_while_it_lives_and_else_not() -> None:
    assert SparkUiLink().get_link(IDLE, ti_key=TI) == ""
    assert SparkUiLink().get_link(LIVE, ti_key=TI) == "http://driver:4040"


def test_a_history_server_is_linked_by_its_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEWLESS_SPARK_HISTORY", "http://history:18080/history/{app_id}/jobs/")
    assert SparkUiLink().get_link(LIVE, ti_key=TI) == "http://history:18080/history/app-1/jobs/"
    assert SparkUiLink().get_link(IDLE, ti_key=TI) == ""


@airflow_setting.IN_PROCESS
def test_every_task_has_the_links_of_what_it_does_and_airflow_knows_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    # A test before this one may have read a DAG as Airflow's scheduler does, which leaves links out for good.
    monkeypatch.setattr(DagSerialization, "_load_operator_extra_links", True)
    dag = build_dag(JobSpec.model_validate(SPEC))
    links = {task.task_id: sorted(link.name for link in task.operator_extra_links) for task in dag.tasks}
    spark, plan = ["Skew report", "Spark UI"], ["Decision", "Skew report"]
    assert links == {
        "prepare": spark,
        "stage_00.run": spark,
        "stage_01.plan": plan,
        "stage_01.run": spark,
        "stage_02.plan": plan,
        "stage_02.run": spark,
        "merge": spark,
        "validate": ["Quality report", "Skew report", "Spark UI"],
        "publish": ["Quality report", "Skew report"],
    }
    read = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert {name for task in read.tasks for name in task.extra_links} == {
        "Decision",
        "Quality report",
        "Skew report",
        "Spark UI",
    }
