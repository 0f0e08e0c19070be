"""``prepare`` draws the turn of a run, once, and before it lists the input; or lists again."""

import datetime as dt
import io
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from skewless.documents.job import Job
from skewless.errors import InputError
from skewless.publication.places import beside
from skewless.publication.records import VersionManifest, identity_of
from skewless.run.directory import RunDirectory
from skewless.spec.spec import JobSpec
from skewless_cli import run_view
from skewless_leases import Turns, open_store
from skewless_spark.prepare.freezing import freeze
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import publish_now
from tests.publication.days import validated

DATE = dt.date(2026, 11, 20)


def prepared(root: Path, name: str) -> RunDirectory:
    run = RunDirectory(str(root / "runs" / name))
    spec = JobSpec.model_validate({
        "name": "job", "input": {"path": "input"}, "key": "key", "aggregates": {"n": "count"},
        "engine": "staged", "routing": {"reducers": 2, "waves": [1], "first_plan": ["last_run"]},
        "output": {"path": "out"},
    })  # fmt: skip
    prepare(run, spec, DATE, str(root))
    return run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "input").mkdir()
    pq.write_table(pa.table({"key": ["a", "b"]}), tmp_path / "input" / "one.parquet")
    return tmp_path


def test_each_run_has_a_later_turn_and_a_retry_finds_its_own(root: Path) -> None:
    assert [prepared(root, name).job().turn for name in ("one", "two", "one", "three")] == [1, 2, 1, 3]


def test_a_run_that_is_refused_leaves_nothing_beside_a_new_output(root: Path) -> None:
    shutil.rmtree(root / "input")
    with pytest.raises(InputError):
        prepared(root, "one")
    assert not beside(f"{root}/out").exists()


def test_where_the_store_of_turns_was_lost_the_turn_is_above_the_published_one(root: Path) -> None:
    before = prepared(root, "one")
    folder = root / "out" / f"date={DATE}"
    folder.mkdir(parents=True)
    manifest = VersionManifest(by=identity_of(before), turn=41, name="41-ab", files=())
    (folder / "_published").write_text(manifest.sealed(), encoding="utf-8")
    shutil.rmtree(root / ".out.skewless")
    assert [prepared(root, name).job().turn for name in ("two", "three")] == [42, 43]


@pytest.mark.parametrize(("before", "turn"), [([], 1), (["zero"], 3)], ids=["of a new output", "later"])
def test_a_run_that_was_overtaken_while_it_listed_its_input_lists_it_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, before: list[str], turn: int
) -> None:
    """Else the earlier run, with the earlier input, would have the later turn."""
    assert [prepared(root, name).job().turn for name in before] == [1] * len(before)
    later = validated(root / "later", root / "out", {"a.txt": "x"}, turn=turn)

    def overtaken(*args: Any, **kwargs: Any) -> Job:
        job = freeze(*args, **kwargs)
        if not (root / "out").exists():
            assert Turns(open_store(f"{beside(f'{root}/out')}/turns")).draw() == turn
            assert publish_now(later).superseded is None
            pq.write_table(pa.table({"key": ["c"]}), root / "input" / "two.parquet")
        return job

    monkeypatch.setattr("skewless_spark.prepare.prepare.freeze", overtaken)
    job = prepared(root, "one").job()
    assert (job.turn, len(job.units)) == (4 if before else 3, 2)


def test_a_run_that_was_superseded_is_shown_as_such(tmp_path: Path) -> None:
    older, newer = (validated(tmp_path / str(turn), tmp_path / "out", {"a.txt": "x"}, turn=turn) for turn in (1, 2))
    assert publish_now(newer).superseded is None
    assert publish_now(older).superseded is not None
    console = Console(record=True, width=400, file=io.StringIO())
    run_view._paths(older, console)
    shown = f"superseded: {tmp_path}/out/date={DATE} is of a later run, {newer} (turn 2; this one has 1)"
    assert shown in console.export_text()
