"""An aggregation within anybody's own DAG."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, Asset, CronTriggerTimetable
from airflow.serialization.serialized_objects import DagSerialization

from skewless.errors import SpecError
from skewless.spec.spec import JobSpec
from skewless_airflow import adaptive_aggregation, build_dag
from skewless_airflow.dags.timetable import PartTimetable
from skewless_airflow.run_store import run_location
from tests import airflow_setting
from tests.airflow.test_dag_structure import SPEC
from tests.airflow_setting import PROJECT

pytestmark = airflow_setting.IN_PROCESS


def _spec(**changes: object) -> JobSpec:
    return JobSpec.model_validate({**SPEC, **changes})


def test_a_spec_file_and_a_spec_in_python_give_the_same_tasks(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    from_file, from_value = build_dag(path), build_dag(_spec())
    assert [task.task_id for task in from_file.topological_sort()] == [
        task.task_id for task in from_value.topological_sort()
    ]
    prepares = [dag.get_task("prepare") for dag in (from_file, from_value)]
    assert [getattr(prepare, "spec_path", None) for prepare in prepares] == [str(path), ""]


def test_a_group_stands_between_the_tasks_around_it() -> None:
    with DAG("mine", schedule=None) as dag:
        one, two = adaptive_aggregation(_spec(), "one"), adaptive_aggregation(_spec(name="other"), "two")
        one >> two
    assert dag.get_task("one.publish").downstream_task_ids == {"two.prepare"}
    assert {task.task_id.partition(".")[0] for task in dag.tasks} == {"one", "two"}
    assert len(dag.tasks) == 18
    DagSerialization.from_dict(DagSerialization.to_dict(dag))


def test_several_groups_of_a_dag_keep_their_runs_apart() -> None:
    locations = {run_location("mine", "r", group) for group in ("", "one", "two")}
    assert len(locations) == 3
    with DAG("mine", schedule=None) as dag:
        adaptive_aggregation(_spec(), "one")
    assert {getattr(task, "group", None) for task in dag.tasks} == {"one"}


def test_the_dags_own_defaults_go_before_ours() -> None:
    with DAG("mine", schedule=None, default_args={"retries": 7}) as dag:
        adaptive_aggregation(_spec())
    assert {task.retries for task in dag.tasks} == {7}
    assert all(task.execution_timeout == dt.timedelta(hours=6) for task in dag.tasks)


def test_a_spec_that_is_missing_is_told_when_the_dag_is_made() -> None:
    with DAG("mine", schedule=None), pytest.raises(SpecError, match="the file cannot be read"):
        adaptive_aggregation("/nowhere.yaml")


def test_spark_steps_take_the_pool_that_somebody_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEWLESS_POOL", "spark")
    pools = {task.task_id: task.pool for task in build_dag(_spec()).tasks}
    assert {name for name, pool in pools.items() if pool == "spark"} == {
        "prepare", "stage_00.run", "stage_01.run", "stage_02.run", "merge", "validate",
    }  # fmt: skip
    assert {pools["stage_01.plan"], pools["publish"]} == {"default_pool"}


@pytest.mark.parametrize(
    ("schedule", "kind"),
    [
        ({}, type(None)),
        ({"cron": "0 2 * * *"}, PartTimetable),
        ({"cron": ["0 2 * * 1-5", "0 6 * * 0"], "timezone": "Europe/Zurich"}, PartTimetable),
        ({"asset": "skewless:other"}, list),
    ],
    ids=["by-hand", "cron", "several-crons", "asset"],
)
def test_a_schedule_is_by_hand_by_cron_or_after_assets(schedule: dict[str, object], kind: type) -> None:
    dag = build_dag(_spec(schedule=schedule))
    made = DAG("x", schedule=dag.schedule, start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    assert isinstance(dag.schedule, kind) or "asset" in schedule
    assert (dag.catchup, dag.max_active_runs) == (False, 1)
    DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert made


def test_a_job_that_waits_for_an_asset_names_it() -> None:
    dag = build_dag(_spec(schedule={"asset": "skewless:other"}))
    assert dag.schedule == [Asset(name="skewless:other")]


def test_a_timetable_of_your_own_goes_before_the_specs() -> None:
    own = CronTriggerTimetable("0 5 * * *", timezone="UTC")
    assert build_dag(_spec(schedule={"cron": "0 2 * * *"}), schedule=own).schedule == own


def test_both_cron_and_asset_are_refused() -> None:
    with pytest.raises(ValueError, match="either cron or asset"):
        _spec(schedule={"cron": "0 2 * * *", "asset": "skewless:other"})


def test_approval_is_a_task_only_where_the_spec_asks_for_it() -> None:
    routing = {**SPEC["routing"], "approve_forwarding": 0.1}  # type: ignore[dict-item]
    dag = build_dag(_spec(routing=routing))
    asked = dag.get_task("stage_01.approve")
    assert (asked.upstream_task_ids, asked.downstream_task_ids) == ({"stage_01.plan"}, {"stage_01.run"})
    assert (asked.retries, asked.execution_timeout) == (0, None)
    assert "stage_01.approve" not in build_dag(_spec()).task_dict
    DagSerialization.from_dict(DagSerialization.to_dict(dag))


@pytest.mark.usefixtures("airflow_database")
def test_the_dags_that_ship_are_parsed_without_errors() -> None:
    bag = DagBag(PROJECT / "dags")
    assert bag.import_errors == {}
    for dag in bag.dags.values():
        DagSerialization.from_dict(DagSerialization.to_dict(dag))
    tags = {name: dag.tags for name, dag in bag.dags.items()}
    assert {name for name, of in tags.items() if "skewless-example" in of} == {
        "skewless_example_downstream",
        "skewless_example_own_dag",
    }
    assert tags["skewless_maintenance"] == {"skewless-maintenance"}
    assert [task.task_id for task in bag.dags["skewless_example_own_dag"].roots] == ["before"]
    assert [task.task_id for task in bag.dags["skewless_example_own_dag"].leaves] == ["after"]
