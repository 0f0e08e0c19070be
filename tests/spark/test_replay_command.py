"""The nights after the first: plan 0 from the runs before, and ``skewless replay`` of a real run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from skewless.planner.first_plan import first_plan
from skewless.planner.policies import POLICIES
from skewless.run.directory import RunDirectory
from skewless.spec.spec import JobSpec
from skewless_spark.prepare.prepare import prepare
from tests.spark.scenario import DATE, reduce_job, spec_of, write_input
from tests.spark.test_pipeline import skewed

pytestmark = pytest.mark.long

SKEWLESS = [sys.executable, "-m", "skewless_cli.main", "replay"]


def replayed(run: RunDirectory, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SKEWLESS, str(run), *flags], capture_output=True, text=True, check=False)


def spec(path: Path, **routing: object) -> JobSpec:
    return spec_of(path, "key", {"n": "count"}, routing={"reducers": 4, "stage_overhead": 0, **routing})


@pytest.fixture(scope="module")
def nights(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[RunDirectory]:
    home = tmp_path_factory.mktemp("nights")
    path = write_input(home / "input", skewed(40_000), files=40)
    return [reduce_job(spark, spec(path), home / "runs" / name)[0] for name in ("night-1", "night-2")]


def anew(run: RunDirectory, name: str, **routing: object) -> RunDirectory:
    new = RunDirectory(str(Path(run.root).with_name(name)))
    prepare(new, spec(Path(run.job().input_path), **routing), DATE, str(Path(run.root).parent))
    return new


def test_a_replay_says_what_each_policy_would_have_made_of_a_run(nights: list[RunDirectory]) -> None:
    done = replayed(nights[0], "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["run_dir"] == str(nights[0])
    assert told["refused"] == []
    lines = {line["policy"]: line for line in told["policies"]}
    assert list(lines) == ["as it ran", *POLICIES]
    was, adaptive, static = lines["as it ran"], lines["adaptive"], lines["static"]
    assert adaptive["makespan_over_bound"] == pytest.approx(was["makespan_over_bound"], rel=0.02)
    assert adaptive["stages"] == was["stages"] == len(nights[0].reports())
    assert static["makespan_over_bound"] > adaptive["makespan_over_bound"]
    assert was["decisions"][-1].startswith("no further stage")

    shown = replayed(nights[0], "--policies", "static")
    assert shown.returncode == 0
    assert shown.stdout.count("static, stage ") == static["stages"]
    assert "halving" not in shown.stdout

    unknown = replayed(nights[0], "--policies", "static,adaptiv")
    assert unknown.returncode == 2
    assert unknown.stderr.splitlines() == [
        "skewless: --policies: expected known policies, but got 'adaptiv'; did you mean 'adaptive'?"
    ]


def test_the_second_night_begins_where_the_first_one_ended(nights: list[RunDirectory]) -> None:
    first, second = nights
    assert first.job().warm_from == ()
    assert first.plan(0) == first_plan(first.job())
    assert second.job().warm_from == (first.root,)
    assert second.plan(0).sentence.startswith("warm start from run night-1: ")
    assert second.plan(0).head
    worst = [max(load.queued_rows for load in night.report(0).tasks) for night in nights]
    assert worst[1] < worst[0]


def test_the_newest_two_runs_of_the_same_job_are_taken_and_a_retry_finds_the_same(nights: list[RunDirectory]) -> None:
    first, second = nights
    for number, night in enumerate(nights):
        os.utime(f"{night.root}/result/COMMIT.json", (1_000 + number, 1_000 + number))
    parent = Path(first.root).parent
    (parent / "foreign").mkdir(exist_ok=True)
    (parent / "torn" / "result").mkdir(parents=True, exist_ok=True)
    (parent / "torn" / "result" / "COMMIT.json").write_text("{")
    (parent / "torn" / "job.json").write_text("{")
    third = anew(first, "night-3")
    assert third.job().warm_from == (second.root, first.root)
    assert third.plan(0).sentence.endswith("the keys of the last two runs differ by 0%")
    before = third.plan(0)
    (Path(third.root) / "plans" / "0000.json").unlink()
    os.utime(f"{first.root}/result/COMMIT.json", (9_000, 9_000))
    assert anew(first, "night-3").plan(0) == before
