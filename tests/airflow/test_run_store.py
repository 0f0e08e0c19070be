"""Run ids become folder names, runs have a day, and a DAG runs days again whose published results are out of date."""

import datetime as dt
import grp
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from airflow.cli.cli_parser import get_parser as airflow_command
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import JsonValue

from deploy import PROJECT
from skewless.documents.commit import StepCommit
from skewless.errors import SpecError
from skewless.publication.records import MANIFEST, VersionManifest, identity_of
from skewless.run.directory import RunDirectory
from skewless.spec import Schedule
from skewless.spec.part import hours_of
from skewless.spec.reading import load_spec
from skewless.spec.spec import JobSpec
from skewless_airflow import adaptive_aggregation, build_dag, catalog_dags
from skewless_airflow.operators.run_tasks import FindStaleOperator, PrepareOperator
from skewless_airflow.run_store import part_of_run, run_directory, run_location, safe_run_id
from skewless_airflow.web.runs import groups_with_runs, open_run, run_folders, stamp
from skewless_spark.prepare.prepare import prepare
from tests import airflow_setting
from tests.airflow.test_dag_structure import SPEC
from tests.object_stores import as_client, object_server
from tests.unit.hostile import fuzz

UTC = dt.UTC


@dataclass
class Event:
    extra: dict[str, Any]


@dataclass
class Run:
    logical_date: dt.datetime | None
    run_after: dt.datetime
    dag_id: str = "job"
    run_id: str = "run"
    run_type: str = "manual"
    consumed_asset_events: list[Event] = field(default_factory=list)
    partition_key: str | None = None


IDS = st.lists(st.sampled_from(["..", ".", "/", "\\", "~", "%", "_", "\0", "\n", " ", "x"]) | st.text(max_size=3)).map(
    "".join
)


@fuzz(60)
@given(st.text(max_size=300) | IDS)
@example("")
@example(".")
@example("..")
@example("../../etc/passwd")
@example("_hidden")
@example("a" * 1_000)
@example("manual__2026-11-20T02:00:00+00:00")
def test_a_run_id_is_one_folder_that_no_reader_passes_over(run_id: str) -> None:
    folder = safe_run_id(run_id)
    assert re.fullmatch(r"[A-Za-z0-9=-][A-Za-z0-9_.=-]{0,254}", folder)
    assert safe_run_id(folder) == folder, "a page takes the name of a folder for a run id"


@fuzz(60)
@given(IDS, IDS)
@example("a/b", "a-b")
@example("", "run-")
@example("a" * 300, "a" * 301)
def test_run_ids_that_differ_have_folders_that_differ(one: str, other: str) -> None:
    assert (safe_run_id(one) == safe_run_id(other)) == (one == other)


def test_the_location_is_below_the_root_and_keyed_on_dag_and_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEWLESS_ROOT", "/data/")
    assert run_location("job", "manual__2026-11-20T02:00:00+00:00") == (
        "/data/runs/job/manual__2026-11-20T02-00-00-00-00-1c58a377"
    )
    safe = "backfill__2026-11-20_a.b=c"
    assert run_location("job", safe) == f"/data/runs/job/{safe}"


def test_the_folder_of_runs_may_be_elsewhere_also_on_an_object_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SKEWLESS_ROOT", "/data")
    document = StepCommit(step="s", attempt="a", files=(), counts={})
    run = Run(None, dt.datetime(2026, 11, 20, tzinfo=UTC), run_id="nightly")
    with object_server("localbucket", tmp_path) as server, as_client(server.environment):
        monkeypatch.setenv("SKEWLESS_RUNS", "s3a://lake/runs/")
        made = run_directory(run)
        assert str(made) == run_location("job", "nightly") == "s3a://lake/runs/job/nightly"
        assert made.write_once("spec.json", document)
        assert stamp(open_run("job", "nightly"), "spec.json")
        assert stamp(made, "job.json") is None
        assert [found.name for found in run_folders("job")] == ["nightly"]
        assert groups_with_runs() == {"job": [""]}
        assert server.keys() == ["runs/job/nightly/spec.json"]


NIGHTLY = Schedule(cron="0 2 * * *", timezone="Europe/Zurich")
HOURLY = Schedule(asset="visits", part="hour-1")
TICK = dt.datetime(2026, 11, 22, 1, tzinfo=UTC)
LATER = dt.datetime(2026, 12, 24, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("run_type", "logical_date", "run_after", "day"),
    [
        pytest.param("scheduled", TICK, TICK, "2026-11-21", id="night"),
        pytest.param("backfill", TICK, TICK, "2026-11-21", id="night-of-a-backfill"),
        # As with Airflow's CronDataIntervalTimetable, in a DAG of somebody's own.
        pytest.param("scheduled", TICK - dt.timedelta(days=1), TICK, "2026-11-21", id="data-interval"),
        pytest.param("manual", TICK, LATER, "2026-11-21", id="by-hand"),
        pytest.param("manual", None, LATER, "2026-12-23", id="by-hand-without-a-date"),
        pytest.param("manual", dt.datetime(2026, 11, 22, 23, 30, tzinfo=UTC), LATER, "2026-11-22", id="after-midnight"),
    ],
)
def test_a_run_computes_the_day_before_its_end_or_its_logical_date(
    run_type: str, logical_date: dt.datetime | None, run_after: dt.datetime, day: str
) -> None:
    run = Run(logical_date=logical_date, run_after=run_after, run_type=run_type)
    assert str(part_of_run(run, NIGHTLY, "job")) == day


@pytest.mark.parametrize(
    ("schedule", "extras", "part"),
    [
        pytest.param(NIGHTLY, [{"date": "2026-03-01"}], "2026-03-01", id="day"),
        pytest.param(NIGHTLY, [{"date": "2026-03-01"}, {"date": "2026-03-01"}], "2026-03-01", id="same-day-twice"),
        pytest.param(NIGHTLY, [{"date": "2026-03-01"}, {"rows": 7}], "2026-03-01", id="one-names-a-day"),
        pytest.param(NIGHTLY, [{"date": "2026-03-01", "hour": "05"}], "2026-03-01", id="day-of-an-hour"),
        pytest.param(NIGHTLY, [{"date": "yesterday"}], "2026-12-23", id="no-day"),
        pytest.param(NIGHTLY, [{}], "2026-12-23", id="nothing"),
        pytest.param(HOURLY, [{"date": "2026-03-01", "hour": "05"}], "2026-03-01, hour 05", id="hour"),
        pytest.param(HOURLY, [{"date": "2026-03-01"}], "2026-12-24, hour 11", id="hour-is-not-named"),
    ],
)
def test_a_run_after_events_computes_the_day_that_they_name(
    schedule: Schedule, extras: list[dict[str, Any]], part: str
) -> None:
    run = Run(None, LATER, run_type="asset_triggered", consumed_asset_events=[Event(extra) for extra in extras])
    assert str(part_of_run(run, schedule, "job")) == part


@pytest.mark.parametrize(
    ("schedule", "run_type", "key", "part"),
    [
        pytest.param(NIGHTLY, "asset_triggered", "2026-03-01", "2026-03-01", id="day"),
        pytest.param(NIGHTLY, "asset_triggered", "2026-03-01T05", "2026-03-01", id="day-of-an-hour"),
        pytest.param(NIGHTLY, "manual", "2026-03-01", "2026-03-01", id="by-hand"),
        pytest.param(NIGHTLY, "scheduled", "2026-03-01", "2026-11-21", id="of-a-timetable-of-its-own"),
        pytest.param(NIGHTLY, "asset_triggered", "2026-W09", "2026-02-27", id="a-key-of-others-so-the-event"),
        pytest.param(HOURLY, "asset_triggered", "2026-03-01T05", "2026-03-01, hour 05", id="hour"),
        pytest.param(HOURLY, "asset_triggered", "2026-03-01", "2026-11-22, hour 00", id="a-day-has-many-hours"),
    ],
)
def test_a_run_with_a_partition_key_computes_the_part_that_it_names(
    schedule: Schedule, run_type: str, key: str, part: str
) -> None:
    events = [Event({"date": "2026-02-27"})]
    run = Run(None, TICK, run_type=run_type, partition_key=key, consumed_asset_events=events)
    if run_type == "scheduled":
        run.consumed_asset_events = []
    assert str(part_of_run(run, schedule, "job")) == part


@pytest.mark.parametrize(
    ("schedule", "key", "sentence"),
    [
        pytest.param(NIGHTLY, "us", "expected a day like .* but got 'us'", id="no-part"),
        pytest.param(NIGHTLY, "2026-02-30", "partition key's date", id="no-such-day"),
        pytest.param(HOURLY, "2026-03-01", "expected an hour like .* but got '2026-03-01'", id="hours"),
    ],
)
def test_a_key_that_a_run_was_triggered_with_names_its_part_or_ends_it(
    schedule: Schedule, key: str, sentence: str
) -> None:
    for run_type in ("manual", "operator_triggered"):
        with pytest.raises(SpecError, match=sentence):
            part_of_run(Run(None, TICK, run_type=run_type, partition_key=key), schedule, "job")
    named = [Event({"date": "2026-02-27", "hour": "05"})]
    usable = Run(None, TICK, partition_key=key, consumed_asset_events=named)
    assert part_of_run(usable, schedule, "job").date == dt.date(2026, 2, 27)
    of_others = Run(None, TICK, run_type="asset_triggered", partition_key=key, consumed_asset_events=[Event({})])
    assert part_of_run(of_others, schedule, "job") == schedule.part_of(TICK)


def test_events_of_several_days_are_refused_since_a_run_computes_one() -> None:
    events = [Event({"date": "2026-03-02"}), Event({"date": "2026-03-01"})]
    run = Run(None, LATER, run_type="asset_triggered", consumed_asset_events=events)
    sentence = "expected events of one day, .* but got 2026-03-01, 2026-03-02; trigger the job for each, with its date"
    with pytest.raises(SpecError, match=sentence + r"\W*$"):
        part_of_run(run, NIGHTLY, "asset events of job")
    after = Schedule(asset="skewless:visits")
    with pytest.raises(SpecError, match=sentence + "; with schedule.partitioned: true it runs once for each"):
        part_of_run(run, after, "asset events of job")


def test_a_run_directory_that_airflow_makes_is_its_users_or_belongs_to_the_group_of_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    document = StepCommit(step="s", attempt="a", files=(), counts={})
    for group, mode in (("", 0o700), (grp.getgrgid(os.getegid()).gr_name, 0o2770)):
        monkeypatch.setenv("SKEWLESS_RUN_GROUP", group)
        run = Run(None, dt.datetime(2026, 11, 20, tzinfo=UTC), run_id=f"run-{mode:o}")
        run_directory(run).write_once("spec.json", document)
        assert stat.S_IMODE(Path(run_location("job", run.run_id)).stat().st_mode) == mode


@pytest.mark.parametrize(
    ("run_type", "conf", "date"),
    [
        ("manual", {"date": "2026-02-01"}, dt.date(2026, 2, 1)),
        ("manual", {}, None),
        ("backfill", {"policy": "static"}, None),
    ],
)
def test_a_date_of_the_form_is_for_one_run(run_type: str, conf: dict[str, JsonValue], date: dt.date | None) -> None:
    assert _choice(run_type, conf) == date
    with pytest.raises(SpecError, match="no date for a backfill, whose runs have their own, but got 2026-02-01"):
        _choice("backfill", {"date": "2026-02-01"})


@airflow_setting.IN_PROCESS
def test_the_command_of_the_page_takes_in_both_of_its_days() -> None:
    page = (PROJECT / "docs/operate.md").read_text()
    (command,) = re.findall(r"^airflow backfill create (.*)$", page, re.MULTILINE)
    given = airflow_command().parse_args(["backfill", "create", *command.split()])
    schedule: dict[str, JsonValue] = {"cron": "0 2 * * *", "timezone": "Europe/Zurich"}
    days = _computed(schedule, given.from_date, given.to_date)
    assert days == ["2026-03-01", "2026-03-02", "2026-03-03"]
    assert {given.from_date.date().isoformat(), given.to_date.date().isoformat()} == {days[0], days[-1]}
    assert "ten by default" in page
    assert given.max_active_runs is None


@airflow_setting.IN_PROCESS
@pytest.mark.parametrize(
    ("schedule", "first", "last", "parts"),
    [
        pytest.param({}, "2026-03-01", "2026-03-03", ["2026-03-01", "2026-03-02", "2026-03-03"], id="days"),
        pytest.param(
            {"timezone": "America/New_York"}, "2026-03-01", "2026-03-02", ["2026-03-01", "2026-03-02"], id="west"
        ),
        # As the calendar of Airflow's page gives a day that somebody in Zurich picks.
        pytest.param({}, "2026-02-28T23:00", "2026-03-01T23:00", ["2026-03-01", "2026-03-02"], id="picked-there"),
        # Two runs a day compute the day before twice, and stay two runs.
        pytest.param({"cron": "0 2,14 * * *"}, "2026-03-01", "2026-03-01", ["2026-03-01"] * 2, id="twice-a-day"),
        pytest.param(
            {"cron": "5 * * * *", "part": "hour-1"}, "2026-10-24T23:00", "2026-10-25T01:59",
            ["2026-10-25, hour 01", "2026-10-25, hour 02", "2026-10-25, hour 02b"], id="autumn-hours",
        ),
        # Days of a job of hours, of 24 hours and of 25, of which the second 02 is one.
        pytest.param(
            {"cron": "5 * * * *", "part": "hour-1"}, "2026-10-24", "2026-10-25",
            [
                f"{day}, hour {hour}"
                for day in (dt.date(2026, 10, 24), dt.date(2026, 10, 25))
                for hour in hours_of(day, "Europe/Zurich")
            ],
            id="days-of-hours",
        ),
    ],
)  # fmt: skip
def test_the_range_of_a_backfill_is_what_is_computed(
    schedule: dict[str, JsonValue], first: str, last: str, parts: list[str]
) -> None:
    bounds = [dt.datetime.fromisoformat(bound).replace(tzinfo=dt.UTC) for bound in (first, last)]
    given: dict[str, JsonValue] = {"cron": "0 2 * * *", "timezone": "Europe/Zurich", **schedule}
    assert _computed(given, *bounds) == parts


def _computed(schedule: dict[str, JsonValue], first: dt.datetime, last: dt.datetime) -> list[str]:
    """What the runs of a backfill compute, as Airflow makes them: from the DAG that it has stored."""
    spec = JobSpec.model_validate({**SPEC, "schedule": schedule})
    stored = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(build_dag(spec)))
    runs = list(stored.iter_dagrun_infos_between(first, last))
    assert len({info.logical_date for info in runs}) == len(runs)
    made: list[Any] = [
        SimpleNamespace(
            run_type="backfill", logical_date=one.logical_date, run_after=one.run_after, consumed_asset_events=[]
        )
        for one in runs
    ]
    return [str(part_of_run(run, spec.schedule, "job")) for run in made]


def _choice(run_type: str, conf: dict[str, JsonValue]) -> dt.date | None:
    dag = build_dag(JobSpec.model_validate(SPEC))
    prepare = dag.get_task("prepare")
    assert isinstance(prepare, PrepareOperator)
    context: Any = {"dag": dag, "dag_run": SimpleNamespace(conf=conf, run_type=run_type)}
    part = prepare.choice(context).part
    return part.date if part else None


@pytest.mark.parametrize(
    ("schedule", "spec_schedule", "date"),
    [
        pytest.param("0 2 * * *", {}, ["2026-03-01"], id="own-dag-with-a-schedule"),
        pytest.param(None, {}, ["2026-03-02"], id="own-dag-by-hand"),
        pytest.param("0 2 * * *", {"part": "day"}, ["2026-03-02"], id="said-by-the-spec"),
        pytest.param("0 2 * * *", {"part": "hour-3"}, ["2026-03-01", "--hour", "23"], id="hours"),
    ],
)
def test_what_prepare_is_told_to_compute(
    schedule: str | None, spec_schedule: dict[str, JsonValue], date: list[str], tmp_path: Path
) -> None:
    with DAG("own", schedule=schedule, start_date=dt.datetime(2026, 3, 1, 2, tzinfo=dt.UTC)) as dag:
        adaptive_aggregation(JobSpec.model_validate({**SPEC, "schedule": spec_schedule}))
    prepare = dag.get_task("aggregation.prepare")
    assert isinstance(prepare, PrepareOperator)
    moment = dt.datetime(2026, 3, 2, 2, tzinfo=dt.UTC)
    run = SimpleNamespace(run_type="scheduled", run_after=moment, logical_date=moment, consumed_asset_events=[])
    context: Any = {"dag": dag, "dag_run": run}
    told = prepare.arguments(context, RunDirectory(str(tmp_path)))
    assert told[: len(date) + 1] == ["--date", *date]


WINDOW = {**SPEC, "input": {"path": "in/{date}"}, "window": 2}
DAYS = [dt.date(2026, 11, 20) + dt.timedelta(days=number) for number in range(3)]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKEWLESS_CATALOG", str(tmp_path / "catalog"))
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "small.yaml").write_text(yaml.safe_dump(WINDOW))
    return tmp_path


def _write(root: Path, day: dt.date, name: str) -> None:
    folder = root / "in" / str(day)
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"word": ["a", "b"]}), folder / f"{name}.parquet")


def test_a_job_with_a_window_has_a_second_dag(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dags = {dag.dag_id: dag for dag in catalog_dags(auto_register=False)}
    assert list(dags) == ["small", "small_restate"]
    restate = dags["small_restate"]
    assert [task.task_id for task in restate.topological_sort()] == ["find", "restate"]
    assert list(restate.params) == ["from", "to"]
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "small_restate")  # as Airflow does in a task
    assert [dag.dag_id for dag in catalog_dags()] == ["small_restate"]
    monkeypatch.delenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID")
    path = root / "catalog" / "small.yaml"
    path.write_text(yaml.safe_dump({**WINDOW, "window": {"length": 2, "late": "fail"}}))
    assert [dag.dag_id for dag in catalog_dags()] == ["small"]
    path.write_text(yaml.safe_dump(WINDOW))
    (root / "catalog" / "zoo.yaml").write_text(yaml.safe_dump({**SPEC, "name": "small_restate"}))
    with pytest.raises(SpecError, match=r"but got 'small_restate', which small\.yaml has"):
        catalog_dags()


def test_it_triggers_a_run_for_each_day_whose_window_has_changed(root: Path) -> None:
    path = root / "catalog" / "small.yaml"
    spec = load_spec(path)
    for day in DAYS:
        _write(root, day, "x")
    for day in DAYS[1:]:  # as published: the finder reads documents only
        run = RunDirectory(str(root / "runs" / "small" / str(day)))
        job = prepare(run, spec, day, str(root))
        folder = root / "out" / f"date={day}"
        folder.mkdir(parents=True)
        manifest = VersionManifest(by=identity_of(run), turn=job.turn, name=f"{job.turn}-aa", files=())
        (folder / MANIFEST).write_text(manifest.sealed())
    find = FindStaleOperator(task_id="find", spec_path=str(path))
    asked = {"from": str(DAYS[0]), "to": str(DAYS[-1])}
    assert find.execute({"params": asked}) == []
    _write(root, DAYS[0], "late")
    (first,) = find.execute({"params": asked})
    assert first["conf"] == {"date": str(DAYS[1])}
    assert first["trigger_run_id"].startswith(f"restate__{DAYS[1]}__")
    assert find.execute({"params": asked}) == [first]
    # As after it was published again while the file was away: what is there now must be computed once more.
    lying = root / "out" / f"date={DAYS[1]}" / MANIFEST
    published = VersionManifest.from_sealed(lying.read_bytes(), where=str(lying))
    lying.write_text(published.model_copy(update={"name": f"{published.turn}-bb"}).sealed())
    (again,) = find.execute({"params": asked})
    assert again["trigger_run_id"] != first["trigger_run_id"]
    _write(root, DAYS[1], "late")
    assert [one["conf"]["date"] for one in find.execute({"params": asked})] == [str(day) for day in DAYS[1:]]
    path.write_text("name: [")
    with pytest.raises(AirflowFailException, match="spec"):
        find.execute({"params": asked})
