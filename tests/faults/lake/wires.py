"""Whole runs with a table in a bucket, over a wire that does something to one request, or to all from one on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import count

from tests.broken_wire import Fault
from tests.faults.attempt import Ended
from tests.faults.harness import Outcome
from tests.faults.lake.harness import ROLLBACK, RUN, LakeHarness, Place, Stage
from tests.faults.lake.kills import requests_of
from tests.faults.lake.requests import Request, Wire, wired
from tests.faults.lake.steps import Doing, Patience
from tests.faults.trial import Trial

WIRE, OUTAGE = "wire", "outage"
#: What happens to one request, in words.
_ONCE: dict[Fault, str] = {
    "lose request": "is lost",
    "lose answer": "is served, and its answer is lost",
    "cut answer": "is served, and its answer is cut in the middle",
    "late": "is answered later than its client waits",
    "500": "is answered by 500",
    "503": "is answered by 503",
}
#: And to a write.
_WRITES: dict[Fault, str] = {"409": "is answered by 409"}
_FOR_GOOD: tuple[Fault, ...] = ("503", "lose request")
#: With a patience of 5 seconds for a request, a step must have told its sentence by then.
_OUTAGE_SECONDS = 60.0


def trials(stage: Stage, first_seed: int) -> Iterator[Trial]:
    seeds = count(first_seed)
    for place in (RUN, ROLLBACK):
        step = f"{place.name}, {stage.where}"
        for number, request in enumerate(_of_reads_alike_the_first(requests_of(stage, place))):
            for fault, words in {**_ONCE, **(_WRITES if request.writes else {})}.items():
                act = partial(_once, stage, place, request, fault)
                yield Trial(WIRE, step, f"{request.name} {words}", next(seeds), act)
            if request.writes or number % 4 == 0:
                gone = _FOR_GOOD[number % 2]
                words = "503 to all requests" if gone == "503" else "no answer to any request"
                act = partial(_gone, stage, place, request, gone)
                yield Trial(OUTAGE, step, f"{words} from {request.name} on", next(seeds), act)


def _of_reads_alike_the_first(requests: list[Request]) -> list[Request]:
    return [one for one in requests if one.writes or one.nth == 1]


def _once(stage: Stage, place: Place, request: Request, fault: Fault, h: LakeHarness, seed: int) -> Outcome:
    del h, seed
    return _judged(stage, place, _done(stage, place, Wire(request, fault)))


def _gone(stage: Stage, place: Place, request: Request, fault: Fault, h: LakeHarness, seed: int) -> Outcome:
    """The store is away from a request on, and comes back once the run has given up."""
    del h, seed
    begun = time.monotonic()
    ended = _done(stage, place, Wire(request, fault, for_good=True))
    seconds = time.monotonic() - begun
    assert seconds < _OUTAGE_SECONDS, f"it took {seconds:.0f} seconds to give up"
    return _judged(stage, place, ended)


def _done(stage: Stage, place: Place, wire: Wire) -> Ended:
    stage.begin(place.template)
    with wired(stage, wire) as proxy:
        ended = stage.process(Doing(place.steps), proxy.port, Patience()).ended()
    assert wire.hit is not None, "the request did not come"
    return ended


def _judged(stage: Stage, place: Place, ended: Ended) -> Outcome:
    if ended.code != 0:
        assert ended.code > 0, f"it was ended by signal {-ended.code}"
        assert ended.sentence, f"it failed without a sentence:\n{ended.said[-3000:]}"
        assert ended.sentence.endswith((".", "?")), ended.sentence
        assert "\x1b" not in ended.sentence, ended.sentence
    there = stage.recover(place)
    assert there or ended.code != 0, "it ended well, and readers saw what was there before"
    return "right" if ended.code == 0 else "stopped"
