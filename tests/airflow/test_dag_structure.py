"""What a spec's DAG looks like to Airflow."""

import datetime as dt
from html import escape
from pathlib import Path
from typing import NamedTuple

import pytest
import structlog
import yaml
from airflow.dag_processing.collection import update_dag_parsing_results_in_db
from airflow.dag_processing.dagbag import DagBag
from airflow.dag_processing.processor import DagFileParseRequest, _parse_file
from airflow.models import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.errors import ParseImportError
from airflow.sdk import DAG, Asset, TaskGroup, get_parsing_context, task_group
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.session import create_session
from markdown_it import MarkdownIt
from sqlalchemy import delete, select

from skewless.errors import SpecError
from skewless.spec.part import hours_of
from skewless.spec.reading import load_spec
from skewless.spec.spec import JobSpec
from skewless_airflow import adaptive_aggregation, build_dag, catalog_dags, form_params
from skewless_airflow.dags import restates
from skewless_airflow.operators.spark_step import CompareOperator, ShareStageOperator, SkewlessSparkOperator
from skewless_airflow.partitions import PartTimetable
from tests import airflow_setting
from tests.airflow_setting import PROJECT
from tests.unit.test_docs import wrong_examples

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


def test_a_job_in_the_shadow_of_another_one_compares_where_others_publish(small: Path) -> None:
    shadow = {"with": "old/{date}"}
    small.write_text(yaml.safe_dump({**SPEC, "input": {"path": "in/{date}"}, "window": 7, "shadow": shadow}))
    dag = build_dag(small)
    assert "publish" not in dag.task_ids
    last = dag.get_task("compare")
    assert (last.upstream_task_ids, last.downstream_task_ids, last.outlets) == ({"validate"}, set(), [])
    assert isinstance(last, CompareOperator)
    assert last.spark_step == "compare"
    assert not restates(load_spec(small))
    assert restates(load_spec(small).model_copy(update={"shadow": None}))


def test_skips_reach_the_stage_but_neither_the_next_plan_nor_the_merge(dag: DAG) -> None:
    rules = {task.task_id: task.trigger_rule.value for task in dag.tasks}
    assert {name: rule for name, rule in rules.items() if rule != "all_success"} == {
        "stage_01.plan": "none_failed", "stage_02.plan": "none_failed", "merge": "none_failed_min_one_success",
    }  # fmt: skip


def test_a_day_is_never_computed_twice_at_once_and_tasks_are_tried_again(dag: DAG) -> None:
    assert (dag.max_active_runs, dag.catchup) == (1, False)
    assert build_dag(_spec(), catchup=True).catchup
    assert {task.retries for task in dag.tasks} == {2}
    assert {task.pool for task in dag.tasks} == {"default_pool"}
    assert all(task.execution_timeout and task.retry_delay <= dt.timedelta(minutes=1) for task in dag.tasks)


def test_the_schedule_is_the_specs(small: Path) -> None:
    schedule = {"cron": "30 0 * * *", "timezone": "Europe/Zurich"}
    small.write_text(yaml.safe_dump({**SPEC, "schedule": schedule}))
    dag = build_dag(small)
    assert isinstance(dag.schedule, PartTimetable)
    assert dag.schedule.serialize() == {
        "expressions": ["30 0 * * *"], "timezone": "Europe/Zurich", "interval": 0.0, "run_immediately": False,
        "unit": "day", "offset": -1,
    }  # fmt: skip
    assert dag.schedule.summary == "30 0 * * *"
    assert str(dag.schedule.description).endswith(", Europe/Zurich; computes the day before")


@pytest.mark.parametrize("path", sorted((PROJECT / "jobs" / "catalog").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_spec_of_the_catalog_has_a_dag_of_its_name(path: Path) -> None:
    dag = build_dag(path)
    dag.validate()
    assert dag.dag_id == load_spec(path).name


def test_names_stand_on_the_page_of_a_dag_as_they_are_written() -> None:
    key, column = "*word*", "<b>[a](http://b)</b> `_*c*_`"
    page = build_dag(_spec(key=key, aggregates={"n": {"function": "max", "column": column}})).doc_md
    told = MarkdownIt().render(str(page))
    assert [name for name in (key, column, "n") if f"<strong>{escape(name)}</strong>" not in told] == []


def test_examples_in_docstrings_of_this_side_are_true() -> None:
    assert wrong_examples("plugins/skewless_airflow") == {}


def test_each_stage_of_a_shared_run_has_a_task_for_each_further_cluster(small: Path) -> None:
    small.write_text(yaml.safe_dump({**SPEC, "sharing": {"connections": ["spark_east", "spark_west"]}}))
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


DAGS = PROJECT / "dags"


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKEWLESS_CATALOG", str(tmp_path))
    _write(tmp_path / "sound.yaml")
    return tmp_path


def _catalog_dags(bag: DagBag) -> list[str]:
    return sorted(name for name, dag in bag.dags.items() if "skewless" in dag.tags)


def _write(path: Path, **changes: object) -> None:
    path.write_text(yaml.safe_dump({**SPEC, "output": {"path": path.stem}, **changes}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"name": "b", "agregates": {}}, "did you mean 'aggregates'", id="typo"),
        pytest.param({"name": "b", "schedule": {"cron": "0 99 * * *"}}, "0 99 * * *", id="bad-cron"),
        pytest.param({"name": "b", "schedule": {"asset": " "}}, "cannot be just whitespace", id="airflow-refuses"),
        pytest.param({"name": "small"}, "which broken.yaml has, choose another", id="same-name"),
    ],
)
def test_a_broken_spec_is_an_import_error_beside_the_sound_dags(
    catalog: Path, changes: dict[str, object], words: str
) -> None:
    _write(catalog / "broken.yaml", **changes)
    bag = DagBag(DAGS)
    assert _catalog_dags(bag) == ["small"]
    ((where, sentence),) = bag.import_errors.items()
    assert Path(where) == catalog / ("sound.yaml" if changes["name"] == "small" else "broken.yaml")
    assert words.partition(",")[0] in sentence
    assert "\n" not in sentence


def test_a_job_whose_restating_dag_has_the_name_of_another_or_with_its_output_is_refused(catalog: Path) -> None:
    _write(catalog / "a.yaml", name="b_restate")
    _write(catalog / "b.yaml", name="b", window=7, input={"path": "in/{date}"})
    _write(catalog / "c.yaml", name="c", output={"path": "a"})
    bag = DagBag(DAGS)
    assert _catalog_dags(bag) == ["b_restate", "small"]
    assert [Path(where).name for where in bag.import_errors] == ["b.yaml", "c.yaml"]


def test_each_broken_spec_is_an_import_error_under_its_own_path_in_airflows_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, airflow_database: None
) -> None:
    """As Airflow's DAG processor reads a file and stores what it found: the sound DAGs of the file stay."""
    del airflow_database
    monkeypatch.delenv("SKEWLESS_CATALOG", raising=False)
    (tmp_path / "specs").mkdir()
    _write(tmp_path / "specs" / "sound.yaml")
    _write(tmp_path / "specs" / "b.yaml", name="b", agregates={})
    (tmp_path / "specs" / "c.yaml").write_text("name: [")
    (tmp_path / "mine.py").write_text("from skewless_airflow import catalog_dags\ncatalog_dags('specs/')  # airflow\n")
    stored = _store(tmp_path)
    assert stored.errors == {
        "specs/b.yaml": f"spec {tmp_path}/specs/b.yaml, field agregates: there is no such field; "
        "did you mean 'aggregates'?",
        "specs/c.yaml": f"spec {tmp_path}/specs/c.yaml, line 1: a value is missing before '<stream end>'.",
    }
    assert stored.dags == {"small": False}, "it is not stale"
    _write(tmp_path / "specs" / "b.yaml", name="b")
    (tmp_path / "specs" / "c.yaml").unlink()
    assert _store(tmp_path) == ({"b": False, "small": False}, {})


class Stored(NamedTuple):
    """Whether each DAG of a bundle is stale, and its import errors by file, as Airflow has them."""

    dags: dict[str, bool]
    errors: dict[str, str]


def _store(folder: Path) -> Stored:
    """Read the one DAG file of a folder as Airflow's DAG processor does, and what Airflow then has of it."""
    file, bundle = folder / "mine.py", "mine"
    found = _parse_file(
        DagFileParseRequest(file=str(file), bundle_path=folder, bundle_name=bundle, callback_requests=[]),
        structlog.get_logger(),
    )
    assert found is not None
    with create_session() as session:
        session.merge(DagBundleModel(name=bundle))
        session.flush()
        errors = {(bundle, path): said for path, said in (found.import_errors or {}).items()}
        # What Airflow does whenever it lists the files of the bundle.
        session.execute(delete(ParseImportError).where(ParseImportError.filename != file.name))
        update_dag_parsing_results_in_db(
            bundle_name=bundle, bundle_version=None, dags=found.serialized_dags, import_errors=errors,
            parse_duration=0.0, warnings=set(), session=session, files_parsed={(bundle, file.name), *errors},
        )  # fmt: skip
        session.flush()
        stale = {one.dag_id: one.is_stale for one in session.scalars(select(DagModel)) if one.bundle_name == bundle}
        listed = {str(one.filename): str(one.stacktrace) for one in session.scalars(select(ParseImportError))}
    return Stored(stale, listed)


def test_without_a_bag_that_lists_them_broken_specs_are_an_error(catalog: Path) -> None:
    _write(catalog / "b.yaml", name="b", agregates={})
    with pytest.raises(SpecError, match=r"b\.yaml, field agregates"):
        catalog_dags(catalog)
    (catalog / "c.yaml").write_text("name: [")
    with pytest.raises(SpecError, match=r"job catalog: spec .*b\.yaml.* spec .*c\.yaml"):
        catalog_dags(catalog)


def test_a_folders_defaults_stand_below_each_of_its_specs(catalog: Path) -> None:
    (catalog / "_defaults.yaml").write_text("routing: {reducers: 7, waves: [1, 1, 1]}\nwindow: {late: ignore}\n")
    _write(catalog / "sound.yaml", window=28, input={"path": "in/{date}"}, output={"path": "out"})
    spec = load_spec(catalog / "sound.yaml")
    assert (spec.routing.reducers, spec.routing.waves) == (7, (1, 3)), "a list of the spec stands as a whole"
    assert spec.window is not None
    assert (spec.window.length, spec.window.late) == (28, "ignore")
    assert [dag.dag_id for dag in catalog_dags(catalog, auto_register=False)] == ["small"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("routing: {reducer: 7}", "field routing.reducer: there is no such field; did you mean 'reducers'?"),
        ("name: all", "field name: each spec has a name of its own; remove it"),
        ("- 7", "expected a YAML mapping, but got a list"),
    ],
    ids=["unknown-field", "name", "list"],
)
def test_broken_defaults_are_one_import_error_of_their_own(catalog: Path, text: str, words: str) -> None:
    (catalog / "_defaults.yaml").write_text(text)
    bag = DagBag(DAGS)
    (sentence,) = bag.import_errors.values()
    assert (list(bag.import_errors), _catalog_dags(bag)) == ([str(catalog / "_defaults.yaml")], [])
    assert words in sentence


def test_a_task_builds_its_own_dag_only_and_no_other_spec_can_keep_it_from_that(
    catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (catalog / "a_broken_one.yaml").write_text("name: [")
    _write(catalog / "other.yaml", name="other")
    assert _catalog_dags(DagBag(DAGS)) == ["other", "small"]
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "small")  # as Airflow does in a task
    assert get_parsing_context().dag_id == "small"
    bag = DagBag(DAGS)
    assert (_catalog_dags(bag), bag.import_errors) == (["small"], {})


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


def test_what_a_dags_own_defaults_do_not_say_stays() -> None:
    own = {"retries": 7, "owner": "me"}
    one = build_dag(_spec(), default_args={**own, "conf": {"spark.a": "b"}})
    for task in one.tasks:
        assert (task.retries, task.owner, task.retry_delay, task.execution_timeout) == (
            7, "me", dt.timedelta(seconds=10), dt.timedelta(hours=6),
        )  # fmt: skip
    assert one.get_task("merge").conf["spark.a"] == "b"  # type: ignore[union-attr]


SPARK_STEPS = {"prepare", "stage_00.run", "stage_01.run", "stage_02.run", "merge", "validate"}


@pytest.mark.parametrize("where", ["dag", "group", "build_dag"])
def test_pool_queue_conf_and_connection_reach_the_spark_steps(where: str) -> None:
    given = {"pool": "p", "queue": "q", "conf": {"spark.a": "b"}, "conn_id": "my_spark"}
    if where == "build_dag":
        made = build_dag(_spec(), default_args=given)
    else:
        with DAG("mine", schedule=None, default_args=given if where == "dag" else {}) as made:
            adaptive_aggregation(_spec(), default_args=given if where == "group" else None)
    steps = [task for task in made.tasks if isinstance(task, SkewlessSparkOperator)]
    assert {task.task_id.removeprefix("aggregation.") for task in steps} == SPARK_STEPS
    for task in steps:
        assert (task.pool, task.queue, task._conn_id) == ("p", "q", "my_spark")
        assert (task.conf, task.settings["spark.driver.memory"]) == ({"spark.a": "b"}, "2g")


def test_groups_never_share_a_run_directory() -> None:
    with DAG("mine", schedule=None) as dag:
        adaptive_aggregation(_spec())
        with pytest.raises(SpecError, match="a second 'aggregation'; give each aggregation of a DAG a group_id"):
            adaptive_aggregation(_spec())
        for outer in ("left", "right"):
            with TaskGroup(outer):
                adaptive_aggregation(_spec())
                adaptive_aggregation(_spec(), "named")
    groups = {task.group for task in dag.tasks if isinstance(task, SkewlessSparkOperator)}
    assert groups == {"", "left.aggregation", "left.named", "right.aggregation", "right.named"}
    assert {one.partition(".prepare")[0] for one in dag.task_ids if one.endswith(".prepare")} == {
        "aggregation", *groups - {""}
    }  # fmt: skip


def test_a_group_within_a_mapped_one_is_refused() -> None:
    @task_group
    def each(day: str) -> None:
        del day
        adaptive_aggregation(_spec(), "one")

    words = "group each.one: expected a group that is not mapped, so that its runs are apart"
    with DAG("mine", schedule=None), pytest.raises(SpecError, match=words):
        each.expand(day=["2026-03-01", "2026-03-02"])


def test_a_dag_file_names_specs_beside_it_and_needs_no_name_for_its_dag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dags" / "specs").mkdir(parents=True)
    _write(tmp_path / "dags" / "specs" / "small.yaml")
    (tmp_path / "dags" / "mine.py").write_text(
        "from airflow.sdk import DAG\n"
        "from skewless_airflow import adaptive_aggregation, build_dag, form_params\n"
        "build_dag('specs/small.yaml')\n"
        "build_dag('specs/small.yaml', dag_id='only_looked_at', auto_register=False)\n"
        "with DAG('mine', schedule=None, params=form_params('specs/small.yaml')):\n"
        "    adaptive_aggregation('specs/small.yaml', form=True)\n"
    )
    monkeypatch.chdir(tmp_path)
    bag = DagBag(tmp_path / "dags")
    assert (sorted(bag.dags), bag.import_errors) == (["mine", "small"], {})
    path = str(tmp_path / "dags" / "specs" / "small.yaml")
    prepares = [bag.dags["small"].get_task("prepare"), bag.dags["mine"].get_task("aggregation.prepare")]
    assert [getattr(one, "spec_path", None) for one in prepares] == [path, path]
    assert dict(bag.dags["mine"].params) == dict(bag.dags["small"].params) == dict(build_dag(path).params)
    assert list(form_params(path)) == list(form_params(_spec()))


def test_spark_steps_take_the_pool_that_somebody_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEWLESS_POOL", "spark")
    pools = {task.task_id: task.pool for task in build_dag(_spec()).tasks}
    assert {name for name, pool in pools.items() if pool == "spark"} == {
        "prepare", "stage_00.run", "stage_01.run", "stage_02.run", "merge", "validate",
    }  # fmt: skip
    assert {pools["stage_01.plan"], pools["publish"]} == {"default_pool"}


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
        ({"asset": "skewless:other/final"}, ["skewless:other/final"]),
    ],
    ids=["one", "several", "final"],
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


@pytest.mark.usefixtures("airflow_database")
def test_the_dags_that_ship_are_parsed_without_errors() -> None:
    bag = DagBag(PROJECT / "dags")
    assert bag.import_errors == {}
    for dag in bag.dags.values():
        DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert bag.dags["skewless_maintenance"].tags == {"skewless-maintenance"}
