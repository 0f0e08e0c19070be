"""Trust in nights: published results that old parts have changed under, and kept states beside all rows."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from skewless.documents.job import Job
from skewless.publication.records import MANIFEST, Identity, VersionManifest, manifest_of
from skewless.run.directory import RunDirectory
from skewless.run.storage import file_checksum
from skewless.spec.part import Part, parts_until
from skewless.spec.reading import load_spec, parse_spec
from skewless.spec.spec import JobSpec
from skewless.standing.states_store import StatesStore
from skewless_spark.entries.pipeline import run_stages
from skewless_spark.prepare.earlier_runs import find_stale, restating_spec
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from tests.spark.scenario import DATE, Told, as_rows, result_of, shown, window_of
from tests.spark.test_window import DAY, Lake

AGGREGATES: dict[str, Any] = {
    "n": "count",
    "total": {"function": "sum", "column": "value"},
    "earliest": {"function": "first", "column": "word"},
}


Command = Callable[..., Told]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


@pytest.fixture
def command(lake: Lake, command_here: Command) -> Command:
    """The command over the spec of the lake, in this process, whose session it uses."""

    def here(name: str, *words: str, **fields: Any) -> Told:
        given = {"aggregates": AGGREGATES, "engine": "combine", **fields}
        raw = lake.spec(**given).model_dump(mode="json", exclude_none=True)
        path = lake.folder / "spec.yaml"
        path.write_text(yaml.safe_dump(raw, sort_keys=False))
        return command_here(name, str(path), "--root", str(lake.folder), *words)

    return here


def day(number: int) -> str:
    return str(DAY + dt.timedelta(days=number))


def version(lake: Lake, number: int) -> str:
    manifest = manifest_of(lake.folder / "published" / Part(DAY + dt.timedelta(days=number)).folder())
    assert manifest is not None
    return manifest.name


def published(lake: Lake, number: int) -> list[tuple[Any, ...]]:
    manifest = manifest_of(lake.folder / "published" / Part(DAY + dt.timedelta(days=number)).folder())
    assert manifest is not None
    return as_rows(result_of(RunDirectory(manifest.by.run)))


@pytest.mark.long
def test_results_are_restated_once_that_a_changed_part_belongs_to(lake: Lake, command: Command) -> None:
    for number in range(3):
        lake.put(number, "b")
        assert command("run", "--date", day(number), window=2).returncode == 0
    before = {number: version(lake, number) for number in range(3)}
    lake.put(1, "late", rows=40)
    span = ("--from", day(0), "--to", day(2))

    dry = command("restate", *span, "--dry-run", window=2)
    assert dry.returncode == 0
    assert f"{day(1)}: {lake.path(1, 'late')} was added" in dry.stdout
    assert "2 results to compute, 1 up to date" in dry.stdout
    assert {number: version(lake, number) for number in before} == before

    told = command("restate", *span, "--json", window=2).json
    assert [(one["part"], one["rows_read"]) for one in told["results"]] == [(day(1), 40), (day(2), 0)]
    assert [number for number in before if version(lake, number) != before[number]] == [1, 2]
    assert published(lake, 2) == lake.whole(range(1, 3), AGGREGATES)
    after = {number: version(lake, number) for number in before}
    again = command("restate", *span, window=2)
    assert "0 results to compute, 3 up to date" in again.stdout
    assert {number: version(lake, number) for number in before} == after

    lake.put(1, "later", rows=7)  # the night reads it; the day before is restated without reading a row
    assert command("run", "--date", day(2), window=2).returncode == 0
    page = shown(RunDirectory(_manifest_run(lake, 2)))
    assert f"late by 1 part: {day(1)}, added to, 7 late rows, 7 rows read\n" in page
    assert f"newest file of {day(2)}: modified 20" in page
    told = command("restate", *span, "--json", window=2).json
    assert [(one["part"], one["rows_read"]) for one in told["results"]] == [(day(1), 0)]

    # A day without files, and one that fails its checks, hinder no other one.
    lake.path(0, "b").unlink()
    lake.put(2, "more", rows=300)
    before = {number: version(lake, number) for number in range(3)}
    few, many = (max(_counts(lake, *days).values()) for days in ((1,), (1, 2)))
    enough = {"type": "expect_column_max_to_be_between", "kwargs": {"column": "n", "min_value": few + 1}}
    assert few < many
    ended = command("restate", *span, "--json", window=2, quality={"expectations": [enough]})
    assert ended.returncode == 3
    assert ended.stderr.splitlines()[-1] == (
        f"skewless: restate: 2 results are as they were: {day(0)}, {day(1)}; mend them, and restate again."
    )
    none, unmet, done = ended.json["results"]
    assert none["left"].startswith(f"part {day(0)}: expected files of the part that the run computes, but got none")
    assert "checks failed: n: max between, min_value=" in unmet["left"]
    assert ("run_dir" in done, "left" in done) == (True, False)
    assert [number for number in before if version(lake, number) != before[number]] == [2]


def _counts(lake: Lake, *days: int) -> Counter[Any]:
    files = [file for number in days for file in lake.path(number, "x").parent.glob("*.parquet")]
    return Counter(key for file in files for key in pq.read_table(file, partitioning=None)["key"].to_pylist())


@pytest.mark.long
def test_restating_goes_on_where_it_was_interrupted(lake: Lake, command: Command) -> None:
    for number in range(4):
        lake.put(number, "b", rows=100)
    for number in (2, 3):
        assert command("run", "--date", day(number)).returncode == 0
    store = _store(lake, 3)
    for path in Path(store.path(f"parts/{day(0)}/versions")).iterdir():
        path.unlink()  # as a prune does beyond ``keep``
    lake.path(2, "b").unlink()
    lake.put(2, "c", rows=30)
    span = ("--from", day(0), "--to", day(9))

    # As after a kill within the first of two results: its run is prepared, and nothing is published.
    spec = restating_spec(load_spec(lake.folder / "spec.yaml"), "spec")
    stale, _ = find_stale(spec, (DAY, DAY + dt.timedelta(days=9)), str(lake.folder), "spec")
    begun = RunDirectory(str(lake.folder / "runs" / "scenario" / stale[0].run_name))
    turn = prepare(begun, spec, stale[0].part.date, str(lake.folder)).turn
    run_stages(lake.spark, begun)
    merge_states(lake.spark, begun)

    told = command("restate", *span, "--json").json
    assert [(one["part"], one["rows_read"]) for one in told["results"]] == [(day(2), 130), (day(3), 0)]
    assert told["results"][0]["run_dir"] == str(begun)
    assert RunDirectory(_manifest_run(lake, 2)).job().turn == turn
    for number in (2, 3):
        assert published(lake, number) == lake.whole(range(max(0, number - 2), number + 1), AGGREGATES)


def _manifest_run(lake: Lake, number: int) -> str:
    manifest = manifest_of(lake.folder / "published" / f"date={day(number)}")
    assert manifest is not None
    return manifest.by.run


def test_a_result_whose_run_is_gone_is_computed_again_and_bad_days_are_refused(lake: Lake, command: Command) -> None:
    lake.put(0, "b", rows=50)
    assert command("run", "--date", day(0)).returncode == 0
    for _ in range(2):
        before = version(lake, 0)
        Path(_manifest_run(lake, 0), "job.json").unlink()
        told = command("restate", "--from", day(0), "--to", day(0), "--json").json
        assert "is gone, so it is not known what the result was made of" in told["results"][0]["reasons"][""][0]
        assert told["results"][0]["rows_read"] == 0
        assert version(lake, 0) != before
    refused = command("restate", "--from", day(1), "--to", day(0))
    assert (refused.returncode, refused.stderr) == (
        2,
        f"skewless: --to: expected a day from {day(1)} on, but got {day(0)}.\n",
    )


EVERY: dict[str, Any] = {
    **AGGREGATES,
    "mean": {"function": "avg", "column": "value"},
    "spread": {"function": "stddev_samp", "column": "value"},
    "some": {"function": "approx_count_distinct", "column": "value", "rsd": 0.2},
    "theta": {"function": "theta_sketch_estimate", "column": "value", "lg_nom_entries": 4},
    "half": {"function": "approx_percentile", "column": "value", "percentages": [0.1, 0.5], "accuracy": 10},
    "top": {"function": "approx_top_k", "column": "value", "k": 3, "max_items_tracked": 8},
    "shape": {"function": "streaming_histogram", "column": "value", "bins": 4},
    "listed": {"function": "collect_list", "column": "value"},
}


FEW = {**AGGREGATES, "some": EVERY["some"], "shape": EVERY["shape"]}


@pytest.mark.long
@pytest.mark.parametrize(("aggregates", "right"), [(FEW, False), (EVERY, True)], ids=["wrong", "right"])
def test_a_comparison_with_a_fresh_computation_finds_a_wrong_state_and_publishes_nothing(
    lake: Lake, command: Command, aggregates: dict[str, Any], right: bool
) -> None:
    for number in range(3):
        lake.put(number, "b", rows=400)
    assert command("run", "--date", day(1), aggregates=aggregates, window=3).returncode == 0
    lake.put(0, "late", rows=30)
    if not right:
        add_one(_store(lake, 1), day(1))
    done = command("compare", "--with", "fresh", "--date", day(2), "--json", aggregates=aggregates, window=3)
    assert done.returncode == int(not right), done.stderr
    report = done.json
    assert report["keys"] > 10
    assert report["beside"] == "a fresh computation"
    assert report["columns"] == {name: int(name == "total" and not right) for name in aggregates}
    assert set(report["within_error"]) == {"some", "theta", "half", "top", "shape"} & aggregates.keys()
    assert not (lake.folder / "published" / f"date={day(2)}").exists()


def add_one(store: StatesStore, part: str) -> None:
    """Change a sum in a state of a part, and make all checksums right."""
    version = store.version(part, 1)
    file = version.states[0]
    path = Path(store.path(file.path))
    table = pq.read_table(path)
    at = table.column_names.index("s1_0")
    counts = table["s1_0"].to_pylist()
    counts[0] += 1
    pq.write_table(table.set_column(at, table.schema.field(at), pa.array(counts, table.schema.field(at).type)), path)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    changed = file.model_copy(
        update={"size_bytes": path.stat().st_size, "checksum": file_checksum(store.fs, str(path))}
    )
    forged = version.model_copy(update={"states": (changed, *version.states[1:])})
    Path(store.path(f"parts/{part}/versions/0001.json")).write_text(forged.sealed())


def _store(lake: Lake, number: int) -> StatesStore:
    window = window_of(RunDirectory(_manifest_run(lake, number)))
    return StatesStore(window.store)


# A night that was skipped is said by the next run.


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
