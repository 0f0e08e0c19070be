"""Who balances: nobody, the paper's halving and doubling, or this project's planner."""

from __future__ import annotations

from collections import Counter
from functools import cache
from string import ascii_letters

from benchmarks.dpa.actors import REDUCERS, Look
from benchmarks.simulation import simulated_job
from skewless.documents.job import Job, Unit
from skewless.documents.stage_report import Histogram, StageReport, TaskLoad
from skewless.planner.first_plan import first_plan
from skewless.planner.placement.ring_changes import doubled, halved
from skewless.planner.planner import plan_next_stage
from skewless.routing.ring import Ring

#: The ring has ``2**RING_BITS`` slots; halving begins with HALVING_TOKENS each, doubling with one.
RING_BITS = 16
HALVING_TOKENS = 16
#: A run has no more than 13 looks at the queues, so doubling never gets there.
MOST_TOKENS = 1 << 13


class Nobody:
    """The ring as it is at the start, whatever happens."""

    def __init__(self, tokens: int) -> None:
        self.ring = Ring.even(REDUCERS, tokens, RING_BITS)

    def owner(self, letter: str, item: int) -> int:
        """The reducer of the letter on the ring."""
        del item
        return owner_of(letter, tuple(self.ring.tokens.values()))

    def relieve(self, look: Look) -> bool:
        """Move tokens, if there are any to move."""
        ring = self._moved(look.overloaded)
        self.ring = ring or self.ring
        return ring is not None

    def _moved(self, reducer: int) -> Ring | None:
        del reducer
        return None


class Halving(Nobody):
    """The overloaded reducer gives half of its tokens up."""

    def _moved(self, reducer: int) -> Ring | None:
        return halved(self.ring, reducer)


class Doubling(Nobody):
    """All but the overloaded reducer get twice as many tokens."""

    def _moved(self, reducer: int) -> Ring | None:
        return doubled(self.ring, reducer, MOST_TOKENS)


def owner_of(letter: str, tokens: tuple[int, ...]) -> int:
    """The reducer of a letter where reducer r holds ``tokens[r]``."""
    return _owners(tokens)[letter]


@cache
def _owners(tokens: tuple[int, ...]) -> dict[str, int]:
    ring = Ring(ring_bits=RING_BITS, tokens=dict(enumerate(tokens)))
    return {letter: int(ring.slot_owners[ring.slot_of(letter)]) for letter in ascii_letters}


class Adaptive:
    """``plan_next_stage``, asked at each look as it is after each stage of a run.

    What has been pushed is the wave of the reported stage, what is still to come the next one. The
    backlog of a task is what waits for it under the plan, in whatever queue. The planner evens out what
    is queued: it takes a stage to end at a barrier, and does not make up for who had more before.
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.plan = first_plan(_job(tokens, 0, 0)).model_copy(update={"waves": (0, 1)})

    def owner(self, letter: str, item: int) -> int:
        """The task that the plan gives the letter, or the share of it that the item's number draws."""
        return self.plan.task_of(letter, item)

    def relieve(self, look: Look) -> bool:
        """Take the planner's choice; to stand still is no change."""
        decided = plan_next_stage(self.job(look), self.plan, self.report(look)).next_plan
        if decided is None or (decided.head, decided.ring) == (self.plan.head, self.plan.ring):
            return False
        self.plan = decided.model_copy(update={"waves": (0, 1)})  # what has been pushed counts as one wave
        return True

    def job(self, look: Look) -> Job:
        """The job at a look: what has been pushed, and what is still to come."""
        pushed = sum(look.seen.values())
        return _job(self.tokens, pushed, look.items - pushed)

    def report(self, look: Look) -> StageReport:
        """The look as the report of a stage."""
        left = Counter(letter for letter, _ in look.queued)
        at = Counter(self.owner(letter, item) for letter, item in look.queued)
        slots = (0,) * (1 << self.plan.ring.ring_bits)
        pushed, waiting = sum(look.seen.values()), len(look.queued)
        return StageReport(
            stage=self.plan.epoch,
            waves=self.plan.waves,
            admitted_rows=pushed,
            backlog_in_rows=0,
            forwarded_rows=0,
            processed_rows=pushed - waiting,
            backlog_rows=waiting,
            stage_seconds=0.0,
            tasks=tuple(
                TaskLoad(
                    task=str(task),
                    queued_rows=look.processed[number] + at[number],
                    processed_rows=look.processed[number],
                    backlog_rows=at[number],
                    states=0,
                )
                for number, task in enumerate(self.plan.tasks)
            ),
            histogram=Histogram(
                seen_rows=pushed,
                seen_null_rows=0,
                backlog_null_rows=0,
                head={letter: (rows, left[letter]) for letter, rows in sorted(look.seen.items())},
                seen_tail=slots,
                backlog_tail=slots,
            ),
        )


def _job(tokens: int, pushed: int, to_come: int) -> Job:
    """The job of counting letters, of which some have been pushed and the rest is the next wave."""
    waves = [pushed, to_come] if to_come else [pushed]
    # A look costs nothing.
    job = simulated_job([1], reducers=REDUCERS, tokens=tokens, stage_overhead=0)
    units = tuple(Unit(path=f"{number}.parquet", rows=rows, size_bytes=1) for number, rows in enumerate(waves))
    return job.model_copy(update={"units": units, "waves": tuple((number,) for number in range(len(waves)))})
