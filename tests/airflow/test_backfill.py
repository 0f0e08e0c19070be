"""A backfill of a range, a re-run and a manual trigger: each has a place of its own."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.cli.cli_parser import get_parser as airflow_command
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization
from pydantic import JsonValue

from deploy import PROJECT
from skewless.errors import SpecError
from skewless.run.directory import RunDirectory
from skewless.spec.part import hours_of
from skewless.spec.spec import JobSpec
from skewless_airflow import adaptive_aggregation, build_dag
from skewless_airflow.operators.prepare import PrepareOperator
from skewless_airflow.run_store import part_of_run
from tests import airflow_setting
from tests.airflow.test_dag_structure import SPEC


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
        pytest.param({}, "2026-03-01", "2026-03-01", ["2026-03-01"], id="one-day"),
        pytest.param({"day": "current"}, "2026-03-01", "2026-03-02", ["2026-03-01", "2026-03-02"], id="current"),
        pytest.param({"day": -2}, "2026-03-01", "2026-03-02", ["2026-03-01", "2026-03-02"], id="offset"),
        pytest.param(
            {"timezone": "America/New_York"}, "2026-03-01", "2026-03-02", ["2026-03-01", "2026-03-02"], id="west"
        ),
        pytest.param(
            {"timezone": "Asia/Kolkata"}, "2026-03-01", "2026-03-02", ["2026-03-01", "2026-03-02"], id="east"
        ),
        # As the calendar of Airflow's page gives a day that somebody in Zurich picks.
        pytest.param({}, "2026-02-28T23:00", "2026-03-01T23:00", ["2026-03-01", "2026-03-02"], id="picked-there"),
        pytest.param({}, "2026-03-28", "2026-03-29", ["2026-03-28", "2026-03-29"], id="spring"),
        pytest.param({}, "2026-10-24", "2026-10-26", ["2026-10-24", "2026-10-25", "2026-10-26"], id="autumn"),
        pytest.param(
            {"cron": ["0 2 * * 1-5", "0 6 * * 0,6"]}, "2026-03-05", "2026-03-07",
            ["2026-03-05", "2026-03-06", "2026-03-07"], id="several-crons",
        ),
        # Two runs a day compute the day before twice, and stay two runs.
        pytest.param({"cron": "0 2,14 * * *"}, "2026-03-01", "2026-03-01", ["2026-03-01"] * 2, id="twice-a-day"),
        pytest.param(
            {"cron": "5 * * * *", "hour": "previous"}, "2026-10-24T23:00", "2026-10-25T01:59",
            ["2026-10-25, hour 01", "2026-10-25, hour 02", "2026-10-25, hour 02b"], id="autumn-hours",
        ),
        pytest.param(
            {"cron": "5 * * * *", "hour": "previous"}, "2026-03-29T00:00", "2026-03-29T01:30",
            ["2026-03-29, hour 00", "2026-03-29, hour 01", "2026-03-29, hour 03"], id="spring-hours",
        ),
        # Days of a job of hours, of 24 hours and of 25, of which the second 02 is one.
        pytest.param(
            {"cron": "5 * * * *", "hour": "previous"}, "2026-10-24", "2026-10-25",
            [
                f"{day}, hour {hour}"
                for day in (dt.date(2026, 10, 24), dt.date(2026, 10, 25))
                for hour in hours_of(day, "Europe/Zurich")
            ],
            id="days-of-hours",
        ),
        pytest.param(
            {"cron": "5 * * * *", "hour": -3, "timezone": "Asia/Kolkata"}, "2026-03-01", "2026-03-01",
            [f"2026-03-01, hour {hour:02d}" for hour in range(24)], id="a-day-of-hours-east",
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
        pytest.param("0 2 * * *", {"day": "current"}, ["2026-03-02"], id="said-by-the-spec"),
        pytest.param("0 2 * * *", {"hour": -3}, ["2026-03-01", "--hour", "23"], id="hours"),
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
