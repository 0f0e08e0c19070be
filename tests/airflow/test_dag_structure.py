"""What a spec's DAG looks like to Airflow."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import yaml
from airflow.sdk import DAG

from skewless.spec.reading import load_spec
from skewless_airflow.dags.factory import build_dag
from skewless_airflow.dags.timetable import PartTimetable
from skewless_airflow.operators.share_stage import ShareStageOperator
from tests.airflow_setting import PROJECT

SPEC = {
    "name": "small",
    "input": {"path": "in"},
    "key": "word",
    "aggregates": {"occurrences": "count"},
    "routing": {"waves": [1, 3]},
    "output": {"path": "out"},
}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    return path


@pytest.fixture
def dag(small: Path) -> DAG:
    return build_dag(small)


def test_stages_are_unrolled_one_per_wave_and_one_that_drains(dag: DAG) -> None:
    assert [task.task_id for task in dag.topological_sort()] == [
        "prepare",
        "stage_00.run",
        "stage_01.plan",
        "stage_01.run",
        "stage_02.plan",
        "stage_02.run",
        "merge",
        "validate",
        "publish",
    ]


def test_skips_reach_the_stage_but_neither_the_next_plan_nor_the_merge(dag: DAG) -> None:
    rules = {task.task_id: task.trigger_rule.value for task in dag.tasks}
    assert rules == {
        "prepare": "all_success",
        "stage_00.run": "all_success",
        "stage_01.plan": "none_failed",
        "stage_01.run": "all_success",
        "stage_02.plan": "none_failed",
        "stage_02.run": "all_success",
        "merge": "none_failed_min_one_success",
        "validate": "all_success",
        "publish": "all_success",
    }


def test_the_merge_waits_for_every_stage(dag: DAG) -> None:
    assert dag.get_task("merge").upstream_task_ids == {"stage_00.run", "stage_01.run", "stage_02.run"}


def test_a_day_is_never_computed_twice_at_once_and_tasks_are_tried_again(dag: DAG) -> None:
    assert (dag.max_active_runs, dag.catchup) == (1, False)
    assert {task.retries for task in dag.tasks} == {2}
    assert {task.pool for task in dag.tasks} == {"default_pool"}
    assert all(task.execution_timeout and task.retry_delay <= dt.timedelta(minutes=1) for task in dag.tasks)


def test_the_schedule_is_the_specs(small: Path) -> None:
    schedule = {"cron": "30 0 * * *", "timezone": "Europe/Zurich", "start": dt.date(2026, 3, 1)}
    small.write_text(yaml.safe_dump({**SPEC, "schedule": schedule}))
    dag = build_dag(small)
    assert isinstance(dag.schedule, PartTimetable)
    assert dag.schedule.serialize() == {
        "expressions": ["30 0 * * *"], "timezone": "Europe/Zurich", "interval": 0.0, "run_immediately": False,
        "unit": "day", "offset": -1,
    }  # fmt: skip
    assert dag.schedule.summary == "30 0 * * *"
    assert str(dag.schedule.description).endswith("; computes the day before")
    assert dag.start_date is not None
    assert dag.start_date == dt.datetime(2026, 3, 1, tzinfo=ZoneInfo("Europe/Zurich"))


@pytest.mark.parametrize("path", sorted((PROJECT / "jobs" / "catalog").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_spec_of_the_catalog_has_a_dag_of_its_name(path: Path) -> None:
    dag = build_dag(path)
    dag.validate()
    assert dag.dag_id == load_spec(path).name


SHARED = {**SPEC, "sharing": {"connections": ["spark_east", "spark_west"]}}


def test_each_stage_of_a_shared_run_has_a_task_for_each_further_cluster(small: Path) -> None:
    small.write_text(yaml.safe_dump(SHARED))
    dag = build_dag(small)
    stages = {task.task_id: task for task in dag.tasks if isinstance(task, ShareStageOperator)}
    assert set(stages) == {
        f"stage_{number:02d}.{name}" for number in range(3) for name in ("run", "share_spark_east", "share_spark_west")
    }
    for number in range(3):
        before = {"prepare"} if number == 0 else {f"stage_{number:02d}.plan"}
        for name in ("run", "share_spark_east", "share_spark_west"):
            assert stages[f"stage_{number:02d}.{name}"].upstream_task_ids == before
    assert {name: task.cluster for name, task in stages.items() if name.startswith("stage_01")} == {
        "stage_01.run": "spark_default",
        "stage_01.share_spark_east": "spark_east",
        "stage_01.share_spark_west": "spark_west",
    }
    assert dag.get_task("stage_02.plan").upstream_task_ids == {"stage_01.run"}
    assert dag.get_task("merge").upstream_task_ids == set(stages)
    assert dag.get_task("publish").downstream_task_ids == set()
    assert [task.task_id for task in dag.leaves] == ["publish"]
