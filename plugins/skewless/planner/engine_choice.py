"""Which engine a run takes: states where rows are read, one state per key at once, or rows routed in stages.

``combine`` makes a state of every key in every input split and merges those: nothing straggles, and hardly anything
crosses the network as long as a split has far fewer keys than rows. ``bypass`` sends every row to a task once and makes
one state per key there: the better the more keys there are, the bigger a state is, or the more it costs to set a key
up. Heavy keys are placed by a sample, and split. ``staged`` does the same wave by wave, and corrects itself after each:
for rows that cost time, more for some keys than for others. The choice is made from a sample of the keys before the
first stage, and again after it, from exact counts. Few rows are combined without a sample.
"""

import math

import numpy as np

from skewless.bounds import makespan
from skewless.columns import column, exact_sum, numbers
from skewless.documents.job import Job
from skewless.documents.stage_report import EngineChoice, Histogram
from skewless.planner.forecast.key_sample import KeyCounts
from skewless.planner.forecast.observed_waves import ROW_SECONDS, SENT_ROW_SECONDS, USUAL_OVERHEAD_SECONDS
from skewless.planner.placement.head_keys import place_whole, pour
from skewless.routing.plan import LARGEST_PLAN, RoutingPlan
from skewless.spec.input import COMPRESSED
from skewless.spec.routing import ENGINES

#: Seconds to make, write, shuffle and merge one state, without its content.
STATE_SECONDS = 5e-7
STATE_BYTE_SECONDS = 1e-8
#: Seconds of a core that a task takes beside its rows: 0.05 in the JVM, 0.16 with a Python worker (B17).
TASK_SECONDS = 0.05
#: Seconds that a first stage takes in a new process: 8 on a quiet machine with two cores, 20 beside other work.
FIRST_STAGE_SECONDS = 15.0
#: Rows whose states take at most this long, were each of another key, are combined unseen: a sample takes longer.
UNSEEN_SECONDS = 0.1
#: DuckDB and polars aggregate so many rows in three seconds, in which Spark has not begun (``make bench ONLY=B14``).
ONE_PROCESS_ROWS = 50_000_000
#: A source partition may be so many times as large as a slot's fair share before the slots are taken
#: to be unevenly fed by splits.
UNEVEN = 1.5
#: Where rows are declared to take at most so many seconds, keys are about alike, and no stage need find that out.
CHEAP_ROW_SECONDS = 1e-5
#: A task of ``bypass`` has at most this many keys, so that Spark keeps all their states in a hash map.
KEYS_OF_A_TASK = 1 << 16
#: A key is placed by name if it has at least this part of a task's fair share of the rows.
NAMED_PART = 1 / 64
#: Keys are split only if the tasks would otherwise take more than so many times as long as evenly loaded slots: a run
#: in which each key has one state has nothing to merge.
WHOLE_ENOUGH = 1.03


def choose_engine(
    job: Job, counts: KeyCounts | None, rows: int, splits: int, largest_split: int = 0, *, named: bool = True
) -> EngineChoice:
    """The engine for the rows that are left, of which ``combine`` would read the largest split in one (0: unknown).

    Without ``named`` heavy keys, ``bypass`` cannot split them.
    """
    asked = job.asked_engine
    if not job.splittable and not job.at_once:
        return EngineChoice(engine="staged", rows=rows, sentence="staged: not every aggregate can be merged")
    if (traits := ENGINES.get(asked)) is not None:
        read = 0 if traits.in_tasks else splits
        keys = round(counts.keys_in(rows)) if counts is not None and traits.places else 0
        whole = "an aggregate of Spark's cannot be split: a hot key stays in one task"
        why = whole if job.at_once else "as the spec says"
        return EngineChoice(engine=asked, rows=rows, splits=read, keys=keys, sentence=f"{asked}, {why}")
    if counts is None or not counts.rows:
        return _unseen(job, rows, splits, largest_split)
    return _weighed(job, counts, rows, splits, largest_split, named=named)


def _unseen(job: Job, rows: int, splits: int, largest_split: int) -> EngineChoice:
    """The engine where nothing is known of the keys: a stage that finds out, unless it takes longer than it can save.

    ``combine`` makes at most one state for each row, those of a split one after the other. Of a mapper in Python,
    neither the number of rows nor their cost is known. Each stage joins its rows to the whole of the lookups.
    """
    known = job.spec.map is None or job.spec.map.mapper is None
    seconds = max(rows / job.slots_at(), largest_split) * _state_seconds(job)
    joined = sum(exact_sum(numbers(lookup.units, "rows")) for lookup in job.joined)
    first = job.wave_rows(0) if job.waves else 0
    slow = seconds > FIRST_STAGE_SECONDS
    if not known or not _cheap(job) or (slow and joined <= first):
        return EngineChoice(engine="staged", rows=rows, sentence="staged: nothing is known of the keys yet")
    price = f"{rows:,} states would take {seconds:,.1f} s, less than to find out"
    joins = f"to find out, {first:,} rows would be joined to {joined:,}, and all others to these again"
    words = f"combine: nothing is known of the keys yet, and {joins if slow else price}"
    return EngineChoice(engine="combine", rows=rows, splits=splits, sentence=words)


def to_be_found_out(job: Job) -> bool:
    """Whether a query's rows, which cost little, have too many states, and all else is left to choose from."""
    queried = job.asked_engine not in ENGINES and job.spec.map is not None and job.spec.map.mapper is None
    return queried and job.splittable and _cheap(job) and first_choice(job, None).traits.in_stages


def combined_unseen(job: Job) -> bool:
    """Whether the input is so small that ``combine`` is as good as any engine, whatever its keys are."""
    few = job.rows * _state_seconds(job) <= UNSEEN_SECONDS * job.slots_at()
    return few and job.counted and job.splittable and _cheap(job)


def fits_one_process(job: Job) -> bool:
    """Whether one process without Spark aggregates the input in seconds: it has few rows, which cost little each."""
    return job.spec.map is None and job.rows <= ONE_PROCESS_ROWS and job.splittable and _cheap(job)


def _state_seconds(job: Job) -> float:
    size = sum(one.state_bytes for one in job.algebra.values())
    return STATE_SECONDS + STATE_BYTE_SECONDS * size + sum(one.setup_seconds for one in job.algebra.values())


def _cheap(job: Job) -> bool:
    """Whether a row takes so little that keys cannot differ much; not where an aggregate does not say what it takes."""
    declared = [one.row_seconds for one in job.algebra.values()]
    return None not in declared and _row_seconds(job) <= CHEAP_ROW_SECONDS


def _row_seconds(job: Job) -> float:
    return math.fsum(one.row_seconds or 0.0 for one in job.algebra.values())


def _weighed(job: Job, counts: KeyCounts, rows: int, splits: int, largest_split: int, *, named: bool) -> EngineChoice:
    keys = counts.keys_in(rows)
    parts = len(job.covered.reduced) or 1  # a key has a state in each of them
    states, made = (min(float(rows), pieces * counts.keys_in(rows / pieces)) for pieces in (max(splits, parts), parts))
    each, routing = _state_seconds(job), job.spec.routing
    slots, given = job.slots_at(), routing.stage_overhead
    stage = (USUAL_OVERHEAD_SECONDS if given is None else given) * slots  # one more than combine needs
    tasks = routing.reducers * TASK_SECONDS
    # While one task reads the largest split, the other slots wait.
    more = max(0.0, largest_split - rows / slots) * (_row_seconds(job) + SENT_ROW_SECONDS) * slots
    seconds = {"combine": states * each + more, "staged": rows * ROW_SECONDS + made * each + stage + tasks}
    # Where it is not known what a row costs, or where it costs so much, keys may differ.
    if _cheap(job):
        hot = 0.0 if named else max(0.0, float(counts.counts.max()) / counts.rows - 1 / slots)
        # While one task has rows of a key that nobody can split, the other slots wait.
        waiting = hot * rows * (_row_seconds(job) + SENT_ROW_SECONDS) * slots
        seconds["bypass"] = rows * SENT_ROW_SECONDS + made * each + waiting + tasks
    # Where a row may cost anything, a large split may take any time.
    uneven = largest_split > UNEVEN * max(1.0, rows / slots)
    uneven = uneven and None in (one.row_seconds for one in job.algebra.values())
    priced = {name: value for name, value in seconds.items() if ENGINES[name].in_tasks or not uneven}
    engine = min(priced, key=lambda name: priced[name])
    if uneven:
        words = f"one source partition has {largest_split:,} of {rows:,} rows, and cannot be split"
    else:
        others = " and ".join(f"{name} {seconds[name]:,.1f} s" for name in ("bypass", "staged") if name in seconds)
        numbers = f"{states:,.0f} states in {splits:,} splits for {keys:,.0f} keys of {rows:,} rows"
        words = f"{numbers} cost {seconds['combine']:,.1f} s of a core; sending the rows instead costs {others}"
    return EngineChoice(
        engine=engine, rows=rows, splits=splits, keys=round(keys), states=round(states),
        combine_seconds=round(seconds["combine"], 3), bypass_seconds=round(seconds.get("bypass", 0.0), 3),
        staged_seconds=round(seconds["staged"], 3), sentence=f"{engine}: {words}",
    )  # fmt: skip


def first_choice(job: Job, counts: KeyCounts | None, *, named: bool = True) -> EngineChoice:
    """The engine of stage 0. Spark cuts plain text between any two lines, and no other source partition."""
    told = {name for name, value in job.source.options.items() if value.lower() == "true"}
    lines = job.source.format in {"csv", "json", "text"} and not told & {"multiLine", "wholetext"}
    rows = zip(column(job.units, "path"), numbers(job.units, "rows").tolist(), strict=True)
    whole = [count for path, count in rows if not lines or path.lower().endswith(COMPRESSED)]
    largest = max(whole, default=job.rows // job.combine_splits)
    return choose_engine(job, counts, job.rows, job.combine_splits, largest, named=named)


def plan_of_choice(job: Job, plan: RoutingPlan, choice: EngineChoice, seen: Histogram | None = None) -> RoutingPlan:
    """A plan for an engine that takes in everything from a plan's waves on.

    ``plan`` is that of this epoch as it would be staged, or the last one with the epoch of this one; ``seen`` has the
    keys of a sample, or of the stages so far.
    """
    first = plan.waves[0] if not plan.epoch else plan.waves[1]
    taken = plan.model_copy(
        update={
            "engine": choice.engine,
            "waves": (first, len(job.waves)),
            "head": {},
            "budget_rows": None,
            "expected_rows": (),
            "sentence": choice.sentence,
        }
    )
    return _with_tasks(job, taken, choice, seen) if choice.traits.places else taken


def _with_tasks(job: Job, plan: RoutingPlan, choice: EngineChoice, seen: Histogram | None) -> RoutingPlan:
    """As many tasks per reducer as its keys need and slots are free for, and heavy keys placed on them."""
    reducers, slots = len(plan.ring.tokens), job.slots_at()
    wanted = max(1.0, choice.keys / (reducers * KEYS_OF_A_TASK))
    most, free = (1 << max(1, tasks // reducers).bit_length() - 1 for tasks in (LARGEST_PLAN, slots))
    factor = min(max(1 << math.ceil(math.log2(wanted)), free), most)
    tasks = reducers * factor
    head = {}
    if seen is not None:
        least = NAMED_PART * seen.seen_rows / tasks
        heavy = sorted((-rows, key) for key, (rows, _) in seen.head.items() if rows >= max(1.0, least))
        rows = np.array([-count for count, _ in heavy], dtype=np.float64)
        # Spark's hash gives each task about as many of the other rows.
        others = np.full(tasks, (seen.seen_rows - rows.sum()) / tasks)
        placed = place_whole(rows, others)
        long = makespan(others + placed.loads(rows, tasks), slots) > WHOLE_ENOUGH * seen.seen_rows / min(slots, tasks)
        if long and job.splittable:
            placed = pour(rows, others)
        head = placed.as_head([key for _, key in heavy])
    factors = dict.fromkeys(plan.ring.tokens, factor) if factor > 1 else {}
    return plan.model_copy(update={"factors": factors, "head": head})
