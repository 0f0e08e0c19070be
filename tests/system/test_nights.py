"""Nights of a job with a window through Airflow: late rows, a rewritten file, and what Spark has read for each."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag

from skewless.run.directory import RunDirectory
from skewless_airflow.run_store import run_location
from skewless_airflow.web.views.window_view import read_window
from tests import airflow_setting
from tests.system.night_lake import JOB, Arrived, NightLake, spec
from tests.system.spark_log import ScanLog, logging_options

pytestmark = [pytest.mark.long, airflow_setting.IN_PROCESS, pytest.mark.timeout(600)]

NIGHTS, WINDOW = 3, 2


class Night(NamedTuple):
    """A night's run, right after it: what came before it, what was wrong with it, and what Spark has read."""

    state: str
    run: RunDirectory
    arrived: Arrived
    faults: list[str]
    read: int


@pytest.fixture(scope="module")
def nights(
    tmp_path_factory: pytest.TempPathFactory,
    airflow_database: None,  # noqa: ARG001  # it must be there first
    dags_folder: Path,
) -> Iterator[list[Night]]:
    """The nights, one after the other; with the last, the first day leaves and a file of the second is written anew."""
    root = tmp_path_factory.mktemp("root")
    job, file = root / "job.yaml", dags_folder / "windowed.py"
    job.write_text(yaml.safe_dump(spec(WINDOW)))
    file.write_text(f"# airflow\nfrom skewless_airflow.dags.catalog import build_dag\ndag = build_dag({str(job)!r})\n")
    lake, logs = NightLake(root, WINDOW, rows=2_000, rewrite_every=NIGHTS), ScanLog(root / "logs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKEWLESS_ROOT", str(root))
        patch.setenv("SKEWLESS_DRIVER_MEMORY", "700m")
        patch.setenv("SPARK_SUBMIT_OPTS", logging_options(root / "logs"))
        dag, found, before = DagBag(file).dags[JOB], list[Night](), 0
        for _ in range(NIGHTS):
            arrived = lake.arrive()
            moment = dt.datetime.combine(arrived.day + dt.timedelta(days=1), dt.time(2), dt.UTC)
            done = dag.test(logical_date=moment, run_after=moment)
            run, after = RunDirectory(run_location(JOB, done.run_id)), logs.rows_below(root / "lake")
            found.append(Night(str(done.state), run, arrived, lake.faults_of(run, arrived), after - before))
            before = after
        yield found


def test_each_night_publishes_what_plain_python_makes_of_all_rows_of_the_window(nights: list[Night]) -> None:
    assert [night.state for night in nights] == ["success"] * NIGHTS
    assert [night.faults for night in nights] == [[]] * NIGHTS


def test_spark_reads_the_rows_that_have_changed_and_no_others(nights: list[Night]) -> None:
    assert [night.read for night in nights] == [night.arrived.changed for night in nights]
    assert nights[1].arrived.late
    assert nights[2].arrived.restated
    assert nights[2].arrived.outside, "late rows of a day that has left are read by nobody"
    assert nights[1].read < 2_100


def test_the_pages_tell_of_each_night_what_was_done_about_its_parts(nights: list[Night]) -> None:
    windows = [read_window(night.run) for night in nights]
    words = [[part.words for part in window.parts] for window in windows if window]
    assert words == [["new"], ["added to", "new"], ["reduced anew", "new"]]
    for night, window in zip(nights, windows, strict=True):
        assert window is not None
        assert sum(part.new_rows or 0 for part in window.parts) == night.arrived.changed
