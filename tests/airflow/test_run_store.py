"""Run ids become folder names, and runs have a day."""

from __future__ import annotations

import datetime as dt
import grp
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skewless.documents.commit import StepCommit
from skewless.errors import SpecError
from skewless.spec import Schedule
from skewless_airflow.run_store import part_of_run, run_directory, run_location, safe_run_id
from skewless_airflow.web.run_folders import groups_with_runs, open_run, run_folders, stamp
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
        assert run_location("job", "nightly") == "s3a://lake/runs/job/nightly"
        made = run_directory(run)
        assert made.write_once("spec.json", document)
        assert str(made) == "s3a://lake/runs/job/nightly"
        assert stamp(open_run("job", "nightly"), "spec.json")
        assert stamp(made, "job.json") is None
        assert [found.name for found in run_folders("job")] == ["nightly"]
        assert groups_with_runs() == {"job": [""]}
        assert server.keys() == ["runs/job/nightly/spec.json"]


NIGHTLY = Schedule(cron="0 2 * * *", timezone="Europe/Zurich")
HOURLY = Schedule(asset="visits", hour="previous")
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
