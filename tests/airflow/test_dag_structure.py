"""What a spec's DAG looks like to Airflow."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, Asset, CronTriggerTimetable, PartitionedAssetTimetable, get_parsing_context
from airflow.serialization.serialized_objects import DagSerialization

from skewless.errors import SpecError
from skewless.spec.part import hours_of
from skewless.spec.reading import load_spec, parse_spec
from skewless.spec.spec import JobSpec
from skewless_airflow import adaptive_aggregation, build_dag
from skewless_airflow.dags.catalog import read_catalog
from skewless_airflow.dags.timetable import PartTimetable
from skewless_airflow.operators.spark_step import ShareStageOperator
from skewless_airflow.run_store import run_location
from tests import airflow_setting
from tests.airflow_setting import PROJECT

pytestmark = airflow_setting.IN_PROCESS

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
    stages = ["stage_00.run", "stage_01.plan", "stage_01.run", "stage_02.plan", "stage_02.run"]
    tasks = [task.task_id for task in dag.topological_sort()]
    assert tasks == ["prepare", *stages, "merge", "validate", "publish"]


def test_skips_reach_the_stage_but_neither_the_next_plan_nor_the_merge(dag: DAG) -> None:
    rules = {task.task_id: task.trigger_rule.value for task in dag.tasks}
    assert {name: rule for name, rule in rules.items() if rule != "all_success"} == {
        "stage_01.plan": "none_failed", "stage_02.plan": "none_failed", "merge": "none_failed_min_one_success",
    }  # fmt: skip


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


# A broken spec takes no other DAG down, and is told in one sentence.

DAGS = PROJECT / "dags"


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog of one sound spec."""
    monkeypatch.setenv("SKEWLESS_CATALOG", str(tmp_path))
    _write(tmp_path / "sound.yaml")
    return tmp_path


def _catalog_dags(bag: DagBag) -> list[str]:
    """The DAGs of specs; examples and maintenance have tags of their own."""
    return sorted(name for name, dag in bag.dags.items() if "skewless" in dag.tags)


def _write(path: Path, **changes: object) -> None:
    path.write_text(yaml.safe_dump({**SPEC, **changes}))


def test_a_sound_catalog_gives_one_dag_for_each_spec_and_no_errors(catalog: Path) -> None:
    _write(catalog / "other.yaml", name="other")
    bag = DagBag(DAGS)
    assert (_catalog_dags(bag), bag.import_errors) == (["other", "small"], {})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"name": "b", "agregates": {}}, "did you mean 'aggregates'", id="typo"),
        pytest.param({"name": "b", "schedule": {"cron": "0 99 * * *"}}, "0 99 * * *", id="bad-cron"),
        pytest.param({"name": "small"}, "which broken.yaml has, rename one of the two", id="same-name"),
    ],
)
def test_a_broken_spec_is_an_import_error_beside_the_sound_dags(
    catalog: Path, changes: dict[str, object], words: str
) -> None:
    _write(catalog / "broken.yaml", **changes)
    bag = DagBag(DAGS)
    assert _catalog_dags(bag) == ["small"]
    (where,), (sentence,) = bag.import_errors.keys(), bag.import_errors.values()
    assert Path(where).name == "skewless_broken_specs.py"
    assert words.partition(",")[0] in sentence
    assert "\n" not in sentence


def test_all_broken_specs_are_named(catalog: Path) -> None:
    _write(catalog / "b.yaml", name="b", agregates={})
    (catalog / "c.yaml").write_text("name: [")
    (sentence,) = DagBag(DAGS).import_errors.values()
    assert "2 that cannot" in sentence
    assert "b.yaml" in sentence
    assert "c.yaml" in sentence


def test_a_task_builds_its_own_dag_only_and_no_other_spec_can_keep_it_from_that(
    catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (catalog / "a_broken_one.yaml").write_text("name: [")
    _write(catalog / "other.yaml", name="other")
    assert list(read_catalog().dags) == ["other", "small"]
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "small")  # as Airflow does in a task
    assert get_parsing_context().dag_id == "small"
    assert list(read_catalog().dags) == ["small"]


# An aggregation within anybody's own DAG.


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
    hours = {**schedule, "part": "hour", "timezone": "Europe/Zurich"}
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
