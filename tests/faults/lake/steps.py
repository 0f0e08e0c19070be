"""What the processes of a trial do: the steps of a run, a reader, and a check of how it all ended."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from skewless.errors import SkewlessError
from skewless.run.objects import client
from tests.faults.lake import scene as lake
from tests.faults.lake.scene import Scene, Seen
from tests.faults.lake.syscalls import Call, Traced, traced

STEPS: dict[str, Callable[[Scene], None]] = {
    "merge": lake.merge,
    "validate": lake.validate,
    "publish": lake.publish,
    "rollback": lake.go_back,
}


class Patience(NamedTuple):
    """How long clients of object stores wait in a trial, which must not take minutes.

    Attributes:
        retries: of a request.
        seconds: of all tries of a request.
        answer_seconds: for one answer.
        pause_seconds: between two tries, at most.
    """

    retries: int = 3
    seconds: float = 5.0
    answer_seconds: float = 1.0
    pause_seconds: float = 0.2


class Life(NamedTuple):
    """What a process is given."""

    scene: Scene
    log: Path
    environment: Mapping[str, str]
    patience: Patience | None = None


def live(life: Life, call: Callable[[Scene], Any], answer: Any) -> None:
    """The whole life of a process: it ends with the call's exit code."""
    out = os.open(life.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    os.environ.update(life.environment)
    if life.patience is not None:
        client.RETRIES, client.RETRY_SECONDS = life.patience.retries, life.patience.seconds
        client.ANSWER_SECONDS = client.CONNECT_SECONDS = life.patience.answer_seconds
        client.LONGEST_PAUSE_SECONDS = life.patience.pause_seconds
    code = _ended(life.scene, call, answer)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def _ended(scene: Scene, call: Callable[[Scene], Any], answer: Any) -> int:
    try:
        found = call(scene)
        if answer is not None:
            answer.send(found)
    except SkewlessError as err:
        sys.stderr.write(f"skewless: {err}\n")
        return err.exit_code
    except BaseException:  # noqa: BLE001  # the parent reads it
        traceback.print_exc()
        return 70
    return 0


@dataclass(frozen=True)
class Doing:
    steps: tuple[str, ...]

    def __call__(self, scene: Scene) -> None:
        for step in self.steps:
            STEPS[step](scene)


@dataclass(frozen=True)
class Watched:
    steps: tuple[str, ...]
    strike: Call | None

    def __call__(self, scene: Scene) -> Traced:
        def act() -> int:
            code = _ended(scene, Doing(self.steps), None)
            sys.stdout.flush()
            sys.stderr.flush()
            return code

        return traced(act, [scene.root], self.strike)


@dataclass(frozen=True)
class Recovery:
    """What comes after a fault: readers look, the steps are done again, and everything is right.

    Attributes:
        before: what readers may see before that: the state before the run, or the one after it.
        steps: those that are done again.
        after: what readers must see then.
        publishes: whether the run has published then.
    """

    before: tuple[Seen, Seen]
    steps: tuple[str, ...]
    after: Seen
    publishes: bool

    def __call__(self, scene: Scene) -> bool:
        found = lake.seen(scene)
        assert found in self.before, f"readers see {found}"
        there = found == self.before[1]
        # Who has gone back, and was killed before it was told, looks before going back again.
        if self.steps != ("rollback",) or not there:
            Doing(self.steps)(scene)
        assert lake.seen(scene) == self.after, f"readers see {lake.seen(scene)}"
        if self.publishes:
            lake.check_record(scene)
        return there


def looked(scene: Scene) -> Seen:
    return lake.seen(scene)


def make_history(scene: Scene) -> None:
    lake.history(scene)


def make_run(scene: Scene) -> None:
    lake.begin(scene, lake.NEW)
