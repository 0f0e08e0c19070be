"""The undisturbed run, its points, and what a fault may do to it: delay it or stop it, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Literal

from tests.faults.attempt import Attempt, Ended
from tests.faults.jvm import SharedJvm
from tests.faults.killed import Fault, Point
from tests.faults.steps import MERGE, PUBLISH, VALIDATE, Step, decide_step, named_step, prepare_step, stage_step
from tests.faults.world import World

Outcome = Literal["right", "stopped"]
END = "end"
#: One trial in so many goes on to the publication, also where it has shown before that nothing else can come of it.
ALL_THE_WAY = 25
#: A JVM keeps what killed drivers had of its objects, and so is not used for ever.
_DRIVERS_PER_JVM = 300


class Harness:
    """A world, a Spark, and the run without faults, remembered before each of its steps."""

    def __init__(self, place: Path, *, spark: bool, kind: type[World] = World) -> None:
        self.spark = spark
        self.world = kind(place, own_disk=True)
        self._record = place / "points.jsonl"
        self._number = self._drivers = 0
        self.last_sentence = ""
        if spark:
            _import_all()
        self.steps: list[Step] = []
        self.points: dict[str, list[Point]] = {}
        self._points = place / "points.json"
        if self._points.exists():
            self.points = {
                slug: [Point(*one) for one in of] for slug, of in json.loads(self._points.read_text()).items()
            }
            self.steps = [named_step(self.world, slug, spark=spark) for slug in self.points]
        else:
            self.before_the_run()
            self._undisturbed()

    def before_the_run(self) -> None:
        """What has to be there before the run without faults."""

    @cached_property
    def jvm(self) -> SharedJvm:
        """Started when an attempt needs it."""
        self._drivers = 0
        return SharedJvm()

    def close(self) -> None:
        if "jvm" in self.__dict__:
            self.jvm.close()
        self.world.close()

    def seeds(self, first: int) -> Iterator[int]:
        """Seeds from a number on; of trials without Spark, of which there are more, others that lie further apart."""
        return count(first if self.spark else 2 * first + 20_000)

    def tried_steps(self) -> list[Step]:
        """Those that faults happen to: with Spark, those that need it; all others are tried without."""
        return [step for step in self.steps if step.spark or not self.spark]

    def step(self, slug: str) -> Step:
        return next(step for step in self.steps if step.slug == slug)

    def begin(self, step: Step) -> None:
        if "jvm" in self.__dict__ and self._drivers > _DRIVERS_PER_JVM:
            self.jvm.close()
            del self.jvm
        self.idle()
        self.world.restore(step.slug)

    def idle(self) -> None:
        if "jvm" in self.__dict__:
            self.jvm.idle()

    def new_log(self, step: Step) -> Path:
        self._number += 1
        return self.world.logs / f"{self._number:05d}-{step.slug}.log"

    def attempt(
        self, step: Step, fault: Fault | None = None, *, record: bool = False, room: int | None = None
    ) -> Attempt:
        log = self.new_log(step)
        jvm = self.jvm if step.spark else None
        self._drivers += jvm is not None

        def act() -> int:
            if jvm is not None:
                jvm.attach()
            return step.act(self.world, log.stem)

        roots = [self.world.folder, self.world.out, self.world.beside]
        return Attempt(act, log, roots, fault, self._record if record else None, room)

    def points_of(self, step: Step) -> list[Point]:
        self._record.unlink(missing_ok=True)
        ended = self.attempt(step, record=True).ended()
        assert ended.code == 0, f"{step.name} failed without a fault:\n{ended.said}"
        lines = self._record.read_text(encoding="utf-8").splitlines()
        return [Point(*json.loads(line)) for line in lines]

    def after(self, step: Step) -> str:
        at = self.steps.index(step) + 1
        return self.steps[at].slug if at < len(self.steps) else END

    def check_failure(self, step: Step, ended: Ended) -> None:
        """An attempt that failed by itself said why, in one sentence; what is published is whole."""
        if ended.code != 0:
            assert ended.code > 0, f"{step.name} was ended by signal {-ended.code}"
            assert ended.sentence, f"{step.name} failed without a sentence:\n{ended.said[-3000:]}"
            assert ended.sentence.endswith((".", "?")), f"{step.name}: {ended.sentence}"
        self.world.check_published()

    def must_recover(self, step: Step, seed: int) -> Outcome:
        """After a fault that leaves no damage: what is published is whole, and the run goes on to the right result."""
        self.world.check_published()
        outcome = self.go_on(step, to_the_end=not self.spark or seed % ALL_THE_WAY == 0)
        assert outcome == "right", self.last_sentence
        return outcome

    def go_on(self, step: Step, *, to_the_end: bool) -> Outcome:
        """Try a step again and go on with the run, as Airflow does.

        Args:
            step: where to begin.
            to_the_end: whether to go on to the publication in any case. Otherwise it is enough that a step has left,
                byte for byte, what it leaves without a fault; and a stage goes on to the merged result.
        """
        for one in self.steps[self.steps.index(step) :]:
            ended = self.attempt(one).ended()
            self.check_failure(one, ended)
            if ended.code != 0:
                self.last_sentence = ended.sentence
                return "stopped"
            if to_the_end:
                continue
            if one.alike and self.world.settled() == self.world.settled(self.after(one)):
                break
            if one.slug == "merge":
                self.world.check_result()
                break
            if one.slug == "validate":
                quality = self.world.run.quality()
                assert quality is not None
                assert quality.success, "validation failed"
                break
            assert not one.alike or step is not one, f"{one.name} left something else than without a fault"
        if one is PUBLISH:
            self.world.check_end()
        else:
            self.world.check_published(new=False)
        return "right"

    def _undisturbed(self) -> None:
        stage = 0
        self.world.keep("prepare")
        self._done(prepare_step(self.world))
        while True:
            self._done(stage_step(stage))
            stage += 1
            self._done(decide_step(stage))
            if self.world.run.decision(stage).next_plan is None:
                break
        for step in (MERGE, VALIDATE, PUBLISH):
            self._done(step)
        self.world.keep(END)
        self.world.check_end()
        stages = tuple(step.slug for step in self.steps if step.slug.startswith("stage"))
        assert stages == self.world.stages, stages
        assert len(stages) == 1 or self.world.run.report(0).backlog_rows > 0, "or there is no backlog to lose"
        self._points.write_text(json.dumps(self.points), encoding="utf-8")

    def _done(self, step: Step) -> None:
        step = step if self.spark else step.without_spark()
        if self.steps:
            self.world.keep(step.slug)
        self.points[step.slug] = self.points_of(step)
        self.steps.append(step)


def _import_all() -> None:
    """Import what attempts need once, before they are forked."""
    import pyspark.sql  # noqa: F401

    from skewless_spark.quality.expectations import great_expectations

    great_expectations()
