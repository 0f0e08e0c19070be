"""The death of Airflow's own processes while a run is under way."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from operator import itemgetter
from typing import NamedTuple

import psutil

from tests.faults.airflow_nights import AirflowHarness, Night
from tests.faults.airflow_parts import API_SERVER, DAG_PROCESSOR, SCHEDULER, TRIGGERER, Parts, family, kill
from tests.faults.harness import Outcome
from tests.faults.trial import Trial
from tests.faults.world import chance_of

KIND = "kill Airflow"
_FIRST_SEED = 9_001
#: An operator, or whatever watches the service, starts it again after at most so long.
_RESTART_SECONDS = 5.0


class Moment(NamedTuple):
    """When a trial strikes.

    Attributes:
        task: that is at work.
        after: what of the run directory has to be there by then.
        within_seconds: after that, at most.
    """

    task: str
    after: str = ""
    within_seconds: float = 0.0


MOMENTS = {
    "prepare": Moment("prepare", within_seconds=0.2),
    "stage": Moment("stage_00.run", "stages/0000/attempts", 0.2),
    "decision": Moment("stage_01.plan", "stages/0000/COMMIT.json"),
    "merge": Moment("merge", "result/attempts", 0.2),
    "validate": Moment("validate", "result/COMMIT.json", within_seconds=1.5),
    "publish": Moment("publish", "quality/COMMIT.json"),
}

#: What `up` starts again, and nothing less.
_ALL = "all"


class Death(NamedTuple):
    """What is killed, and when it is tried.

    Attributes:
        kill: does it, given the processes and the id of the try that is at work; what is then to be started again.
        moments: names of moments.
    """

    kill: Callable[[Parts, str], str]
    moments: Sequence[str]


def _of_task(which: Callable[[Parts, str], psutil.Process], below: bool, parts: Parts, ident: str) -> str:
    process = which(parts, ident)
    kill(family(process) if below else [process])
    return ""


def _of_component(name: str, below: bool, parts: Parts, ident: str) -> str:
    del ident
    process = parts.component(name)
    kill(family(process) if below else [process])
    return name


def _of_all(spark: bool, parts: Parts, ident: str) -> str:
    del ident
    parts.kill_all(spark=spark)
    return _ALL


_DEATHS = {
    "the task's process": Death(partial(_of_task, Parts.task, False), ["stage", "publish"]),
    "the task's process and all below": Death(partial(_of_task, Parts.task, True), ["validate"]),
    "the task's supervisor": Death(partial(_of_task, Parts.supervisor, False), ["stage", "decision"]),
    "the task's supervisor and all below": Death(partial(_of_task, Parts.supervisor, True), ["merge"]),
    "the scheduler": Death(partial(_of_component, SCHEDULER, False), ["stage", "publish"]),
    "the scheduler and all below": Death(partial(_of_component, SCHEDULER, True), ["merge"]),
    "the API server": Death(partial(_of_component, API_SERVER, True), ["stage", "validate"]),
    "the DAG processor": Death(partial(_of_component, DAG_PROCESSOR, True), ["prepare"]),
    "the triggerer": Death(partial(_of_component, TRIGGERER, True), ["stage"]),
    "all of Airflow": Death(partial(_of_all, False), ["merge", "publish"]),
    "all of Airflow and the driver": Death(partial(_of_all, True), ["stage"]),
}
#: One run in which each step has its death.
_IN_TURN = [
    ("the DAG processor", "prepare"),
    ("the triggerer", "stage"),
    ("the task's supervisor", "decision"),
    ("the API server", "merge"),
    ("the task's process and all below", "validate"),
    ("the scheduler", "publish"),
]


def trials() -> list[Trial]:
    """Each death at a moment, then those that are tried at two, so that a run that is broken off has some of each."""
    seeds = count(_FIRST_SEED)
    rounds = [
        (turn, Trial(KIND, moment, f"of {name}", next(seeds), partial(killed, name, moment)))
        for name, death in _DEATHS.items()
        for turn, moment in enumerate(death.moments)
    ]
    in_turn = Trial(KIND, "all steps", "of one after another", next(seeds), in_one_run)
    return [*(trial for _, trial in sorted(rounds, key=itemgetter(0))), in_turn]


def killed(name: str, moment: str, h: AirflowHarness, seed: int) -> Outcome:
    return _night(h, seed, [(name, moment)])


def in_one_run(h: AirflowHarness, seed: int) -> Outcome:
    return _night(h, seed, _IN_TURN)


def _night(h: AirflowHarness, seed: int, deaths: Sequence[tuple[str, str]]) -> Outcome:
    chance = chance_of(seed)
    try:
        with Night(h, seed) as night:
            for name, moment in deaths:
                _strike(h, night, name, MOMENTS[moment], chance)
            outcome = night.end()
            night.check()
            return outcome
    finally:
        h.parts.sweep()


def _strike(h: AirflowHarness, night: Night, name: str, at: Moment, chance: random.Random) -> None:
    ident = night.await_task(at.task, at.after)
    time.sleep(chance.uniform(0, at.within_seconds))
    gone = _DEATHS[name].kill(h.parts, ident)
    if gone:
        time.sleep(chance.uniform(0, _RESTART_SECONDS))
        h.installation.up() if gone == _ALL else h.parts.start(gone)
