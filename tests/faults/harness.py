"""The undisturbed run, its points, and what a fault may do to it: delay it or stop it, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from tests.faults.attempt import Attempt, Ended
from tests.faults.jvm import SharedJvm
from tests.faults.killed import Fault, Point
from tests.faults.steps import MERGE, PUBLISH, VALIDATE, Step, decide_step, prepare_step, stage_step
from tests.faults.world import World

Outcome = Literal["right", "stopped"]
END = "end"


class Harness:
    """A world, a Spark, and the run without faults, remembered before each of its steps.

    Args:
        place: an empty folder.

    Attributes:
        steps: those of the run, in order.
        points: the points of each step, by its slug, in the order in which they came.
    """

    def __init__(self, place: Path) -> None:
        self.world = World(place, own_disk=True)
        self._record = place / "points.jsonl"
        self._number = 0
        _import_all()
        self.jvm = SharedJvm()
        self.steps: list[Step] = []
        self.points: dict[str, list[Point]] = {}
        self.world.keep("prepare")
        self._undisturbed()

    def close(self) -> None:
        """End Spark."""
        self.jvm.close()

    def attempt(
        self, step: Step, fault: Fault | None = None, *, record: bool = False, room: int | None = None
    ) -> Attempt:
        """Begin an attempt of a step."""
        self._number += 1

        def act() -> int:
            if step.spark:
                self.jvm.attach()
            return step.act(self.world)

        log = self.world.logs / f"{self._number:05d}-{step.slug}.log"
        roots = [self.world.folder, self.world.out]
        return Attempt(act, log, roots, fault, self._record if record else None, room)

    def after(self, step: Step) -> str:
        """Under which name it is remembered how things stood after a step."""
        at = self.steps.index(step) + 1
        return self.steps[at].slug if at < len(self.steps) else END

    def first_tries(self, step: Step, ended: Ended) -> None:
        """An attempt that failed by itself said why, in one sentence."""
        if ended.code > 0:
            assert ended.sentence, f"{step.name} failed without a sentence:\n{ended.said[-2000:]}"
            assert ": required " in ended.sentence, f"{step.name}: {ended.sentence}"
        self.world.check_published()

    def go_on(self, step: Step, *, to_the_end: bool) -> Outcome:
        """Try a step again and go on with the run, as Airflow does.

        Args:
            step: where to begin.
            to_the_end: whether to go on to the publication, also where that cannot come out otherwise: after a
                step that has left exactly what it leaves without a fault. A stage goes on to the merged result.
        """
        if self.jvm_busy:
            self.jvm.idle()
        for one in self.steps[self.steps.index(step) :]:
            ended = self.attempt(one).ended()
            if ended.code != 0:
                self.first_tries(one, ended)
                assert ended.code > 0, f"{one.name} was ended by a signal"
                return "stopped"
            if not to_the_end and not one.spark and one is not PUBLISH:
                if self.world.settled() == self.world.settled(self.after(one)):
                    self.world.check_published(new=False)
                    return "right"
                assert one.slug.startswith("decide"), f"{one.name} left something else than without a fault"
            if one is MERGE and not to_the_end:
                self.world.check_result()
                self.world.check_published(new=False)
                return "right"
        self.world.check_end()
        return "right"

    @property
    def jvm_busy(self) -> bool:
        """Whether a killed driver may have left something running."""
        return True

    def _undisturbed(self) -> None:
        stage = 0
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
        assert self.world.run.report(0).backlog_rows > 0, "or there is no backlog to lose"

    def _done(self, step: Step) -> None:
        if self.steps:
            self.world.keep(step.slug)
        self._record.unlink(missing_ok=True)
        ended = self.attempt(step, record=True).ended()
        assert ended.code == 0, f"{step.name} failed without a fault:\n{ended.said}"
        self.steps.append(step)
        lines = self._record.read_text(encoding="utf-8").splitlines()
        self.points[step.slug] = [Point(*json.loads(line)) for line in lines]


def _import_all() -> None:
    """Import what attempts need once, before they are forked."""
    import pyspark.sql  # noqa: F401

    from skewless_spark.expectations import great_expectations

    great_expectations()


Trial = Callable[[Harness], Outcome]
