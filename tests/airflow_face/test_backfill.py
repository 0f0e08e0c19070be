"""A backfill of a range, a re-run and a manual trigger: each has a place of its own."""

from __future__ import annotations

import datetime as dt
import re
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from airflow.cli.cli_parser import get_parser as airflow_command
from airflow.models.dagrun import DagRun
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.types import DagRunType
from pydantic import JsonValue

from skewless.errors import SpecError
from skewless.spec import JobSpec
from skewless_airflow import build_dag
from skewless_airflow.operators import PrepareOperator
from skewless_airflow.places import PROJECT
from skewless_airflow.run_store import day_of, run_location
from tests import airflow_setting
from tests.airflow_face.test_dag_structure import SPEC

DAYS = [dt.datetime(2026, 3, day, 2, tzinfo=dt.UTC) for day in (1, 2, 3)]


def _run_id(kind: DagRunType, moment: dt.datetime) -> str:
    return DagRun.generate_run_id(run_type=kind, logical_date=moment, run_after=moment)


def test_each_date_has_its_own_run_directory_and_its_own_day() -> None:
    ids = [_run_id(kind, day) for day in DAYS for kind in (DagRunType.BACKFILL_JOB, DagRunType.MANUAL)]
    assert len({run_location("small", run_id) for run_id in ids}) == 6
    runs: list[Any] = [SimpleNamespace(logical_date=day, run_after=DAYS[-1]) for day in DAYS]
    assert [day_of(run, "UTC").day for run in runs] == [1, 2, 3]


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


@airflow_setting.IN_PROCESS
def test_the_command_of_the_page_takes_in_both_of_its_days() -> None:
    page = (PROJECT / "docs/operate.md").read_text()
    (command,) = re.findall(r"^airflow backfill create (.*)$", page, re.MULTILINE)
    given = airflow_command().parse_args(["backfill", "create", *command.split()])
    dag = build_dag(JobSpec.model_validate({**SPEC, "schedule": {"cron": "0 2 * * *", "timezone": "Europe/Zurich"}}))
    serialized = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    runs = serialized.iter_dagrun_infos_between(given.from_date, given.to_date)
    moments = [info.logical_date for info in runs if info.logical_date]
    days = [moment.astimezone(ZoneInfo("Europe/Zurich")).date().isoformat() for moment in moments]
    assert days == ["2026-03-01", "2026-03-02", "2026-03-03"]
    assert {given.from_date.date().isoformat(), given.to_date.date().isoformat()} == {days[0], days[-1]}
    assert "ten by default" in page
    assert given.max_active_runs is None


def test_a_date_for_all_runs_of_a_backfill_is_refused() -> None:
    with pytest.raises(SpecError, match="no date for a backfill, whose runs have their own, but came 2026-02-01"):
        _choice("backfill", {"date": "2026-02-01"})


def _choice(run_type: str, conf: dict[str, JsonValue]) -> dt.date | None:
    dag = build_dag(JobSpec.model_validate(SPEC))
    prepare = dag.get_task("prepare")
    assert isinstance(prepare, PrepareOperator)
    context: Any = {"dag": dag, "dag_run": SimpleNamespace(conf=conf, run_type=run_type)}
    return prepare.choice(context).date
