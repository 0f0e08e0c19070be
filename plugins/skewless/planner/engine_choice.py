"""Which engine a run takes: partial states where the rows are read, or rows routed to their tasks.

``combine`` makes a state of every key in every input split and merges those: nothing straggles, and
hardly anything crosses the network as long as a split has far fewer keys than rows. ``staged`` sends
every row to its task once and makes one state per key: the better the more keys there are, the bigger
a state is, or the more it costs to set a key up. The choice is made from a sample of the keys before
the first stage, and again after it, from exact counts.
"""

from __future__ import annotations

from skewless.documents.engine_choice import EngineChoice, EngineName
from skewless.documents.job import Job
from skewless.planner.cost import ROW_SECONDS
from skewless.planner.forecast.key_counts import KeyCounts
from skewless.routing.plan import RoutingPlan

#: Seconds to make, write, shuffle and merge one state, without its content.
STATE_SECONDS = 5e-7
#: Seconds for each byte of a state's content.
STATE_BYTE_SECONDS = 1e-8
#: Stages that a staged run is taken to need, beyond what combine needs.
MORE_STAGES = 1
#: A source partition may be so many times as large as a slot's fair share before the slots are taken
#: to be unevenly fed by splits.
UNEVEN = 1.5


def choose_engine(job: Job, counts: KeyCounts | None, rows: int, splits: int, largest_split: int = 0) -> EngineChoice:
    """The engine for the rows that are left.

    Args:
        job: the frozen job: what its aggregates are, and what its spec says.
        counts: of a sample of the rows, or of all seen so far; None where nothing is known.
        rows: to be reduced.
        splits: that ``combine`` would read them in, at least 1.
        largest_split: rows of the largest one; 0 where it is not known.
    """
    asked = job.spec.engine
    if not job.splittable:
        return EngineChoice(engine="staged", rows=rows, sentence="staged: not every aggregate can be merged")
    if asked == "combine":
        return EngineChoice(engine=asked, rows=rows, splits=splits, sentence="combine, as the spec says")
    if asked == "staged":
        return EngineChoice(engine=asked, rows=rows, sentence="staged, as the spec says")
    if counts is None or not counts.rows:
        return EngineChoice(engine="staged", rows=rows, sentence="staged: nothing is known of the keys yet")
    return _weighed(job, counts, rows, splits, largest_split)


def _weighed(job: Job, counts: KeyCounts, rows: int, splits: int, largest_split: int) -> EngineChoice:
    keys = counts.keys_in(rows)
    states = min(float(rows), splits * counts.keys_in(rows / splits))
    size = sum(one.state_bytes for one in job.algebra.values())
    setup = sum(one.setup_seconds for one in job.algebra.values())
    each = STATE_SECONDS + STATE_BYTE_SECONDS * size + setup
    parallelism = job.spec.routing.parallelism
    stage = MORE_STAGES * (job.spec.routing.stage_overhead or 0.0) * parallelism
    combine, staged = states * each, rows * ROW_SECONDS + keys * each + stage
    numbers = f"{states:,.0f} states in {splits:,} splits for {keys:,.0f} keys of {rows:,} rows"
    if largest_split > UNEVEN * max(1.0, rows / parallelism):
        engine: EngineName = "staged"
        words = f"one source partition has {largest_split:,} of {rows:,} rows, and cannot be split"
    else:
        engine = "combine" if combine <= staged else "staged"
        words = f"{numbers} cost {combine:,.1f} s of a core, and routing the rows instead {staged:,.1f} s"
    return EngineChoice(
        engine=engine, rows=rows, splits=splits, keys=round(keys), states=round(states),
        combine_seconds=round(combine, 3), staged_seconds=round(staged, 3), sentence=f"{engine}: {words}",
    )  # fmt: skip


def first_choice(job: Job, counts: KeyCounts | None) -> EngineChoice:
    """The engine of stage 0.

    Args:
        job: the frozen job.
        counts: of a sample of the keys; None where there is none.
    """
    largest = max((unit.rows for unit in job.units), default=0)
    return choose_engine(job, counts, job.rows, job.combine_splits, largest)


def combine_plan(job: Job, plan: RoutingPlan, choice: EngineChoice) -> RoutingPlan:
    """A plan that takes in everything from a plan's waves on, and routes nothing.

    Args:
        job: the frozen job.
        plan: of this epoch as it would be staged, or the last one with the epoch of this one.
        choice: the engine's.
    """
    first = plan.waves[0] if not plan.epoch else plan.waves[1]
    return plan.model_copy(
        update={
            "engine": "combine",
            "waves": (first, len(job.waves)),
            "head": {},
            "budget_rows": None,
            "expected_rows": (),
            "sentence": choice.sentence,
        }
    )
