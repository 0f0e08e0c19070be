"""The command ``skewless``: exit codes, one sentence each, JSON, resuming."""

import errno
import io
import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from skewless.errors import InputError, MachineError, SkewlessError
from skewless.run.directory import RunDirectory
from skewless.spec.part import Part
from skewless.spec.spec import JobSpec
from skewless_cli import run_view, running, say, views
from skewless_cli.main import app
from skewless_spark.prepare.prepare import prepare
from tests.processes import side_by_side
from tests.spark.scenario import Told, write_input
from tests.spark.test_pipeline import skewed
from tests.unit.test_retention import _run

ROWS = 6_000
SKEWLESS = [sys.executable, "-m", "skewless_cli.main"]


def command(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SKEWLESS, *map(str, words)], cwd=cwd, capture_output=True, text=True, check=False)


Here = Callable[..., Told]


@pytest.fixture
def here(home: Path, monkeypatch: pytest.MonkeyPatch, command_here: Here) -> Here:
    monkeypatch.chdir(home)
    return command_here


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an input below ``data`` and a spec that reads it."""
    folder = tmp_path_factory.mktemp("home")
    write_input(folder / "data" / "input", skewed(ROWS), files=12)
    (folder / "spec.yaml").write_text(
        """
name: words
input: {path: input}
key: key
aggregates:
  n: count
  histogram: {function: streaming_histogram, column: value, bins: 8}
engine: combine
routing: {reducers: 3, waves: [1, 3], first_plan: [], stage_overhead: 0}
output: {path: results}
"""
    )
    return folder


BAD: list[tuple[str, list[str], str]] = yaml.safe_load(Path(__file__).with_name("values.yaml").read_text())["commands"]


@pytest.mark.parametrize(
    ("verb", "flags", "said"),
    [
        pytest.param(verb, flags, said, id=f"{verb}: {name}")
        for verb in ("check", "run")
        for name, flags, said in BAD
        if verb == "check" or name == "missing path"  # ``run`` checks as ``check`` does
    ],
)
def test_bad_input_is_told_in_one_sentence_without_a_stack_trace(
    here: Here, verb: str, flags: list[str], said: str
) -> None:
    done = here(verb, "spec.yaml", *flags)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("skewless: ")
    assert re.search(said, lines[0]), lines[0]


def test_the_installed_command_says_the_same_in_one_line(home: Path, here: Here) -> None:
    flags = ("check", "spec.yaml", "--set", "routing.polcy=static")
    done = command(*flags, cwd=home)
    assert (done.returncode, done.stdout, done.stderr) == here(*flags)


def test_a_spec_that_is_not_there_or_no_yaml_is_told_in_one_sentence(home: Path, here: Here) -> None:
    (home / "broken.yaml").write_text("name: [")
    for spec in ("none.yaml", "broken.yaml"):
        done = here("check", spec)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


_EACH_STAGE = ("stage", "decision")


@pytest.fixture(scope="module")
def whole(home: Path) -> dict[str, Any]:
    """What a run says as JSON that nobody disturbed; its directory is ``run``."""
    done = command("run", "spec.yaml", "--run-dir", "run", "--master", "local[2]", "--json", cwd=home)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_json_is_one_object_and_the_run_can_be_shown_resumed_but_not_taken_over(
    whole: dict[str, Any], here: Here
) -> None:
    assert set(whole) >= {"run_dir", "result_path", "stages", "ledger", "quality", "certificate", "savings"}
    assert whole["savings"]["sentence"].startswith("No row was sent to a task: every input split was ")
    assert (whole["ledger"]["balanced"], whole["quality"]["success"]) == (True, True)
    root = Path(whole["result_path"]).parents[3]
    assert not [*root.rglob("_SUCCESS")]  # a step has its commit
    assert sum(stage["admitted_rows"] for stage in whole["stages"]) == ROWS
    assert sum(pq.read_table(whole["result_path"]).column("n").to_pylist()) == ROWS
    assert pq.read_table(whole["published_path"]).equals(pq.read_table(whole["result_path"]))

    again = here("run", "spec.yaml", "--run-dir", "run", "--json")
    assert json.loads(again.stdout) == whole

    other = here("run", "spec.yaml", "--set", "routing.reducers=5", "--run-dir", "run")
    assert other.returncode == 2
    assert "the spec that it was begun with" in other.stderr

    shown = here("show", "run", "--times", "--json")
    steps = [step["step"] for step in json.loads(shown.stdout)["steps"]]
    stages = [f"{name} {stage['stage'] + (name == 'decision')}" for stage in whole["stages"] for name in _EACH_STAGE]
    assert steps == ["prepare", *stages, "merge", "validate", "publish"]
    shown = here("show", "run", "--times")
    assert "start the process, import" in shown.stdout

    shown = here("show", "run")
    assert shown.returncode == 0
    assert f"ledger: {ROWS:,} rows in the input, {ROWS:,} processed, {ROWS:,} in the states: balances" in shown.stdout


@pytest.mark.long
def test_a_run_killed_in_the_middle_of_a_stage_is_resumed_to_the_same_result(home: Path) -> None:
    run = ["run", "spec.yaml", "--set", "engine=staged", "--set", "output.path=again", "--json", "--run-dir"]
    undisturbed = command(*run, "undisturbed", cwd=home)
    assert undisturbed.returncode == 0, undisturbed.stderr
    stage = home / "killed" / "stages" / "0001"
    with side_by_side(
        [[*SKEWLESS, *run, "killed"]], cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as (killed,):
        while not stage.exists():
            assert killed.poll() is None, "the run has ended before it was killed"
            time.sleep(0.01)
    assert not (stage / "COMMIT.json").exists()
    assert (home / "killed" / "stages" / "0000" / "COMMIT.json").exists()
    resumed = command(*run, "killed", cwd=home)
    assert resumed.returncode == 0, resumed.stderr
    first, second = (pq.read_table(json.loads(one.stdout)["result_path"]) for one in (undisturbed, resumed))
    assert first.equals(second)


_VIEWS = """
import sys
from typer.testing import CliRunner
from skewless_cli.main import app
views = (
    ["show", "run"], ["show", "run", "--json"], ["replay", "run"], ["prune", "runs", "--dry-run"],
)
for words in views:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
print("pyspark" in sys.modules, "skewless_spark" in sys.modules)
"""


def test_views_of_runs_import_no_spark(home: Path, whole: dict[str, Any]) -> None:
    del whole
    seen = subprocess.run([sys.executable, "-c", _VIEWS], cwd=home, capture_output=True, text=True, check=True)
    assert seen.stdout.split() == ["False", "False"]


def test_prune_says_what_goes_and_takes_it_away_unless_it_is_a_dry_run(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name, day in {"newest": 20, "second": 19}.items():
        _run(runs, name, day=day, age=0)
    _run(runs, "failed", day=1, age=5_000, published=False)
    said = CliRunner().invoke(app, ["prune", "--root", str(tmp_path), "--dry-run"])
    assert said.exit_code == 0
    assert "dry run: remove" in said.output
    assert "never was" in said.output
    assert (runs / "clicks" / "failed").exists()
    CliRunner().invoke(app, ["prune", str(runs)])
    assert sorted(path.name for path in (runs / "clicks").iterdir()) == ["newest", "second"]


def test_ctrl_c_and_an_error_of_spark_are_one_line_each_with_the_command_that_resumes(
    home: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended_by(err: BaseException) -> Callable[..., None]:
        def run_job(run: RunDirectory, part: Part, spec: JobSpec, where: str, root: str, *_: object) -> None:
            prepare(run, spec, part.date, root, where)
            logging.getLogger().error("KeyboardInterrupt while sending command.")  # as py4j
            os.write(2, b"ERROR Executor: a stack of Java\n")
            raise err

        return run_job

    for err, code, said in (
        (KeyboardInterrupt(), 130, r"interrupted; go on with: (.*)\.\n"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, r"make room, and try again; go on with: (.*)\. Its .*\n"),
        (InputError.saying("a.csv", "no rows"), 2, r"a\.csv: no rows\.()\n"),
        (MachineError.saying("a.csv", "no rows", "did you mean b?"), 4, r"did you mean b\?()\n"),
    ):
        words = ["run", "spec.yaml", "--date", "2026-11-27", "--run-dir", str(home / f"ended {code}")]
        monkeypatch.setattr(running, "run_job", ended_by(err))
        done = here(*words)
        (again,) = re.findall(f"^skewless: .*{said}\\Z", done.stderr)
        assert (done.returncode, shlex.split(again)[1:]) == (code, [] if code in {2, 4} else words)


def test_a_job_s_name_shows_its_newest_run_with_job_day_and_state_first(tmp_path: Path) -> None:
    for name, day in {"first": 19, "second": 20, "third": 18}.items():
        shutil.rmtree(_run(tmp_path / "runs", name, day=day, age=0).path("quality"))  # it has no report
    assert views.run_named("clicks", str(tmp_path), None).path("").endswith("clicks/second/")
    assert views.run_named("clicks", str(tmp_path), "2026-09-18").path("").endswith("clicks/third/")
    for named, date, said in (("clikcs", None, "did you mean 'clicks'"), ("clicks", "2026-09-01", "-18, 2026-09-19, ")):
        with pytest.raises(SkewlessError, match=said):
            views.run_named(named, str(tmp_path), date)
    narrow = Console(file=io.StringIO(), width=80, force_terminal=True)
    with suppress(SkewlessError):  # its tasks are made up
        run_view.show(RunDirectory(str(tmp_path / "runs" / "clicks" / "second")), narrow)
    say(narrow, "unbroken " * 40 + "/a/path" * 20)
    first, *_, last = narrow.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "simulation, 2026-09-20: published" in first
    assert last == "/a/path" * 20
    wide = Console(file=io.StringIO(), width=200)
    views.list_runs(str(tmp_path), wide)
    listed = wide.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.split(":")[0] for line in listed] == [f"clicks, 2026-09-{day}" for day in (20, 19, 18)]
