"""Links on tasks, and their logs."""

import json
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import airflow
import jsonschema
import pytest
import yaml
from airflow.cli.cli_parser import get_parser
from airflow.sdk import BaseOperatorLink
from airflow.serialization.serialized_objects import DagSerialization

from skewless.spec.spec import JobSpec
from skewless_airflow import build_dag, get_provider_info
from skewless_airflow.observability.links import (
    DecisionLink,
    QualityReportLink,
    SkewReportLink,
    SparkUiLink,
    quality_page,
)
from skewless_airflow.observability.log_files import TRIGGERER_OPTIONS, LogFilesExecutor
from skewless_airflow.operators.spark_step import Application, application_of, folded
from skewless_airflow.plugin import external_views
from tests import airflow_setting
from tests.airflow.test_dag_structure import SPEC
from tests.cluster.running import COMPOSE_FILE

TI = SimpleNamespace(dag_id="small", run_id="manual__2026-11-20T02:00:00+00:00/..", task_id="stage_01.plan")
RUN = "small/runs/manual__2026-11-20T02%3A00%3A00%2B00%3A00%2F.."
IDLE = SimpleNamespace(spark_application="", spark_address="", application_page="")
LIVE = SimpleNamespace(spark_application="app-1", spark_address="http://driver:4040", application_page="")


@pytest.mark.parametrize(
    ("link", "path"),
    [
        (SkewReportLink(), f"/dags/{RUN}/plugin/skew"),
        (DecisionLink(), f"/skewless/dags/{RUN}/tasks/stage_01.plan/decision"),
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
    IDLE.application_page = "https://bricks/run/1"
    assert SparkUiLink().get_link(IDLE, ti_key=TI) == "https://bricks/run/1"
    IDLE.application_page = ""


@airflow_setting.IN_PROCESS
def test_every_task_has_the_links_of_what_it_does_and_airflow_knows_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    # A test before this one may have read a DAG as Airflow's scheduler does, which leaves links out for good.
    monkeypatch.setattr(DagSerialization, "_load_operator_extra_links", True)
    dag = build_dag(JobSpec.model_validate(SPEC))
    links = {task.task_id: sorted(link.name for link in task.operator_extra_links) for task in dag.tasks}
    spark, plan = ["Skew report", "Spark UI"], ["Decision", "Skew report"]
    assert links == {
        **dict.fromkeys(("prepare", "stage_00.run", "stage_01.run", "stage_02.run", "merge"), spark),
        **dict.fromkeys(("stage_01.plan", "stage_02.plan"), plan),
        "validate": ["Quality report", "Skew report", "Spark UI"],
        "publish": ["Quality report", "Skew report"],
    }
    read = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    known = {name for task in read.tasks for name in task.extra_links}
    assert known == {"Decision", "Quality report", "Skew report", "Spark UI"}


LINES = [
    "26/11/20 02:00:00 INFO SparkContext: Running Spark version 4.3.0",
    "26/11/20 02:00:01 WARN NativeCodeLoader: Unable to load",
    "skewless: spark application local-1 at http://driver:4040",
    "skewless: stage 1: 2 of 8 tasks, 500,000 of 2,000,000 rows",
    "",
    "26/11/20 02:00:09 ERROR Executor: lost",
    "skewless: stage 1: 8 of 8 tasks, 2,000,000 of 2,000,000 rows",
    "26/11/20 02:00:10 INFO ShutdownHookManager: Shutdown hook called",
]


def test_sparks_own_words_are_folded_and_those_of_a_step_are_not() -> None:
    assert list(folded(LINES)) == [
        "::group::Spark's own log",
        *LINES[:2],
        "::endgroup::",
        "spark application local-1 at http://driver:4040",
        "stage 1: 2 of 8 tasks, 500,000 of 2,000,000 rows",
        "::group::Spark's own log",
        LINES[5],
        "::endgroup::",
        "stage 1: 8 of 8 tasks, 2,000,000 of 2,000,000 rows",
        "::group::Spark's own log",
        LINES[7],
        "::endgroup::",
    ]


def test_an_application_is_known_by_its_announcement_alone() -> None:
    assert application_of(LINES[2] + "\n") == Application("local-1", "http://driver:4040")
    assert application_of("skewless: spark application local-1 at no address") == Application("local-1", "")
    assert application_of("skewless: spark application local-1 at javascript:alert(1)") == Application("local-1", "")
    assert application_of(LINES[0]) is None
    assert application_of("INFO spark application x at http://y") is None


def test_neither_the_executor_nor_the_triggerer_serves_logs() -> None:
    assert not LogFilesExecutor.serve_logs
    sources, lines = LogFilesExecutor(parallelism=1).get_task_log(None, 1)
    assert sources, "or Airflow would ask a log server"
    assert lines == []
    services = yaml.safe_load(COMPOSE_FILE.read_text())["services"]
    assert services["scheduler"]["environment"]["AIRFLOW__CORE__EXECUTOR"].endswith(".LogFilesExecutor")
    assert services["triggerer"]["command"] == ["airflow", "triggerer", *TRIGGERER_OPTIONS]
    assert get_parser().parse_args(["triggerer", *TRIGGERER_OPTIONS]).skip_serve_logs


def test_airflow_is_told_each_link_of_an_operator_and_the_tag_of_the_dags_that_have_tabs() -> None:
    info = get_provider_info()
    schema = Path(airflow.__file__).parent / "provider_info.schema.json"
    jsonschema.validate(info, json.loads(schema.read_text()))
    tasks = build_dag(JobSpec.model_validate(SPEC), auto_register=False).tasks
    links = {type(link) for task in tasks for link in getattr(task, "operator_extra_links", ())}
    assert set(info["extra-links"]) == {f"{link.__module__}.{link.__name__}" for link in links}
    assert {view["destination"] for view in external_views() if "applies_to" not in view} == {"nav"}
