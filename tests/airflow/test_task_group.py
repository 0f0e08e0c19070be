"""An aggregation within anybody's own DAG."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, Asset, CronTriggerTimetable, PartitionedAssetTimetable
from airflow.serialization.serialized_objects import DagSerialization

from skewless.errors import SpecError
from skewless.spec.part import hours_of
from skewless.spec.reading import parse_spec
from skewless.spec.spec import JobSpec
from skewless_airflow import adaptive_aggregation, build_dag
from skewless_airflow.dags.timetable import PartTimetable
from skewless_airflow.run_store import run_location
from tests import airflow_setting
from tests.airflow.test_dag_structure import SPEC
from tests.airflow_setting import PROJECT

pytestmark = airflow_setting.IN_PROCESS

ZURICH_HOURS = hours_of(dt.date(2026, 10, 25), "Europe/Zurich")


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
        ({"asset": "skewless:other", "partitioned": True}, PartitionedAssetTimetable),
    ],
    ids=["by-hand", "cron", "several-crons", "asset-of-parts"],
)
def test_a_schedule_is_by_hand_by_cron_or_after_assets(schedule: dict[str, object], kind: type) -> None:
    dag = build_dag(_spec(schedule=schedule))
    assert isinstance(dag.schedule, kind)
    assert (dag.catchup, dag.max_active_runs) == (False, 1)
    DagSerialization.from_dict(DagSerialization.to_dict(dag))


@pytest.mark.parametrize(
    ("schedule", "waits_for"),
    [
        ({"asset": "orders"}, ["orders"]),
        ({"asset": ["skewless:other", "orders"]}, ["skewless:other", "orders"]),
        ({"asset": ["skewless:a", "skewless:b"]}, ["skewless:a", "skewless:b"]),
        ({"asset": "skewless:other"}, ["skewless:other"]),
    ],
    ids=["foreign", "one-is-foreign", "several", "one-result"],
)
def test_a_job_that_waits_for_assets_names_them(schedule: dict[str, object], waits_for: list[str]) -> None:
    dag = build_dag(_spec(schedule=schedule))
    assert dag.schedule == [Asset(name=name) for name in waits_for]
    DagSerialization.from_dict(DagSerialization.to_dict(dag))


@pytest.mark.parametrize(
    ("schedule", "waits_for"),
    [
        ({"asset": "skewless:other"}, ["skewless:other/parts"]),
        ({"asset": ["skewless:a", "orders"]}, ["skewless:a/parts", "orders"]),
    ],
    ids=["one", "several"],
)
def test_a_job_waits_for_each_part_of_the_results_of_others_if_its_spec_says_so(
    schedule: dict[str, object], waits_for: list[str]
) -> None:
    schedule = {**schedule, "partitioned": True}
    hours = {**schedule, "hour": "current", "timezone": "Europe/Zurich"}
    for given, keys in ((schedule, ["2026-10-25"]), (hours, [f"2026-10-25T{hour}" for hour in ZURICH_HOURS])):
        dag = build_dag(_spec(schedule=given))
        stored = DagSerialization.from_dict(DagSerialization.to_dict(dag)).timetable
        assert stored.partitioned
        assert [key.name for key, _ in stored.asset_condition.iter_assets()] == waits_for
        mapper = stored.get_partition_mapper(name=waits_for[0])
        assert mapper.to_downstream("2026-10-25") == keys
        assert dag.max_active_runs == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [({"partitioned": True}, "partitioned beside asset"), ({"asset": "skewless:other"}, "either cron or asset")],
)
def test_what_contradicts_a_cron_expression_is_refused(more: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        _spec(schedule={"cron": "0 2 * * *", **more})


@pytest.mark.parametrize("partitioned", [True, False])
def test_the_parts_of_a_result_are_waited_for_by_the_name_of_the_result(partitioned: bool) -> None:
    sentence = "expected asset: 'skewless:other' with partitioned: true, .* but got 'skewless:other/parts'"
    for asset in ("skewless:other/parts", ["orders", "skewless:other/parts"]):
        with pytest.raises(SpecError, match=sentence):
            parse_spec(yaml.safe_dump({**SPEC, "schedule": {"asset": asset, "partitioned": partitioned}}))


def test_a_timetable_of_your_own_goes_before_the_specs() -> None:
    own = CronTriggerTimetable("0 5 * * *", timezone="UTC")
    assert build_dag(_spec(schedule={"cron": "0 2 * * *"}), schedule=own).schedule == own


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
