"""Steps of a run with a table that are killed: on a disk before each call that writes, in a bucket at each write."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from itertools import count

from tests.faults.harness import Outcome
from tests.faults.lake.harness import PLACES, LakeHarness, Place, Stage
from tests.faults.lake.requests import Request, Wire, wired
from tests.faults.lake.steps import Doing, Watched
from tests.faults.lake.syscalls import Call, Traced
from tests.faults.trial import Trial

KILL = "kill publisher"
#: Two threads write at once, and which of them makes a folder is left to chance: then it is tried again.
_TRIES = 5


def trials(stage: Stage, first_seed: int) -> Iterator[Trial]:
    seeds = count(first_seed)
    for place in PLACES:
        step = f"{place.name}, {stage.where}"
        if stage.scene.bucket:
            for request in _writes(stage, place):
                fault, act = f"before {request.name}", partial(_at_request, stage, place, request)
                yield Trial(KILL, step, fault, next(seeds), act)
        else:
            for call in _calls(stage, place):
                yield Trial(KILL, step, f"before {call.name}", next(seeds), partial(_at_call, stage, place, call))


def _calls(stage: Stage, place: Place) -> list[Call]:
    """The calls that a step comes to, in an order that does not depend on which of its threads is first."""
    stage.begin(place.template)
    found: Traced = stage.process(Watched(place.steps, None)).answer()
    assert found.code == 0, f"{place.name} failed without a fault"
    # Two threads may both make a folder, or one of them finds it there: only the first time changes anything.
    return sorted(call for call in found.calls if not (call.call.startswith("mkdir") and call.nth > 1))


def _writes(stage: Stage, place: Place) -> list[Request]:
    return [one for one in requests_of(stage, place) if one.writes]


def requests_of(stage: Stage, place: Place) -> list[Request]:
    """The requests that a step sends without a fault, in an order that does not depend on its threads."""
    stage.begin(place.template)
    wire = Wire()
    with wired(stage, wire) as proxy:
        ended = stage.process(Doing(place.steps), proxy.port).ended()
    assert ended.code == 0, ended.said
    return sorted(wire.came)


def _at_call(stage: Stage, place: Place, call: Call, h: LakeHarness, seed: int) -> Outcome:
    del h, seed
    for _ in range(_TRIES):
        stage.begin(place.template)
        found: Traced = stage.process(Watched(place.steps, call)).answer()
        if found.code == -signal.SIGKILL:
            break
    assert found.code == -signal.SIGKILL, f"it was not killed, but ended with {found.code}"
    stage.recover(place)
    return "right"


def _at_request(stage: Stage, place: Place, request: Request, h: LakeHarness, seed: int) -> Outcome:
    del h, seed
    stage.begin(place.template)
    wire = Wire(request, kills=True)
    with wired(stage, wire) as proxy:
        process = stage.process(Doing(place.steps), proxy.port)
        wire.pid = process.pid
        ended = process.ended()
    assert ended.code == -signal.SIGKILL, f"it was not killed, but ended with {ended.code}:\n{ended.said[-2000:]}"
    stage.recover(place)
    return "right"
