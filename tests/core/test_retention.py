"""What prune takes away, and what it never touches."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skewless.planner import first_plan
from skewless.publication import Publication
from skewless.retention import Fate, Limits, enact_fate, fates
from skewless.routing_plan import WHOLE_SHARE
from skewless.run_directory import RESULT_STEP, STAGE_REPORT, RunDirectory, stage_step
from skewless.step_commit import CommittedFile
from tests.core.synthetic import job, report

NOW = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
LIMITS = Limits()


def _run(
    root: Path, name: str, day: int, age: int, *, finished: bool = True, published: bool = True, engine: str = "staged"
) -> RunDirectory:
    """A run of a day, last touched so many days ago."""
    frozen = job([10], output_path="/out").model_copy(update={"date": dt.date(2026, 9, day)})
    run = RunDirectory(str(root / "clicks" / name))
    run.write_once("job.json", frozen)
    plan = first_plan(frozen).model_copy(update={"engine": engine})
    run.write_once("plans/0000.json", plan)
    attempt = run.new_attempt(stage_step(0))
    _data(attempt.path("kind=native/part.parquet"))
    attempt.write(STAGE_REPORT, report(plan, {"a": 10}))
    if finished:
        attempt.commit(
            [CommittedFile(kind="native", path=f"{attempt.folder}/x", rows=1, size_bytes=100, checksum="0" * 64)],
            {"rows": 10},
        )
        result = run.new_attempt(RESULT_STEP)
        _data(result.path("part.parquet"))
        result.commit([], {"rows": 10, "keys": 1})
    if published:
        run.write_once("publish/published.json", Publication(path=f"/out/date=2026-09-{day:02d}", rows=10, keys=1))
    moment = (NOW - dt.timedelta(days=age)).timestamp()
    for path in (root / "clicks" / name).rglob("*"):
        os.utime(path, (moment, moment))
    return run


def _data(path: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(b"x" * 100)


def _many(root: Path, like: Path, count: int) -> None:
    """So many runs like one, each file of theirs a name more of that one's."""
    for number in range(count):
        shutil.copytree(like, root / "clicks" / f"{like.name}-{number:04d}", copy_function=os.link)


def _actions(root: Path) -> dict[str, str]:
    return {Path(one.location).name: one.action for one in fates(str(root), NOW, LIMITS)}


def _of(root: Path, name: str) -> Fate:
    return next(one for one in fates(str(root), NOW, LIMITS) if one.location.endswith(f"/{name}"))


@pytest.fixture
def newest(tmp_path: Path) -> Path:
    """Two newer finished runs, which stay for the warm start."""
    _run(tmp_path, "newest", day=20, age=60)
    _run(tmp_path, "second", day=19, age=61)
    return tmp_path


def test_the_two_newest_finished_runs_stay_however_old(newest: Path) -> None:
    assert _actions(newest) == {"newest": "keep", "second": "keep"}
    assert "warm start" in _of(newest, "second").reason


def test_of_an_old_run_whose_result_is_the_published_one_only_the_documents_stay(newest: Path) -> None:
    run = _run(newest, "old", day=1, age=90)
    fate = _of(newest, "old")
    assert (fate.action, len(fate.files), fate.size_bytes) == ("thin", 2, 200)
    enact_fate(fate)
    assert not list((newest / "clicks" / "old").rglob("*.parquet"))
    assert run.report(0).processed_rows == 10
    assert run.plan(0).epoch == 0
    assert run.committed(RESULT_STEP).counts["keys"] == 1
    assert _of(newest, "old").action == "keep"


def test_a_run_whose_day_was_published_again_goes_whole(newest: Path) -> None:
    _run(newest, "first", day=1, age=90)
    _run(newest, "again", day=1, age=80)
    fate = _of(newest, "first")
    assert fate.action == "remove"
    assert _of(newest, "again").action == "thin"
    enact_fate(fate)
    assert not (newest / "clicks" / "first").exists()


def test_a_run_that_never_published_goes_whole_when_it_is_old(newest: Path) -> None:
    _run(newest, "failed", day=1, age=31, published=False)
    _run(newest, "fresh", day=2, age=29, published=False)
    assert _actions(newest) == {"newest": "keep", "second": "keep", "failed": "remove", "fresh": "keep"}


def test_an_unfinished_run_stays_as_long_as_somebody_may_be_working_on_it(newest: Path) -> None:
    _run(newest, "running", day=21, age=6, finished=False, published=False)
    _run(newest, "given-up", day=21, age=8, finished=False, published=False)
    assert _actions(newest) == {"newest": "keep", "second": "keep", "running": "keep", "given-up": "remove"}


def test_combined_runs_do_not_take_the_place_of_those_that_a_warm_start_looks_at(newest: Path) -> None:
    for day in (21, 22, 23):
        _run(newest, f"combined-{day}", day=day, age=50, engine="combine")
    assert _actions(newest) == {
        "newest": "keep",
        "second": "keep",
        "combined-21": "thin",
        "combined-22": "keep",
        "combined-23": "keep",
    }


def test_what_is_no_run_directory_or_cannot_be_read_is_left_alone(newest: Path) -> None:
    (newest / "clicks" / "notes").mkdir()
    (newest / "clicks" / "torn").mkdir()
    (newest / "clicks" / "torn" / "job.json").write_text("{")
    assert set(_actions(newest)) == {"newest", "second"}


def test_several_prunes_at_once_come_to_the_same_and_none_of_them_breaks(newest: Path) -> None:
    like = Path(_run(newest, "failed", day=1, age=31, published=False).root)
    _many(newest, like, 40)

    def prune() -> int:
        found = fates(str(newest), NOW, LIMITS)
        for fate in found:
            enact_fate(fate)
        return len(found)

    with ThreadPoolExecutor(4) as pool:
        seen = [one.result() for one in [pool.submit(prune) for _ in range(4)]]
    assert max(seen) == 43
    assert sorted(path.name for path in (newest / "clicks").iterdir()) == ["newest", "second"]
    assert _actions(newest) == {"newest": "keep", "second": "keep"}


def test_a_look_at_many_runs_takes_less_than_to_read_the_plan_of_each(newest: Path) -> None:
    run = _run(newest, "old", day=1, age=90)
    plan = first_plan(job([10], reducers=64, head_limit=10_000))
    head = {f"key-{number}": ((number % 64, WHOLE_SHARE),) for number in range(10_000)}
    Path(run.path("plans/0000.json")).unlink()
    run.write_once("plans/0000.json", plan.model_copy(update={"head": head}))
    _many(newest, Path(run.root), 100)
    begun = time.process_time()
    assert len(fates(str(newest), NOW, LIMITS)) == 103
    looked = time.process_time() - begun
    begun = time.process_time()
    for _ in range(100):
        run.plan(0)
    assert looked < time.process_time() - begun


def test_without_runs_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert fates(str(tmp_path / "none"), NOW, LIMITS) == []


def test_a_removal_that_was_interrupted_is_finished_by_the_next_one(newest: Path) -> None:
    _run(newest, "failed", day=1, age=31, published=False)
    fate = _of(newest, "failed")
    (newest / "clicks" / "failed" / "result" / "COMMIT.json").unlink()
    assert _of(newest, "failed").action == "remove"
    enact_fate(fate)
    enact_fate(fate)
    assert not (newest / "clicks" / "failed").exists()
