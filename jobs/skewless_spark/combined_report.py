"""The report of a stage of the engine ``combine``: its counts, and no histogram, for nothing is routed after it."""

from __future__ import annotations

from collections.abc import Sequence

from skewless.errors import LedgerError
from skewless.routing_plan import RoutingPlan
from skewless.stage_report import Histogram, StageReport
from skewless.step_commit import CommittedFile
from skewless_spark.committed_files import NATIVE, PYTHON
from skewless_spark.reduction import StateCounts


def combined_report(
    plan: RoutingPlan, files: Sequence[CommittedFile], counts: StateCounts, seconds: float
) -> StageReport:
    """What a stage did that took in all that was left.

    Args:
        plan: the stage's plan.
        files: what it wrote.
        counts: the rows that its states stand for.
        seconds: wall time of the stage.

    Raises:
        LedgerError: native and Python states saw different rows.
    """
    rows, admitted = 0, 0
    if files:  # without any there was nothing to count
        native, python = counts.of(NATIVE), counts.of(PYTHON)
        rows, admitted = native or python or (0, 0)
        if native and python and native != python:
            raise LedgerError(
                f"stage {plan.epoch}", f"{native[0]:,} rows in its Python states", f"{python[0]:,}",
                "nothing was committed",
            )  # fmt: skip
    nothing = (0,) * (1 << plan.ring.ring_bits)
    return StageReport(
        stage=plan.epoch,
        waves=plan.waves,
        admitted_rows=admitted,
        backlog_in_rows=rows - admitted,
        forwarded_rows=0,
        processed_rows=rows,
        backlog_rows=0,
        stage_seconds=round(seconds, 3),
        tasks=(),
        histogram=Histogram(
            seen_rows=0, seen_null_rows=0, backlog_null_rows=0, head={}, seen_tail=nothing, backlog_tail=nothing
        ),
    )
