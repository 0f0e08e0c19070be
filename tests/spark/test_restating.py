"""Trust in nights: published results that old parts have changed under, and kept states beside all rows."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from pyspark.sql import SparkSession

from skewless.run.directory import RunDirectory
from skewless.run.publication import manifest_of
from skewless.spec.part import Part
from skewless.spec.reading import load_spec
from skewless.standing.store import StatesStore
from skewless_cli.main import main
from skewless_spark.entries.pipeline import run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.prepare.restating import find_stale, restating_spec
from skewless_spark.result.merge import merge_states
from tests.spark.scenario import Quiet, as_rows, result_of
from tests.spark.test_window import DAY, Lake

AGGREGATES: dict[str, Any] = {
    "n": "count",
    "total": {"function": "sum", "column": "value"},
    "earliest": {"function": "first", "column": "word"},
}


class Told(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The object that it printed."""
        told: dict[str, Any] = json.loads(self.out)
        return told


Command = Callable[..., Told]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


@pytest.fixture
def command(lake: Lake, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The command over the spec of the lake, in this process, whose session it uses."""

    def here(name: str, *words: str, **fields: Any) -> Told:
        raw = lake.spec(aggregates=AGGREGATES, engine="combine", **fields).model_dump(mode="json", exclude_none=True)
        path = lake.folder / "spec.yaml"
        path.write_text(yaml.safe_dump(raw, sort_keys=False))
        monkeypatch.setattr(sys, "argv", ["skewless", name, str(path), "--root", str(lake.folder), *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return Told(int(ended.value.code or 0), *capfd.readouterr())

    return here


def day(number: int) -> str:
    return str(DAY + dt.timedelta(days=number))


def version(lake: Lake, number: int) -> str:
    """The name of the version that is published for a day."""
    manifest = manifest_of(lake.folder / "published" / Part(DAY + dt.timedelta(days=number)).folder)
    assert manifest is not None
    return manifest.name


def published(lake: Lake, number: int) -> list[tuple[Any, ...]]:
    """The published result of a day, as its run has it."""
    manifest = manifest_of(lake.folder / "published" / Part(DAY + dt.timedelta(days=number)).folder)
    assert manifest is not None
    return as_rows(result_of(RunDirectory(manifest.by.run)))


def test_results_are_restated_once_that_a_changed_part_belongs_to(lake: Lake, command: Command) -> None:
    for number in range(6):
        lake.put(number, "b")
        if number > 1:
            assert command("run", "--date", day(number), window=2).code == 0
    before = {number: version(lake, number) for number in range(2, 6)}
    lake.put(3, "late", rows=40)
    span = ("--from", day(2), "--to", day(5))

    dry = command("restate", *span, "--dry-run", window=2)
    assert dry.code == 0
    assert f"{day(3)}: {lake.path(3, 'late')} was added" in dry.out
    assert f"reads {day(3)}: 40 rows in 1 files: what was added" in dry.out
    assert "2 results to compute, 2 up to date" in dry.out
    assert {number: version(lake, number) for number in before} == before

    told = command("restate", *span, "--json", window=2).json
    assert [(one["part"], one["rows_read"], one["restated"]) for one in told["results"]] == [
        (day(3), 40, True), (day(4), 0, True)
    ]  # fmt: skip
    assert [number for number in before if version(lake, number) != before[number]] == [3, 4]
    for number in (3, 4):
        assert published(lake, number) == lake.whole(range(number - 1, number + 1), AGGREGATES)
    after = {number: version(lake, number) for number in before}
    again = command("restate", *span, window=2)
    assert "0 results to compute, 4 up to date" in again.out
    assert {number: version(lake, number) for number in before} == after


def test_restating_goes_on_where_it_was_interrupted_and_says_what_it_reads_beyond_kept_states(
    lake: Lake, command: Command
) -> None:
    for number in range(4):
        lake.put(number, "b", rows=100)
    for number in (2, 3):
        assert command("run", "--date", day(number)).code == 0
    job = RunDirectory(_manifest_run(lake, 3)).job()
    assert job.window is not None
    store = StatesStore(job.window.store)
    for path in Path(store.path(f"parts/{day(0)}/versions")).iterdir():
        path.unlink()  # as a prune does beyond ``keep``
    lake.path(2, "b").unlink()
    lake.put(2, "c", rows=30)
    span = ("--from", day(0), "--to", day(9))
    dry = command("restate", *span, "--dry-run")
    assert f"  reads {day(0)}: 100 rows in 1 files: all of it, as no states of it are kept" in dry.out
    assert f"  reads {day(2)}: 30 rows in 1 files: all of it, as files were replaced or removed" in dry.out

    # As after a kill within the first of two results: its run is prepared, and nothing is published.
    spec = restating_spec(load_spec(lake.folder / "spec.yaml"), "spec")
    found = find_stale(spec, (DAY, DAY + dt.timedelta(days=9)), str(lake.folder), "spec")
    begun = RunDirectory(str(lake.folder / "runs" / "scenario" / found.stale[0].run_name))
    turn = prepare(begun, spec, found.stale[0].part.date, str(lake.folder)).turn
    run_stages(lake.spark, begun, Quiet())
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
    assert command("run", "--date", day(0)).code == 0
    Path(_manifest_run(lake, 0), "job.json").unlink()
    told = command("restate", "--from", day(0), "--to", day(0), "--json").json
    assert "is gone, so it is not known what the result was made of" in told["results"][0]["reasons"][""][0]
    assert told["results"][0]["rows_read"] == 0
    refused = command("restate", "--from", day(1), "--to", day(0))
    assert (refused.code, refused.err) == (2, f"skewless: --to: expected a day from {day(1)} on, but got {day(0)}.\n")
