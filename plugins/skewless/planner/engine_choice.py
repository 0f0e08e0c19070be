"""Which engine a run takes: partial states where the rows are read, or rows routed to their tasks.

``combine`` makes a state of every key in every input split and merges those: nothing straggles, and
hardly anything crosses the network as long as a split has far fewer keys than rows. ``staged`` sends
every row to its task once and makes one state per key: the better the more keys there are, the bigger
a state is, or the more it costs to set a key up. The choice is made from a sample of the keys before
the first stage, and again after it, from exact counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from skewless.document import Frozen
from skewless.documents.job import Job
from skewless.documents.stage_report import StageReport

#: Seconds that one core takes to send a raw row through the exchange, and back from it in order. Only
#: the ratio of the three matters; measured with pyspark 4.3 over Parquet (benchmarks B1 and B3).
ROW_SECONDS = 6e-7
#: Seconds to make, write, shuffle and merge one state, without its content.
STATE_SECONDS = 5e-7
#: Seconds for each byte of a state's content.
STATE_BYTE_SECONDS = 1e-8
#: Stages that a staged run is taken to need, beyond what combine needs.
MORE_STAGES = 1
#: A source partition may be so many times as large as a slot's fair share before the slots are taken
#: to be unevenly fed by splits.
UNEVEN = 1.5

EngineName = Literal["combine", "staged"]


class EngineChoice(Frozen):
    """The engine of a run's next stages, with the numbers that spoke for it.

    Attributes:
        engine: what was chosen.
        rows: rows to be reduced.
        splits: input splits that ``combine`` would read.
        keys: different keys among the rows, estimated; 0 where nothing is known.
        states: states that ``combine`` would make, estimated.
        combine_seconds: predicted seconds of one core beyond reading and updating, engine ``combine``.
        staged_seconds: the same, engine ``staged``.
        sentence: the choice in words.
    """

    engine: EngineName
    rows: int = Field(default=0, ge=0)
    splits: int = Field(default=0, ge=0)
    keys: int = Field(default=0, ge=0)
    states: int = Field(default=0, ge=0)
    combine_seconds: float = Field(default=0.0, ge=0)
    staged_seconds: float = Field(default=0.0, ge=0)
    sentence: str


@dataclass(frozen=True, eq=False)
class KeyCounts:
    """How often the keys of a sample of the rows occur.

    Attributes:
        counts: rows of each key of the sample, at least 1, in any order, shape ``(keys,)``.
    """

    counts: npt.NDArray[np.float64]

    @classmethod
    def of_report(cls, report: StageReport) -> KeyCounts:
        """The keys of a stage that was routed: its head one by one, all others as if they were alike."""
        histogram = report.histogram
        head = np.array([seen for seen, _ in histogram.head.values()], dtype=np.float64)
        keys = sum(load.states for load in report.tasks) if histogram.keys is None else histogram.keys
        tail = max(0, keys - len(head))
        rest = histogram.seen_rows - float(head.sum())
        others = np.full(tail, max(1.0, rest / tail)) if tail and rest > 0 else np.zeros(0)
        return cls(np.concatenate([head[head > 0], others]))

    @property
    def rows(self) -> float:
        """Rows of the sample."""
        return float(self.counts.sum())

    def keys_in(self, rows: float) -> float:
        """Different keys that are expected among so many rows.

        Fewer than the sample has: those that a part of the sample is expected to show (rarefaction,
        Hurlbert 1971, drawn with replacement). More: the curve is continued as the power of the rows
        that it follows over the second half of the sample (Heaps' law).
        """
        sample = self.rows
        if not sample or rows <= 0:
            return 0.0
        if rows <= sample:
            return self._rarefied(rows)
        whole, half = self._rarefied(sample), self._rarefied(sample / 2.0)
        # A key seen in every sample has been found; what grows is the number of the others.
        power = max(0.0, math.log2(whole / half)) if half else 1.0
        return float(min(rows, whole * (rows / sample) ** power))

    def _rarefied(self, rows: float) -> float:
        missed = np.exp(rows * np.log1p(-np.minimum(self.counts / self.rows, 1.0 - 1e-12)))
        return float((1.0 - missed).sum())


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
    slots = job.spec.routing.slot_count
    stage = MORE_STAGES * (job.spec.routing.stage_overhead or 0.0) * slots
    combine, staged = states * each, rows * ROW_SECONDS + keys * each + stage
    numbers = f"{states:,.0f} states in {splits:,} splits for {keys:,.0f} keys of {rows:,} rows"
    if largest_split > UNEVEN * max(1.0, rows / slots):
        engine: EngineName = "staged"
        words = f"one source partition has {largest_split:,} of {rows:,} rows, and cannot be split"
    else:
        engine = "combine" if combine <= staged else "staged"
        words = f"{numbers} cost {combine:,.1f} s of a core, and routing the rows instead {staged:,.1f} s"
    return EngineChoice(
        engine=engine, rows=rows, splits=splits, keys=round(keys), states=round(states),
        combine_seconds=round(combine, 3), staged_seconds=round(staged, 3), sentence=f"{engine}: {words}",
    )  # fmt: skip
