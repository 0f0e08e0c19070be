"""What prune takes away, and what it never touches."""

import datetime as dt
import itertools
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from skewless.documents.commit import CommittedFile
from skewless.documents.stage_report import StageReport
from skewless.planner.first_plan import first_plan
from skewless.publication.records import PUBLISHED, Overtaken, Publication, VersionManifest, identity_of, published_path
from skewless.publication.retention import Fate, Limits, enact_fate, fates
from skewless.routing.plan import WHOLE_WEIGHT
from skewless.run.directory import QUALITY_STEP, RESULT_STEP, STAGE_REPORT, RunDirectory, stage_step
from tests.unit.synthetic import job, report

NOW = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
LIMITS = Limits()
_TURNS = itertools.count(1)


def _run(
    root: Path, name: str, day: int, age: int, *, finished: bool = True, published: bool = True, engine: str = "staged"
) -> RunDirectory:
    """A run of a day, last touched so many days ago."""
    frozen = job([10], output_path=str(root.with_name(f"{root.name}-out"))).model_copy(
        update={"date": dt.date(2026, 9, day), "turn": next(_TURNS)}
    )
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
        quality = run.new_attempt(QUALITY_STEP)
        _data(quality.path("kept/part.parquet"))
        quality.write(STAGE_REPORT, report(plan, {"a": 10}))
        quality.commit([], {})
    if published:
        run.write_once(PUBLISHED, Publication(path=published_path(frozen), rows=10, keys=1, turn=frozen.turn))
        _show(run)
    _touch(run, dt.timedelta(days=age))
    return run


def _touch(run: RunDirectory, age: dt.timedelta) -> None:
    for path in Path(str(run)).rglob("*"):
        os.utime(path, ((NOW - age).timestamp(),) * 2)


def _beside(root: Path) -> Path:
    return root.with_name(f".{root.name}-out.skewless")


def _later() -> dt.datetime:
    return dt.datetime.now(tz=dt.UTC) + LIMITS.unfinished + dt.timedelta(minutes=1)


def _show(run: RunDirectory) -> None:
    frozen = run.job()
    shown = VersionManifest(by=identity_of(run), turn=frozen.turn, name="v", files=())
    folder = Path(published_path(frozen))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "_published").write_text(shown.sealed(), encoding="utf-8")


def _data(path: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(b"x" * 100)


def _many(root: Path, like: Path, count: int) -> None:
    for number in range(count):
        shutil.copytree(like, root / "clicks" / f"{like.name}-{number:04d}", copy_function=os.link)


def _actions(root: Path) -> dict[str, str]:
    return {Path(one.location).name: one.action for one in fates(str(root), NOW, LIMITS)}


def _of(root: Path, name: str) -> Fate:
    return next(one for one in fates(str(root), NOW, LIMITS) if one.location.endswith(f"/{name}"))


@pytest.fixture
def newest(tmp_path: Path) -> Path:
    _run(tmp_path, "newest", day=20, age=60)
    _run(tmp_path, "second", day=19, age=61)
    return tmp_path


def test_of_an_old_run_whose_result_is_the_published_one_only_the_documents_stay(newest: Path) -> None:
    run = _run(newest, "old", day=1, age=90)
    fate = _of(newest, "old")
    assert (fate.action, len(fate.files), fate.size_bytes) == ("thin", 3, 300)
    assert fate.sentence == f"thin {fate.location} (3 files, 300 bytes): {fate.reason}"
    enact_fate(fate)
    assert not list((newest / "clicks" / "old").rglob("*.parquet"))
    assert run.report(0).processed_rows == 10
    assert run.plan(0).epoch == 0
    assert run.committed(RESULT_STEP).counts["keys"] == 1
    assert run.committed_document(run.committed(QUALITY_STEP), STAGE_REPORT, StageReport).processed_rows == 10
    only_documents = "its result is the published one, and only documents are left of it"
    assert _of(newest, "old").sentence == f"keep {fate.location}: {only_documents}"


def test_the_published_run_is_the_one_that_the_published_folder_names_whatever_files_say_of_their_age(
    newest: Path,
) -> None:
    """Of two that published at once, the one that came last may have written its record first."""
    first = _run(newest, "first", day=1, age=80)
    _run(newest, "again", day=1, age=90)
    _show(first)
    assert (_of(newest, "first").action, _of(newest, "again").action) == ("thin", "remove")
    enact_fate(_of(newest, "again"))
    assert not (newest / "clicks" / "again").exists()


def test_a_run_that_was_superseded_goes_whole(newest: Path) -> None:
    over = _run(newest, "over", day=1, age=80)
    late = _run(newest, "late", day=1, age=80, published=False)
    by = Overtaken(by=identity_of(over), turn=over.job().turn)
    path = published_path(late.job())
    late.write_once(PUBLISHED, Publication(path=path, rows=10, keys=1, turn=late.job().turn, superseded=by))
    assert (_of(newest, "over").action, _of(newest, "late").action) == ("thin", "keep")
    later = [
        fate for fate in fates(str(newest), NOW + dt.timedelta(days=300), LIMITS) if fate.location.endswith("late")
    ]
    assert [fate.action for fate in later] == ["remove"]


def test_where_no_manifest_can_be_read_nobody_who_published_goes_whole(newest: Path) -> None:
    for name in ("first", "again"):
        run = _run(newest, name, day=1, age=80)
    (Path(published_path(run.job())) / "_published").unlink()
    assert (_of(newest, "first").action, _of(newest, "again").action) == ("thin", "thin")


def test_a_run_directory_that_was_moved_is_still_the_published_one(newest: Path) -> None:
    _run(newest, "old", day=1, age=80)
    (newest / "clicks").rename(newest / "visits")
    assert _of(newest, "old").action == "thin"


def test_versions_past_their_grace_and_drafts_that_nobody_ends_go(newest: Path) -> None:
    sibling = _beside(newest)
    day = "date=2026-09-01"
    for name in (
        "kept/{}/20261119T235959Z-1-ab",
        "kept/{}/20261120T000001Z-2-ab",
        "drafts/{}/3-ab",
        "drafts/{}/4-ab.aside",
    ):
        _data(str(sibling / name.format(day) / "part.parquet"))
    found = {Path(fate.location).name: fate for fate in fates(str(newest), NOW, LIMITS) if "skewless" in fate.location}
    (gone,) = found.values()
    assert gone.location == str(sibling / f"kept/{day}/20261119T235959Z-1-ab")
    assert (gone.action, gone.size_bytes) == ("remove", 100)
    assert gone.reason == "published until 2026-11-19 23:59 UTC, 24 hours of grace"
    enact_fate(gone)
    assert not Path(gone.location).exists()
    later = _later()
    names = sorted(
        Path(fate.location).name for fate in fates(str(newest), later, LIMITS) if "skewless" in fate.location
    )
    # What was set aside between two renames may be all there is of its day.
    assert names == ["20261120T000001Z-2-ab", "3-ab"]


def test_what_a_kill_has_left_beside_runs_and_outputs_goes_when_it_is_old(newest: Path) -> None:
    probe = _beside(newest) / f"probe-{'0' * 16}"
    making = newest / "clicks" / f"night.{'1' * 16}.making"
    for folder in (probe / "a", making / "probe"):
        folder.mkdir(parents=True)
    (newest / "clicks" / "film.making").mkdir()  # somebody else's
    now = dt.datetime.now(tz=dt.UTC)
    assert set(_actions(newest)) == {"newest", "second"}
    assert {fate.action for fate in fates(str(newest), now, LIMITS)} == {"keep"}
    gone = [fate for fate in fates(str(newest), _later(), LIMITS) if fate.action == "remove"]
    assert [fate.location for fate in gone] == [str(making), str(probe)]
    for fate in gone:
        enact_fate(fate)
    assert not probe.exists()
    assert sorted(path.name for path in (newest / "clicks").iterdir()) == ["film.making", "newest", "second"]


def test_a_version_has_another_name_before_its_first_file_goes(newest: Path) -> None:
    """A prune that is killed leaves no half of a version under the name of a whole one."""
    sibling = _beside(newest)
    draft, kept = sibling / "drafts/date=2026-09-01/3-ab", sibling / "kept/date=2026-09-01/20200101T000000Z-1-ab"
    for folder in (draft, kept):
        _data(str(folder / "part.parquet"))
    later = _later()
    whole: list[bool] = []
    watching = True

    def heard(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event == "os.remove" and str(arguments[0]).endswith("part.parquet"):
            whole.append((draft, kept)[len(whole) == 0].exists())

    sys.addaudithook(heard)
    gone = [fate for fate in fates(str(newest), later, LIMITS) if fate.action == "remove"]
    assert [fate.location for fate in gone] == [str(kept), str(draft)]
    for fate in gone:
        enact_fate(fate)
    watching = False
    assert whole == [False, False]


@pytest.mark.parametrize(("finished", "days"), [(True, 30), (False, 7)], ids=["finished", "unfinished"])
def test_a_run_goes_at_its_age_and_not_a_moment_before(newest: Path, finished: bool, days: int) -> None:
    run = _run(newest, "one", day=1, age=0, finished=finished, published=False)
    for seconds, action in ((-1, "keep"), (0, "remove"), (1, "remove")):
        _touch(run, dt.timedelta(days=days, seconds=seconds))
        assert _actions(newest)["one"] == action, seconds


def test_a_run_is_as_old_as_the_last_file_that_was_put_into_it(newest: Path) -> None:
    _run(newest, "long", day=1, age=90, finished=False, published=False)
    assert _actions(newest)["long"] == "remove"
    young = (NOW - dt.timedelta(days=1)).timestamp()
    os.utime(newest / "clicks" / "long" / "plans" / "0000.json", (young, young))
    fate = _of(newest, "long")
    assert (fate.action, fate.reason) == ("keep", "unfinished, and 1 days old of 7")


def test_combined_runs_do_not_take_the_place_of_those_that_a_warm_start_looks_at(newest: Path) -> None:
    for day in (21, 22, 23):
        _run(newest, f"combined-{day}", day=day, age=50, engine="combine")
    thin = {name for name, action in _actions(newest).items() if action != "keep"}
    assert thin == {"combined-21"}


def test_what_is_no_run_directory_or_cannot_be_read_is_left_alone(newest: Path) -> None:
    (newest / "clicks" / "notes").mkdir()
    (newest / "clicks" / "torn").mkdir()
    (newest / "clicks" / "torn" / "job.json").write_text("{")
    assert set(_actions(newest)) == {"newest", "second"}


@pytest.mark.long
def test_a_look_at_many_runs_takes_less_than_to_read_the_plan_of_each(newest: Path) -> None:
    run = _run(newest, "old", day=1, age=90)
    plan = first_plan(job([10], reducers=64, head_limit=10_000))
    head = {f"key-{number}": ((number % 64, WHOLE_WEIGHT),) for number in range(10_000)}
    Path(run.path("plans/0000.json")).unlink()
    run.write_once("plans/0000.json", plan.model_copy(update={"head": head}))
    _many(newest, Path(run.root), 20)
    begun = time.process_time()
    assert len(fates(str(newest), NOW, LIMITS)) == 23
    looked = time.process_time() - begun
    begun = time.process_time()
    for _ in range(20):
        run.plan(0)
    assert looked < time.process_time() - begun


def test_a_removal_takes_the_results_commit_first_and_the_job_last(newest: Path) -> None:
    """Whoever looks between finds no result, and still a run: it is a folder in a file's place that ends it here."""
    run = _run(newest, "old", day=1, age=90, published=False)
    stage = Path(run.path("stages/0000/COMMIT.json"))
    fate = _of(newest, "old")
    fate = fate._replace(files=(str(stage), *(path for path in fate.files if path != str(stage))))
    stage.unlink()
    stage.mkdir()
    with pytest.raises(OSError, match="directory"):
        enact_fate(fate)
    assert (run.exists("job.json"), run.exists("result/COMMIT.json")) == (True, False)


def test_the_newest_runs_of_hours_are_those_of_the_last_hours(newest: Path) -> None:
    runs = {hour: _run(newest, f"hour-{hour}", day=21, age=100 - int(hour)) for hour in ("05", "04", "03")}
    for hour, run in runs.items():
        spec = run.job().spec.model_copy(
            update={"schedule": run.job().spec.schedule.model_copy(update={"part": "hour-1"})}
        )
        hourly = run.job().model_copy(update={"hour": hour, "spec": spec})
        Path(run.path("job.json")).write_text(hourly.sealed(), encoding="utf-8")
        _touch(run, dt.timedelta(days=60 + int(hour)))  # the last hour was touched first
    kept = {name for name in _actions(newest) if "warm start" in _of(newest, name).reason}
    assert kept == {"hour-05", "hour-04"}


def test_the_newest_runs_of_a_day_are_those_that_were_touched_last(newest: Path) -> None:
    for name, age in (("a", 61), ("b", 62), ("c", 60)):
        _run(newest, name, day=22, age=age)
    assert {name for name in _actions(newest) if "warm start" in _of(newest, name).reason} == {"a", "c"}


def test_a_day_that_another_run_of_the_turn_has_published_keeps_nothing_of_this_one(newest: Path) -> None:
    """Its store of turns was lost, and the turn was drawn again."""
    run = _run(newest, "old", day=1, age=90)
    again = run.job().model_copy(update={"turn": run.job().turn, "input_path": "/elsewhere"})
    other = RunDirectory(str(newest / "clicks" / "other"))
    other.write_once("job.json", again)
    _show(other)
    assert _of(newest, "old").action == "remove"


@pytest.mark.parametrize("hours", [(48.0, 1.0), (1.0, 48.0)])
def test_of_several_times_of_grace_of_one_output_the_longest_counts(newest: Path, hours: tuple[float, float]) -> None:
    for name, of_run in zip(("a", "b"), hours, strict=True):
        run = _run(newest, name, day=1, age=80)
        output = run.job().spec.output.model_copy(update={"grace_hours": of_run})
        spec = run.job().spec.model_copy(update={"output": output})
        Path(run.path("job.json")).write_text(run.job().model_copy(update={"spec": spec}).sealed(), encoding="utf-8")
    kept = _beside(newest) / "kept" / "date=2026-09-01"
    for age in (47, 49):
        (kept / f"{NOW - dt.timedelta(hours=age):%Y%m%dT%H%M%SZ}-1-ab").mkdir(parents=True)
    gone = [one.location for one in fates(str(newest), NOW, LIMITS) if "/kept/" in one.location]
    assert [Path(one).name for one in gone] == [f"{NOW - dt.timedelta(hours=49):%Y%m%dT%H%M%SZ}-1-ab"]
