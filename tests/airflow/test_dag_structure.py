"""What a spec's DAG looks like to Airflow."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, get_parsing_context

from skewless.spec.reading import load_spec
from skewless_airflow.dags.catalog import read_catalog
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
    assert {name: rule for name, rule in rules.items() if rule != "all_success"} == {
        "stage_01.plan": "none_failed", "stage_02.plan": "none_failed", "merge": "none_failed_min_one_success",
    }  # fmt: skip


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
