"""Scenes of tables, remembered before each step of a run, and what is done to them by processes of their own."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.attempt import PATIENCE_SECONDS, Ended
from tests.faults.lake.scene import Scene, Seen, days
from tests.faults.lake.steps import Doing, Life, Patience, Recovery, live, make_history, make_run
from tests.object_stores import ObjectServer, object_server

#: Processes are forked from one that has imported everything and used nothing: the clients of Delta tables and of
#: object stores do not survive a fork.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([
    "deltalake", "pyiceberg.catalog.sql", "pyiceberg.expressions.parser", "sqlalchemy.dialects.sqlite",
    "tests.faults.lake.steps",
])  # fmt: skip

KINDS = ("iceberg", "delta")
FIRST = "first use"
_OLD, _NEW, _GONE_BACK = days(before="before", day="old"), days(before="before", day="new"), days(day="new")


class Place(NamedTuple):
    """A step to which faults happen, and what readers may see around it.

    Attributes:
        name: of the step, or of the whole run.
        steps: what is done.
        template: under which name is remembered how things stood before.
        before: what readers see before.
        after: what they see after.
        publishes: whether the run has published after it.
    """

    name: str
    steps: tuple[str, ...]
    template: str
    before: Seen
    after: Seen
    publishes: bool = False

    @property
    def recovery(self) -> Recovery:
        """What comes after a fault: the steps again, and those up to the publication."""
        steps = self.steps if self.name == "rollback" else ("merge", "validate", "publish")
        after = self.after if self.name == "rollback" else (_GONE_BACK if FIRST in self.name else _NEW)
        return Recovery((self.before, self.after), steps, after, publishes=self.name != "rollback")


ROLLBACK = Place("rollback", ("rollback",), "published", _NEW, _OLD)
PLACES = (
    Place("validate", ("validate",), "merged", _OLD, _OLD),
    Place("publish", ("publish",), "validated", _OLD, _NEW, publishes=True),
    ROLLBACK,
    Place(f"validate, {FIRST}", ("validate",), "first merged", {}, {}),
    Place(f"publish, {FIRST}", ("publish",), "first validated", {}, _GONE_BACK, publishes=True),
)
RUN = Place("merge, validate and publish", ("merge", "validate", "publish"), "begun", _OLD, _NEW, publishes=True)


class Process:
    """A process of a scene."""

    def __init__(self, life: Life, call: Callable[[Scene], Any]) -> None:
        self._log = life.log
        self._answer, theirs = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(target=live, args=(life, call, theirs), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def ended(self) -> Ended:
        self._process.join(PATIENCE_SECONDS)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
            raise AssertionError(f"a process still ran after {PATIENCE_SECONDS:.0f} seconds:\n{self._said()[-3000:]}")
        return Ended(self._process.exitcode, self._said())

    def answer(self) -> Any:
        ended = self.ended()
        assert ended.code == 0, ended.said[-4000:]
        return self._answer.recv()

    def _said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""


class Stage:
    """A scene with its server, if it has one, and how it stood before each step."""

    def __init__(self, place: Path, kind: str, *, bucket: bool) -> None:
        self._open, self._templates, self._logs = ExitStack(), place / "templates", place / "logs"
        root = place / "root"
        for folder in (root, self._templates, self._logs):
            folder.mkdir(parents=True)
        self.scene = Scene(str(root), kind, bucket)
        self.server: ObjectServer | None = None
        self._parts = {"root": root}
        if bucket:
            self.server = self._open.enter_context(object_server("localbucket", place / "server"))
            self._parts["bucket"] = place / "server" / "data" / "lake"
        self._number = 0
        self._build()

    def close(self) -> None:
        self._open.close()

    @property
    def where(self) -> str:
        return f"{self.scene.kind} {'in a bucket' if self.scene.bucket else 'on a disk'}"

    def begin(self, template: str) -> None:
        for name, path in self._parts.items():
            shutil.rmtree(path)
            shutil.copytree(self._templates / template / name, path, symlinks=True)

    def process(
        self, call: Callable[[Scene], Any], port: int | None = None, patience: Patience | None = None
    ) -> Process:
        """Begin a process."""
        self._number += 1
        client: Mapping[str, str] = {}
        if self.server is not None:
            client = self.server.environment if port is None else self.server.behind(port)
        log = self._logs / f"{self._number:05d}.log"
        return Process(Life(self.scene, log, self.scene.environment(client), patience), call)

    def recover(self, place: Place) -> bool:
        return bool(self.process(place.recovery).answer())

    def _build(self) -> None:
        for first in ("", "first "):
            if first:
                for path in self._parts.values():
                    shutil.rmtree(path)
                    path.mkdir()
            else:
                self.process(make_history).answer()
            self.process(make_run).answer()
            for name, step in (("begun", "merge"), ("merged", "validate"), ("validated", "publish")):
                self._keep(first + name)
                self.process(Doing((step,))).answer()
            self._keep(f"{first}published")

    def _keep(self, name: str) -> None:
        for part, path in self._parts.items():
            shutil.copytree(path, self._templates / name / part, symlinks=True)


class LakeHarness:
    """The scenes, each made when it is needed."""

    def __init__(self, place: Path) -> None:
        self._place, self._stages = place, dict[tuple[str, bool], Stage]()

    def stage(self, kind: str, *, bucket: bool) -> Stage:
        if (kind, bucket) not in self._stages:
            place = self._place / f"{kind}-{'bucket' if bucket else 'disk'}"
            self._stages[kind, bucket] = Stage(place, kind, bucket=bucket)
        return self._stages[kind, bucket]

    def close(self) -> None:
        for stage in self._stages.values():
            stage.close()
