"""What a stage reported, and what was decided on it."""

import re
from functools import cached_property
from itertools import chain
from typing import Annotated, Literal, Self, cast

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from skewless.columns import Columnar, Columns, Counts, column, exact_sum, numbers
from skewless.document import LAST_STAGE, Count, Document, Frozen, unmet
from skewless.routing.plan import RoutingPlan
from skewless.spec.routing import ENGINES, EngineName, EngineTraits

#: How a virtual task is named; that the name is one of the plan's is for who reads both. Reports have many of them,
#: so this is looked at where the text is parsed.
_TASK = r"\A(0|[1-9][0-9]{0,6})-(0|[1-9][0-9]{0,6})-[1-9][0-9]{0,6}\z"
#: The counts by slot of a histogram. In a key's text the quotes would be escaped.
_TAILS = re.compile(rb'"(seen_tail|backlog_tail)":\[[0-9,]*\]')
#: A longer key text is left to the ring: plans and reports are documents that people read.
LONGEST_HEAD_KEY = 1024


class TaskLoad(Frozen):
    """Rows of one virtual task in one stage; ``queued = processed + backlog``."""

    task: str = Field(pattern=_TASK)
    queued_rows: Count
    processed_rows: Count
    backlog_rows: Count
    states: Count
    busy_seconds: float | None = Field(default=None, ge=0)
    """Time it took to reduce its rows, where that was measured."""


class SplitLoad(Frozen):
    """Rows of one input split that was reduced where it was read (engine ``combine``); its place is its number."""

    rows: Count
    states: Count | None = None
    """Partial states that it made: different keys in it; null where nobody counted them."""
    busy_seconds: float | None = Field(default=None, ge=0)
    """Time it took to reduce its rows, where that was measured."""


class Histogram(Columnar):
    """Exact key counts: head keys one by one, all others added up per slot of the ring."""

    seen_rows: Count
    """Rows admitted in this stage and all before it."""
    seen_null_rows: Count
    backlog_null_rows: Count
    """Rows without a key that this stage left over."""
    head: dict[str, tuple[Count, Count]]
    """Key text -> (seen rows, backlog rows), exact."""
    seen_tail: Counts
    """Seen rows of the other keys, per slot, shape ``(2**ring_bits,)``."""
    backlog_tail: Counts
    """Backlog rows of the other keys, per slot, same shape."""
    head_seconds: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """Key text -> seconds spent on the rows of a head key that have been reduced so far, of keys where that was
    measured."""
    tail_seconds: float | None = Field(default=None, ge=0)
    """Seconds spent on all other rows so far, where that was measured."""
    keys: Count | None = None
    """Different keys seen so far, where they were counted."""

    @cached_property
    def head_counts(self) -> npt.NDArray[np.int64]:
        """Seen rows and backlog rows of each head key, in the order of ``head``, shape ``(keys, 2)``."""
        flat = chain.from_iterable(self.head.values())
        return np.fromiter(flat, dtype=np.int64, count=2 * len(self.head)).reshape(-1, 2)

    def on_ring(self, slots: int) -> "Histogram":
        """The same counts by the slots of a ring of another size, a power of two; keys that are named stay as they are.

        Slots of a finer ring add up exactly. Rows of a coarser slot are spread evenly over the finer ones that it
        is cut into, as nothing tells them apart; what is left over goes to the first of these.
        """
        tails = {name: _folded(getattr(self, name), slots) for name in ("seen_tail", "backlog_tail")}
        return self if len(self.seen_tail) == slots else self.model_copy(update=tails)


def _folded(rows: Counts, slots: int) -> Counts:
    counts = np.asarray(rows, dtype=np.int64)
    if slots <= len(counts):
        return cast("Counts", counts.reshape(slots, -1).sum(axis=1))
    parts = slots // len(counts)
    each, more = np.divmod(counts, parts)
    return cast("Counts", (each[:, None] + (np.arange(parts) < more[:, None])).ravel())


class SparkWork(Frozen):
    """What Spark did, by its own record. Each of these has a price, however few rows there are."""

    executions: Count
    jobs: Count
    """With those that Spark runs to broadcast a small table."""
    tasks: Count
    shuffle_bytes_written: Count
    """Bytes that tasks wrote for others to read."""
    shuffle_bytes_read: Count
    """The same, each time that they were read."""


class StageReport(Columnar, Document):
    """The record of a committed stage; the planner's only evidence."""

    stage: int = Field(ge=0, le=LAST_STAGE)
    """Its number, and the epoch of the plan that routed it."""
    waves: tuple[int, int]
    """The waves it admitted, ``first <= wave < end``."""
    admitted_rows: Count
    """Rows of the wave that arrived at the tasks."""
    backlog_in_rows: Count
    """Rows of the last stage's backlog that arrived at the tasks."""
    forwarded_rows: Count
    """Those of them whose owner had changed."""
    processed_rows: Count
    backlog_rows: Count
    """Rows left over and written for the next stage."""
    stage_seconds: float = Field(ge=0)
    tasks: Columns[TaskLoad]
    """One entry per virtual task, by task index; none where nothing was routed (engine ``combine``)."""
    histogram: Histogram
    source_rows: Count | None = None
    """Rows of the wave before the map, where not as many are admitted or their number was estimated: by the footers,
    else counted by the reader. Null where that read nothing, as Spark has seen from a condition that no row can satisfy
    it."""
    given_rows: Count | None = None
    """What became of them before they were routed: rows of the map, or the same ones."""
    splits: Columns[SplitLoad] = ()
    """One entry per input split, by its number, where nothing was routed; none where nobody counted them."""
    work: SparkWork | None = None
    """What Spark did for the stage; null where that is not known, or where clusters shared the stage."""
    found_states: Count | None = None
    """States of earlier stages that tasks went on from, where each key has one (``state: forward``)."""
    moved_states: Count | None = None
    """Those of them that were read from the files of another task, as their keys had moved."""
    moved_bytes: Count | None = None
    """The bytes of those, in memory."""
    slots: int | None = Field(default=None, ge=1)
    """How many tasks the application ran at one time in the stage, by Spark; null in a simulation."""
    rows_hash: Count | None = None
    """Of the processed rows, see ``skewless.document.HASHES``; null in a simulation."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not 0 <= self.waves[0] <= self.waves[1] <= LAST_STAGE:
            raise unmet("a range of waves", str(self.waves)[:120])
        if self.splits and (self.tasks or exact_sum(numbers(self.splits, "rows")) != self.processed_rows):
            came = f"{len(self.tasks)} tasks, and splits of {exact_sum(numbers(self.splits, 'rows')):,} rows"
            raise unmet(f"tasks, or else splits that have all {self.processed_rows:,} rows processed", came)
        return self

    @cached_property
    def processed(self) -> npt.NDArray[np.int64]:
        """Processed rows of each task, or where nothing was routed of each input split, shape ``(tasks,)``."""
        return numbers(self.tasks, "processed_rows") if self.tasks else numbers(self.splits, "rows")

    @cached_property
    def busy_seconds(self) -> npt.NDArray[np.float64] | None:
        """Seconds of each task, or input split; None where one with rows was not measured, or where there is none."""
        told = column(self.tasks or self.splits, "busy_seconds")
        busy = [seconds if rows else 0.0 for seconds, rows in zip(told, self.processed.tolist(), strict=True)]
        return np.array(busy) if busy and None not in busy else None

    @property
    def measured(self) -> bool:
        """Whether it is known which task, or which input split, had how many of the rows."""
        return bool(len(self.processed)) or not self.processed_rows

    @property
    def max_over_mean(self) -> float | None:
        """The largest task's processed rows over the mean; 1.0 if none were processed, None if not measured."""
        if not self.measured:
            return None
        return float(self.processed.max() / self.processed.mean()) if self.processed.any() else 1.0

    @property
    def balance_words(self) -> str:
        """``max_over_mean`` as a log says it."""
        return "not measured" if self.max_over_mean is None else f"{self.max_over_mean:.3f}"


class ReportWithoutTails(StageReport):
    """A report for readers that need no counts by slot, as reading these takes most of the time on a large ring."""

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "document") -> Self:
        """Read a document, without its counts by slot. See ``Document.from_json``."""
        raw = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
        return super().from_json(_TAILS.sub(rb'"\1":[]', raw), where)


class EngineChoice(Frozen):
    """The engine of a run's next stages, with the numbers that spoke for it."""

    engine: EngineName
    rows: int = Field(default=0, ge=0)
    splits: int = Field(default=0, ge=0)
    """Input splits that ``combine`` would read."""
    keys: int = Field(default=0, ge=0)
    """Different keys among the rows, estimated; 0 where nothing is known."""
    states: int = Field(default=0, ge=0)
    """That ``combine`` would make, estimated."""
    combine_seconds: float = Field(default=0.0, ge=0)
    """Predicted seconds of one core beyond reading and updating, as for the other engines."""
    bypass_seconds: float = Field(default=0.0, ge=0)
    """0 where it was no candidate."""
    staged_seconds: float = Field(default=0.0, ge=0)
    sentence: str

    @property
    def traits(self) -> EngineTraits:
        """What the engine makes of a plan."""
        return ENGINES[self.engine]


BoundName = Literal["fair share", "heaviest key", "several heavy keys"]


class Certificate(Frozen):
    """How far a largest load is from the best there can be."""

    total_rows: float = Field(ge=0)
    tasks: int = Field(ge=1)
    fair_rows: float = Field(ge=0)
    """``total / tasks``: the bound that holds for every plan."""
    heaviest_key: str | None
    """Key text of the heaviest key known, if any."""
    heaviest_rows: float = Field(ge=0)
    splittable: bool
    """Whether a key may be split over tasks."""
    bound_rows: float = Field(ge=0)
    """The best (largest) of the bounds that hold."""
    makespan_rows: float | None = Field(ge=0)
    """The largest load of a task, in rows. Null if it was not measured."""
    gap: float | None
    """``makespan / bound - 1``; 0 if there is nothing to do, null if nothing was measured. A measured gap is at least
    0. A predicted one may be below it: the prediction may be some rows short."""
    conclusion: str
    bound_name: BoundName
    """Which bound is the best; the first of equals."""

    @property
    def over_fair(self) -> float | None:
        """The largest load over the fair share: at least 1, also where there is nothing to do; None if not measured."""
        if self.makespan_rows is None:
            return None
        return self.makespan_rows / self.fair_rows if self.fair_rows else 1.0


class Candidate(Frozen):
    """One action the planner weighed."""

    action: str
    makespan_rows: float = Field(ge=0)
    """Predicted largest load of a task in the next stage, were it drained."""
    forwarded_rows: float = Field(ge=0)
    """Predicted backlog rows that would change their owner."""
    pieces: int = Field(ge=0)
    """(head key, task) pairs of the plan; those beyond one per key cost a partial state each."""
    cost_rows: float = Field(ge=0)
    """Makespan with forwarding and states priced in; the least is taken."""
    chosen: bool
    sentence: str


class Decision(Document):
    """The planner's answer to one report; about stage 0, to what is known before any."""

    stage: int = Field(ge=0, le=LAST_STAGE)
    policy: str
    engine: EngineChoice | None = None
    """The choice of an engine, where one was made: about stage 0, and where it is revised."""
    queued_rows: int = Field(ge=0)
    """Rows that stage will find: the backlog and the next wave."""
    candidates: tuple[Candidate, ...]
    """All that were weighed, the chosen one among them; empty when finished."""
    certificate: Certificate | None
    """Of the chosen plan's prediction."""
    sentence: str
    next_plan: RoutingPlan | None
