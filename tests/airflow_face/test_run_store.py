"""Run ids become folder names, and runs have a day."""

from __future__ import annotations

import datetime as dt
import grp
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.step_commit import StepCommit
from skewless_airflow.operators import _run_of
from skewless_airflow.run_store import day_of, run_location, safe_run_id

UTC = dt.UTC


@dataclass
class Run:
    logical_date: dt.datetime | None
    run_after: dt.datetime
    dag_id: str = "job"
    run_id: str = "run"


@given(st.text(max_size=300))
def test_a_safe_run_id_is_a_name_that_hadoop_and_spark_take(run_id: str) -> None:
    safe = safe_run_id(run_id)
    assert re.fullmatch(r"[A-Za-z0-9=-][A-Za-z0-9_.=-]*", safe)
    assert len(safe) < 255


@given(st.sets(st.text(alphabet="ab:/._ é", max_size=4), max_size=50))
def test_ids_that_differ_stay_different(run_ids: set[str]) -> None:
    assert len({safe_run_id(run_id) for run_id in run_ids}) == len(run_ids)


def test_an_id_that_is_safe_is_kept() -> None:
    assert safe_run_id("backfill__2026-11-20_a.b=c") == "backfill__2026-11-20_a.b=c"


def test_the_location_is_below_the_root_and_keyed_on_dag_and_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEWLESS_ROOT", "/data/")
    assert run_location("job", "manual__2026-11-20T02:00:00+00:00") == (
        "/data/runs/job/manual__2026-11-20T02-00-00-00-00-1c58a377"
    )


@pytest.mark.parametrize(
    ("logical_date", "timezone", "day"),
    [
        pytest.param(dt.datetime(2026, 11, 20, 2, tzinfo=UTC), "UTC", dt.date(2026, 11, 20), id="logical-date"),
        pytest.param(None, "UTC", dt.date(2026, 12, 1), id="no-logical-date"),
        pytest.param(
            dt.datetime(2026, 11, 19, 23, 30, tzinfo=UTC),
            "Europe/Zurich",
            dt.date(2026, 11, 20),
            id="after-midnight-there",
        ),
    ],
)
def test_the_day_is_that_of_the_schedule(logical_date: dt.datetime | None, timezone: str, day: dt.date) -> None:
    run = Run(logical_date=logical_date, run_after=dt.datetime(2026, 12, 1, tzinfo=UTC))
    assert day_of(run, timezone) == day


def test_a_run_directory_that_airflow_makes_is_its_users_or_belongs_to_the_group_of_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    document = StepCommit(step="s", attempt="a", files=(), counts={})
    for group, mode in (("", 0o700), (grp.getgrgid(os.getegid()).gr_name, 0o2770)):
        monkeypatch.setenv("SKEWLESS_RUN_GROUP", group)
        run = Run(None, dt.datetime(2026, 11, 20, tzinfo=UTC), run_id=f"run-{mode:o}")
        _run_of(run, "").write_once("spec.json", document)
        assert stat.S_IMODE(Path(run_location("job", run.run_id)).stat().st_mode) == mode
