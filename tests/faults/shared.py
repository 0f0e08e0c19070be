"""A stage that several clusters share: one of them is killed or paused, and another one ends it."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from functools import partial

from tests.faults.harness import Harness, Outcome
from tests.faults.killed import Fault, Point, When
from tests.faults.kills import BOTH
from tests.faults.steps import Step, stage_step
from tests.faults.trial import Trial

#: The stage that is shared: rows come from its wave and from the backlog of the one before, and it leaves some.
SHARED = "stage-1"
#: What a cluster writes for all to see: its documents, the stage's commit, and what passes the fences.
_WRITES = re.compile(r"link .*\.json|rename to .*/heads/allocation%2F[^/]*(/ID)?")
_TIMES = 2


def shared_step(cluster: str) -> Step:
    name = stage_step(1).name
    arguments = ("--stage", "1", "--cluster", cluster)
    return Step(f"{name}, shared", SHARED, True, "share_stage.py", arguments)


def trials(h: Harness) -> Iterator[Trial]:
    if not h.spark:
        return
    seeds, step = h.seeds(7_000), shared_step("east")
    # Of a lease's record: when it is taken, when its work begins, when that is committed.
    points = [point for point in _points(h) if _WRITES.fullmatch(point.name) and point.nth <= _TIMES]
    for point in points:
        for when in BOTH:
            act = partial(_killed, point, when)
            yield Trial("kill", step.name, f"{when} {point.name}", next(seeds), act, spark=True)
    for point in points:
        fault = f"paused before {point.name}, woken after its successor"
        yield Trial("pause", step.name, fault, next(seeds), partial(_paused, point), spark=True)
    for _ in range(4):
        yield Trial("twice", step.name, "two clusters at once", next(seeds), _together, spark=True)


def _points(h: Harness) -> list[Point]:
    kept = h.world.logs.parent / "shared-points.json"
    if not kept.exists():
        step = h.step(SHARED)
        h.begin(step)
        kept.write_text(json.dumps(h.points_of(shared_step("east"))), encoding="utf-8")
    return [Point(*one) for one in json.loads(kept.read_text(encoding="utf-8"))]


def _killed(point: Point, when: When, h: Harness, seed: int) -> Outcome:
    h.begin(h.step(SHARED))
    ended = h.attempt(shared_step("east"), Fault(point, when)).ended()
    assert ended.code == -signal.SIGKILL, f"it was not killed, but ended with {ended.code}:\n{ended.said[-2000:]}"
    return _ended_by_another(h, seed)


def _paused(point: Point, h: Harness, seed: int) -> Outcome:
    h.begin(h.step(SHARED))
    east = h.attempt(shared_step("east"), Fault(point, sign=signal.SIGSTOP))
    assert east.stopped(), "it ended without pausing"
    outcome = _ended_by_another(h, seed)
    settled = h.world.settled()
    east.wake()
    h.check_failure(shared_step("east"), east.ended())
    assert h.world.settled() == settled, "a late cluster changed what counts"
    return outcome


def _together(h: Harness, seed: int) -> Outcome:
    h.begin(h.step(SHARED))
    clusters = [(step, h.attempt(step)) for step in (shared_step("east"), shared_step("west"))]
    for step, attempt in clusters:
        ended = attempt.ended()
        assert ended.code == 0, f"{step.name} failed without a fault:\n{ended.said[-3000:]}"
    return h.must_recover(h.step(SHARED), seed)


def _ended_by_another(h: Harness, seed: int) -> Outcome:
    h.world.check_published()
    west = shared_step("west")
    ended = h.attempt(west).ended()
    assert ended.code == 0, f"{west.name} was not ended by the other one:\n{ended.said[-3000:]}"
    return h.must_recover(h.step(SHARED), seed)
