"""The driver of a run: one Spark for all of its steps, which lives and dies with the tasks that ask for them."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from airflow.sdk.exceptions import AirflowException

from skewless.run.directory import RunDirectory, stage_step
from skewless_airflow.runners import on_one_machine as warm
from skewless_airflow.runners.on_one_machine import DriverSettings, DriverStep, own_folder
from skewless_airflow.runners.process_session import Session, born
from tests import airflow_setting
from tests.listening import drivers_of
from tests.processes import until

pytestmark = [airflow_setting.IN_PROCESS, pytest.mark.timeout(600)]

SPEC = {
    "name": "words",
    "input": {"path": "words"},
    "key": "word",
    "aggregates": {"n": "count"},
    "engine": "staged",
    "sharing": {"lease_seconds": 1},
    "routing": {"policy": "static", "waves": [1], "reducers": 3, "stage_overhead": 0, "first_plan": ["last_run"]},
    "output": {"path": "published", "files": 1},
}
#: A task: it asks for a stage, and tells of the driver's first process.
_TASK = """
import json, sys
from skewless_airflow.runners.on_one_machine import DriverSettings, DriverStep
run, submit, environment, arguments = json.loads(sys.argv[1])
step = DriverStep(arguments, DriverSettings(run, tuple(submit), environment), last=False)
for line in step.lines():
    print(line, flush=True)
sys.exit(step.failure())
"""


class Ran(NamedTuple):
    failure: str
    said: list[str]
    driver: Session | None


class World(NamedTuple):
    """A run directory, and the driver of its steps."""

    root: Path
    settings: DriverSettings

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(self.settings.run_dir)

    def ask(self, name: str, *arguments: str, last: bool = False, during: Callable[[], object] | None = None) -> Ran:
        step = DriverStep([name, "--run-dir", self.settings.run_dir, *arguments], self.settings, last=last)
        said = []
        try:
            for line in step.lines():
                said.append(line)
                if during is not None:
                    during()
            return Ran(step.failure(), said, step._session)
        finally:
            step.close()

    def prepare(self) -> Ran:
        done = self.ask(
            "prepare", *("--spec", str(self.root / "words.yaml"), "--date", "2026-11-20", "--root", str(self.root))
        )
        assert not done.failure, "\n".join(done.said)
        return done

    def drivers(self) -> list[psutil.Process]:
        return drivers_of(str(self.root))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    (tmp_path / "words").mkdir()
    for number in range(2):
        words = [f"word-{n % 97 if n % 3 else 0}" for n in range(number, 20_000, 2)]
        pq.write_table(pa.table({"word": words}), tmp_path / "words" / f"{number}.parquet")
    (tmp_path / "words.yaml").write_text(yaml.safe_dump(SPEC))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    # Without a progress bar, as the operator has it: a slow stage's would stand before the lines of a step.
    quiet = ("--conf", "spark.ui.showConsoleProgress=false")
    submit = ("spark-submit", "--master", "local[1]", "--conf", "spark.driver.memory=700m", *quiet)
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    made = World(tmp_path, DriverSettings(str(tmp_path / "run"), submit, environment))
    yield made
    for one in made.drivers():
        with suppress(psutil.NoSuchProcess):
            one.kill()


def test_steps_of_a_run_share_a_driver_that_ends_with_the_last_of_them(world: World) -> None:
    first = world.prepare()
    driver = first.driver
    assert driver is not None
    stage = world.ask("stage", "--stage", "0")
    assert not stage.failure, "\n".join(stage.said)
    assert stage.driver == driver
    assert [one for one in stage.said if one.startswith("skewless: stage 0: 20,000 rows admitted")]
    assert not [one for one in stage.said if "1 waves" in one], "that is a line of the step before"
    # Nobody else can open what the driver listens on.
    (folder,) = (world.root / "tmp" / f"skewless-drivers-{os.geteuid()}").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    again = world.ask("stage", "--stage", "0", last=True)
    assert (again.failure, again.driver) == ("", driver)
    until(lambda: not driver.processes(), "the driver to end after the last step", 60)
    until(lambda: not folder.exists(), "the driver to remove its folder", 60)


@pytest.mark.long
def test_when_the_task_is_killed_the_driver_ends_with_its_jvm_and_workers_and_the_next_step_has_another(
    world: World,
) -> None:
    driver = world.prepare().driver
    assert driver is not None
    arguments = ["stage", "--run-dir", world.settings.run_dir, "--stage", "0"]
    asked = json.dumps([world.settings.run_dir, world.settings.submit, dict(world.settings.environment), arguments])
    with subprocess.Popen([sys.executable, "-c", _TASK, asked], stdout=subprocess.DEVNULL) as task:
        attempts = Path(world.run.path(f"{stage_step(0)}/attempts"))
        until(lambda: attempts.exists() and any(attempts.iterdir()), "the stage to be at work", 60)
        assert len(driver.processes()) >= 2
        # A JVM that cannot end by itself, as when it is short of memory.
        (java,) = (one for one in world.drivers() if one.name() == "java")
        java.suspend()
        task.send_signal(signal.SIGKILL)
    until(lambda: not driver.processes(), "driver and JVM to end with the task", 10)
    assert not world.run.exists(f"{stage_step(0)}/COMMIT.json")
    after = world.ask("stage", "--stage", "0")
    assert not after.failure, "\n".join(after.said)
    assert after.driver != driver


@pytest.mark.long
def test_a_driver_without_a_step_ends_after_its_idle_time(world: World) -> None:
    environment = {**world.settings.environment, warm.IDLE: "1"}
    settings = DriverSettings(world.settings.run_dir, world.settings.submit, environment)
    driver = World(world.root, settings).prepare().driver
    assert driver is not None
    until(lambda: not driver.processes(), "the idle driver to end", 30)


def test_a_driver_in_use_is_not_shared_and_not_started_twice(world: World) -> None:
    name = world.settings.name()
    lock, first = own_folder(name)
    other, second = own_folder(name)
    assert first != second
    os.close(lock)
    again, third = own_folder(name)
    assert third == first
    os.close(other)
    os.close(again)


def test_what_a_killed_driver_has_left_is_removed_and_what_is_in_use_is_not(world: World) -> None:
    in_use, used = own_folder("used")
    left, dead = own_folder("dead")
    os.close(left)
    (dead / warm.STATE).write_text(json.dumps({"pid": 2**22 + 1, "born": 1}))
    left, idle = own_folder("idle")
    os.close(left)
    (idle / warm.STATE).write_text(json.dumps({"pid": os.getsid(0), "born": born(os.getsid(0))}))
    warm.sweep(world.root / "tmp" / f"skewless-drivers-{os.geteuid()}")
    assert used.exists()
    assert idle.exists()
    assert not dead.exists()
    os.close(in_use)


def test_another_size_or_environment_has_another_driver_and_what_airflow_sets_for_each_task_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = DriverSettings("run", ("spark-submit", "--master", "local[1]"), {"A": "1"})
    same = DriverSettings(
        "run", settings.submit, {"A": "1", "AIRFLOW_CTX_TASK_ID": "b", "__AIRFLOW_SUPERVISOR_FD": "9"}
    )
    assert settings.name() == same.name()
    others = [
        DriverSettings("run", (*settings.submit, "--conf", "spark.driver.memory=3g"), {"A": "1"}),
        DriverSettings("run", settings.submit, {"A": "2"}),
        DriverSettings("another", settings.submit, {"A": "1"}),
        DriverSettings("run", settings.submit, {"A": "1"}, "spark_second"),
    ]
    names = {settings.name(), *(one.name() for one in others)}
    assert len(names) == 5
    monkeypatch.chdir(tmp_path)
    names.add(settings.name())
    monkeypatch.setattr(sys, "executable", "/another/python")
    assert len({*names, settings.name()}) == 7


def test_a_folder_that_others_can_open_is_refused(world: World) -> None:
    home = world.root / "tmp" / f"skewless-drivers-{os.geteuid()}"
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    with pytest.raises(AirflowException, match="expected a folder of this user that nobody else can open"):
        own_folder(world.settings.name())


def test_another_user_cannot_ask_a_driver(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    lock, folder = own_folder(world.settings.name())
    monkeypatch.chdir(folder)  # the address of a socket has 108 bytes at most
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(warm.SOCKET)
        listener.listen()
        asked = "import os, socket, sys\nos.setuid(65534)\nsocket.socket(socket.AF_UNIX).connect(sys.argv[1])\n"
        words = [sys.executable, "-c", asked, warm.SOCKET]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    os.close(lock)
    assert "PermissionError" in done.stderr


#: In one process: a step that leaves a setting, a view and a cached table, and what the next one finds of them.
_TWO_STEPS = """
from skewless_spark.session.session import build_session
first = build_session("two steps", "local[1]")
before = first.conf.get("spark.sql.shuffle.partitions")
first.conf.set("spark.sql.shuffle.partitions", "3")
first.range(5).createOrReplaceTempView("left")
first.range(7).cache().count()
assert len(first.sparkContext._jsc.getPersistentRDDs()) == 1
first.catalog.clearCache()
second = build_session("two steps", "local[1]")
assert second.sparkContext.applicationId == first.sparkContext.applicationId
assert second.conf.get("spark.sql.shuffle.partitions") == before, "a setting"
assert second.conf.get("spark.sql.session.timeZone") == "UTC", "ours"
assert not second.catalog.tableExists("left"), "a view"
assert len(second.sparkContext._jsc.getPersistentRDDs()) == 0, "cached frames"
"""


@pytest.mark.long
def test_a_step_finds_no_setting_view_or_cached_frame_of_the_one_before() -> None:
    done = subprocess.run([sys.executable, "-c", _TWO_STEPS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
