"""A night that was skipped is said by the next run."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skewless.documents.job import Job
from skewless.publication.records import MANIFEST, Identity, VersionManifest
from skewless.run.directory import RunDirectory
from skewless.spec.part import Part, parts_until
from skewless.spec.reading import parse_spec
from skewless.spec.spec import JobSpec
from skewless_spark.prepare.prepare import prepare
from tests.spark.scenario import DATE


class Nights:
    """Nights of one job, whose input is the same in each."""

    def __init__(self, folder: Path, **schedule: Any) -> None:
        self.folder, self.schedule = folder, schedule
        pq.write_table(pa.table({"k": ["a"]}), folder / "in.parquet")

    @property
    def spec(self) -> JobSpec:
        raw = {"name": "x", "input": {"path": str(self.folder / "in.parquet")}, "key": "k",
               "aggregates": {"n": "count"}, "output": {"path": str(self.folder / "out")},
               "schedule": self.schedule}  # fmt: skip
        return parse_spec(json.dumps(raw))

    def prepared(self, part: Part) -> Job:
        run = RunDirectory(str(self.folder / "runs" / f"at-{part.name}"))
        return prepare(run, self.spec, part.date, str(self.folder), hour=part.hour)

    def publish(self, part: Part) -> None:
        folder = self.folder / "out" / part.folder()
        folder.mkdir(parents=True)
        by = Identity(job="0" * 64, run="/runs/gone")
        (folder / MANIFEST).write_text(VersionManifest(by=by, turn=1, name="1-a", files=()).sealed())


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def days(*numbers: int) -> list[Part]:
    return [Part(DATE + dt.timedelta(days=number)) for number in numbers]


def test_the_next_run_names_the_parts_that_nobody_computed(nights: Nights) -> None:
    assert nights.prepared(days(0)[0]).skipped == ()  # there is none before it
    nights.publish(days(0)[0])
    nights.prepared(days(2)[0])  # begun by somebody, and not done
    job = nights.prepared(days(4)[0])
    assert job.skipped == (days(1)[0].name, days(3)[0].name)
    assert job.skipped_words == f"nobody has computed 2 parts before this one: {', '.join(job.skipped)}"
    nights.publish(days(5)[0])
    assert nights.prepared(days(6)[0]).skipped == ()
    assert nights.prepared(days(900)[0]).skipped == ()  # as of a job that is new there


def test_parts_without_a_moment_of_the_schedule_are_not_skipped(tmp_path: Path) -> None:
    weekdays = Nights(tmp_path, cron="0 2 * * 1-5")
    weekdays.publish(Part(dt.date(2026, 11, 18)))  # a Wednesday, computed on Thursday
    skipped = weekdays.prepared(Part(dt.date(2026, 11, 24))).skipped
    # Fridays and Saturdays would be computed on Saturdays and Sundays.
    assert [dt.date.fromisoformat(day).strftime("%a %d") for day in skipped] == ["Thu 19", "Sun 22", "Mon 23"]


def test_hours_of_a_long_manual_run_are_named_on_the_night_of_two_equal_hours_too(tmp_path: Path) -> None:
    hourly = Nights(tmp_path, cron="5 * * * *", timezone="Europe/Zurich", part="hour-1")
    last = Part(dt.date(2026, 10, 25), "04")
    *_, first, second, third, _ = hours = parts_until(last, 5, "Europe/Zurich")
    hourly.publish(hours[0])
    assert hourly.prepared(last).skipped == (first.name, second.name, third.name)
    assert second.hour == "02b"
