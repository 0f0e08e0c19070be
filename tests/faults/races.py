"""Attempts that meet: two of a step at once, and one that was paused and wakes when all is over."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from skewless.run.directory import QUALITY_REPORT, QUALITY_STEP, RESULT_STEP, RunDirectory
from skewless.run.publication.places import turns_folder
from skewless_leases import Turns, open_store
from skewless_spark.result.publishing import publish_now
from skewless_spark.session.step_lease import OWNER
from tests.faults.harness import Harness, Outcome
from tests.faults.killed import Fault, Point
from tests.faults.steps import Step
from tests.faults.trial import Trial
from tests.faults.world import DAY, World, chance_of


def trials(h: Harness) -> Iterator[Trial]:
    seeds = h.seeds(1_000)
    for step in h.tried_steps():
        for _ in range(2 if step.spark else 12):
            fault = "two attempts at once"
            yield Trial("twice", step.name, fault, next(seeds), partial(run_twice, step), step.spark)
    for step in h.tried_steps():
        for point in _pauses(h, step):
            fault = f"paused before {point.name}, woken after its successor"
            yield Trial("pause", step.name, fault, next(seeds), partial(pause_at, step, point), step.spark)


def _pauses(h: Harness, step: Step) -> list[Point]:
    points = h.points[step.slug]
    if not step.spark:
        # To read a lease's record again is one point like the other.
        return [point for point in points if not (point.action == "read" and f"/{OWNER}/" in point.path)]
    return [point for point in points if point.action in {"link", "make folder"}][-3:]


def run_twice(step: Step, h: Harness, seed: int) -> Outcome:
    h.begin(step)
    first = h.attempt(step)
    time.sleep(chance_of(seed).uniform(0, 0.5 if step.spark else 0.02))
    second = h.attempt(step)
    for attempt in (first, second):
        h.check_failure(step, attempt.ended())
    return h.must_recover(step, seed)


def pause_at(step: Step, point: Point, h: Harness, seed: int) -> Outcome:
    h.begin(step)
    late = h.attempt(step, Fault(point, sign=signal.SIGSTOP))
    assert late.stopped(), "it ended without pausing"
    outcome = h.must_recover(step, seed)
    newer = _publish_newer(h.world) if step.slug == "publish" else None
    settled = h.world.settled()
    late.wake()
    ended = late.ended()
    if newer is None:
        h.check_failure(step, ended)
    else:
        assert ended.code == 0 or ended.sentence.endswith((".", "?")), ended.said
        assert h.world.published() == newer, "a late attempt undid a newer result"
    assert h.world.settled() == settled, "a late attempt changed what counts"
    return outcome


def _publish_newer(world: World) -> dict[str, bytes]:
    run = RunDirectory(str(world.folder.with_name("r2")))
    job = world.run.job()
    turn = Turns(open_store(turns_folder(job.output_path))).draw(above=job.turn)
    run.write_once("job.json", job.model_copy(update={"turn": turn}))
    result = run.new_attempt(RESULT_STEP)
    file = Path(result.path("newer.parquet"))
    file.parent.mkdir(parents=True)
    file.write_bytes(next((world.out / DAY).glob("part-00000*.parquet")).read_bytes())
    result.commit([result.described("result", str(file), 1)], {"rows": 1, "keys": 1})
    quality, verdict = run.new_attempt(QUALITY_STEP), world.run.quality()
    assert verdict is not None
    quality.write(QUALITY_REPORT, verdict)
    quality.commit([], {})
    publish_now(run)
    return world.published()
