"""The death of Airflow's own processes while a run is under way."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tests.faults.airflow_nights import AirflowHarness, Night
from tests.faults.airflow_parts import (
    API_SERVER,
    DAG_PROCESSOR,
    SCHEDULER,
    TRIGGERER,
    Parts,
    family,
    kill,
)
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
    "prepare": Moment("prepare", within_seconds=1.5),
    "stage": Moment("stage_00.run", "stages/0000/attempts", 0.2),
    "decision": Moment("stage_01.plan", "stages/0000/COMMIT.json"),
    "merge": Moment("merge", "result/attempts", 0.2),
    "validate": Moment("validate", "result/COMMIT.json", within_seconds=1.5),
    "publish": Moment("publish", "quality/COMMIT.json"),
}

#: Kills, given the processes and the id of the try that is at work; the component to be started again, if any.
Kill = Callable[[Parts, str], str]


def _task_alone(parts: Parts, ident: str) -> str:
    kill([parts.task(ident)])
    return ""


def _task_and_below(parts: Parts, ident: str) -> str:
    kill(family(parts.task(ident)))
    return ""


def _supervisor_alone(parts: Parts, ident: str) -> str:
    kill([parts.supervisor(ident)])
    return ""


def _supervisor_and_below(parts: Parts, ident: str) -> str:
    kill(family(parts.supervisor(ident)))
    return ""


def _component_alone(name: str, parts: Parts, ident: str) -> str:
    del ident
    kill([parts.component(name)])
    return name


def _component_and_below(name: str, parts: Parts, ident: str) -> str:
    del ident
    kill(family(parts.component(name)))
    return name


def _all(spark: bool, parts: Parts, ident: str) -> str:
    del ident
    parts.kill_all(spark=spark)
    return _ALL


_ALL = "up"
_KILLS: dict[str, tuple[Kill, tuple[str, ...]]] = {
    "the task's process": (_task_alone, ("stage", "publish")),
    "the task's process and all below": (_task_and_below, ("validate",)),
    "the task's supervisor": (_supervisor_alone, ("stage", "decision")),
    "the task's supervisor and all below": (_supervisor_and_below, ("prepare",)),
    "the scheduler": (partial(_component_alone, SCHEDULER), ("stage", "publish")),
    "the scheduler and all below": (partial(_component_and_below, SCHEDULER), ("merge",)),
    "the API server": (partial(_component_and_below, API_SERVER), ("stage", "validate")),
    "the DAG processor": (partial(_component_and_below, DAG_PROCESSOR), ("prepare",)),
    "the triggerer": (partial(_component_and_below, TRIGGERER), ("stage",)),
    "all of Airflow": (partial(_all, False), ("merge", "publish")),
    "all of Airflow and Spark Connect": (partial(_all, True), ("stage",)),
}


def trials() -> list[Trial]:
    """Each death, at two or three moments."""
    pairs = [(name, moment) for name, (_, moments) in _KILLS.items() for moment in moments]
    return [
        Trial(KIND, moment, f"of {name}", _FIRST_SEED + number, partial(killed, name, moment))
        for number, (name, moment) in enumerate(pairs)
    ]


def killed(name: str, moment: str, h: AirflowHarness, seed: int) -> Outcome:
    """Kill it while the run is at that moment, start it again, and wait for the run's end."""
    chance, at = chance_of(seed), MOMENTS[moment]
    with Night(h, seed) as night:
        ident = night.await_task(at.task, at.after)
        time.sleep(chance.uniform(0, at.within_seconds))
        gone = _KILLS[name][0](h.parts, ident)
        if gone:
            time.sleep(chance.uniform(0, _RESTART_SECONDS))
            h.house.up() if gone == _ALL else h.parts.start(gone)
        outcome = night.end()
        night.check()
    h.parts.sweep()
    return outcome
