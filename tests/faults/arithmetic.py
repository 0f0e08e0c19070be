"""What Spark does in a run, by plain Python: the same files, documents and commits, in some milliseconds.

Plans, decisions, the commit protocol, checks of the input and the publication are the product's own.
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from skewless.documents.commit import CommittedFile
from skewless.documents.ledger import balance, require_all_processed, require_kept
from skewless.documents.quality import Check, QualityReport
from skewless.documents.stage_report import Histogram, StageReport, TaskLoad
from skewless.errors import LostRaceError
from skewless.routing.plan import RoutingPlan
from skewless.run.directory import (
    QUALITY_REPORT,
    QUALITY_STEP,
    RESULT_STEP,
    STAGE_REPORT,
    Attempt,
    Fence,
    RunDirectory,
    stage_step,
)
from skewless.run.publication.publish import require_passed
from skewless_spark.session.step_lease import leased_step
from skewless_spark.sources.identity import require_unchanged

Row = dict[str, Any]

_COUNTS = pa.list_(pa.struct([("value", pa.string()), ("count", pa.int64())]))
_STATES = pa.schema([("key", pa.string()), ("n", pa.int64()), ("total", pa.int64()), ("colours", _COUNTS)])
_ROWS = pa.schema([("key", pa.string()), ("value", pa.int64()), ("colour", pa.string())])


def run_stage(run: RunDirectory, stage: int) -> None:
    """A stage: it leaves a tenth of its rows to the next one, but not for ever."""
    if run.commit_of(stage_step(stage)):
        return
    with leased_step(run, stage_step(stage)) as fence:
        if not run.commit_of(stage_step(stage)):
            _reduce(run, stage, fence)


def _reduce(run: RunDirectory, stage: int, fence: Fence | None) -> None:
    job, plan = run.job(), run.plan(stage)
    admitted = job.admitted_units(plan.waves)
    require_unchanged(job, admitted)
    new = _read(job.units[ordinal].path for ordinal in admitted)
    back = _backlog(run, stage)
    queued = [*new, *back]
    left = queued[::10] if stage < 2 else []
    done = [row for number, row in enumerate(queued) if number % 10 or stage >= 2]
    require_unchanged(job, admitted)
    attempt = run.new_attempt(stage_step(stage), fence)
    files = [_written(attempt, "native", _states_of(done), _STATES)]
    files += [_written(attempt, "backlog", left, _ROWS)] if left else []
    report = _report(run, plan, (len(new), len(back)), queued, left)
    left_over = run.committed(stage_step(stage - 1)).counts["backlog"] if stage else 0
    require_kept(job, report, left_over, sum(file.rows for file in files if file.kind == "backlog"))
    attempt.write(STAGE_REPORT, report)
    counts = {"admitted": len(new), "processed": len(done), "backlog": len(left)}
    _commit(attempt, files, counts)


def merge(run: RunDirectory) -> None:
    if run.commit_of(RESULT_STEP):
        return
    with leased_step(run, RESULT_STEP) as fence:
        if not run.commit_of(RESULT_STEP):
            _merge(run, fence)


def _merge(run: RunDirectory, fence: Fence | None) -> None:
    reports = run.reports()
    require_all_processed(run.job(), reports, f"merge of {run}")
    commits = [run.committed(stage_step(report.stage)) for report in reports]
    states = [row for commit in commits for row in _verified(run, commit.of_kind("native"))]
    merged = _states_of(states)
    rows = sum(row["n"] for row in merged)
    attempt = run.new_attempt(RESULT_STEP, fence)
    halves = (merged[: len(merged) // 2], merged[len(merged) // 2 :])
    files = [_written(attempt, "result", half, _STATES, folder="data") for half in halves]
    _commit(attempt, files, {"rows": rows, "keys": len(merged)})


def validate(run: RunDirectory) -> None:
    """The ledger's verdict; it counts, whatever it is, and the step fails by it."""
    found = run.quality()
    if found is None:
        with leased_step(run, QUALITY_STEP) as fence:
            found = run.quality() or _judge(run, fence)
    require_passed(run, found)


def _judge(run: RunDirectory, fence: Fence | None) -> QualityReport:
    result = run.committed(RESULT_STEP)
    _verified(run, result.files)
    ledger = balance(run.job(), run.reports(), result.counts["rows"])
    attempt = run.new_attempt(QUALITY_STEP, fence)
    check = Check(
        subject="ledger", expectation="ledger_balances", column="", success=ledger.balanced, observed="",
        sentence=f"ledger_balances: {'; '.join(ledger.problems)}",
    )  # fmt: skip
    report = QualityReport(success=ledger.balanced, keys=result.counts["keys"], checks=(check,), ledger=ledger)
    attempt.write(QUALITY_REPORT, report)
    _commit(attempt, [], {"checks": 1, "failed": int(not ledger.balanced)})
    return report


def _commit(attempt: Attempt, files: Sequence[CommittedFile], counts: dict[str, int]) -> None:
    try:
        attempt.commit(files, counts)
    except LostRaceError:
        return


def _written(attempt: Attempt, kind: str, rows: Sequence[Row], schema: pa.Schema, folder: str = "") -> CommittedFile:
    path = Path(attempt.path(f"{folder or f'kind={kind}'}/part-00000-{uuid.uuid4()}-c000.parquet"))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        pq.write_table(pa.Table.from_pylist(list(rows), schema), out)
    return attempt.described(kind, str(path), len(rows), copied=kind == "result")


def _read(paths: Iterable[str]) -> list[Row]:
    return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def _verified(run: RunDirectory, files: Sequence[CommittedFile]) -> list[Row]:
    for file in files:
        run.verify(file)
    return _read(run.path(file.path) for file in files)


def _backlog(run: RunDirectory, stage: int) -> list[Row]:
    if stage == 0:
        return []
    return _verified(run, run.committed(stage_step(stage - 1)).of_kind("backlog"))


def _states_of(rows: Sequence[Row]) -> list[Row]:
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    colours: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        of = row.get("colours") or [{"value": row["colour"], "count": 1}]
        counts[row["key"]] += row.get("n", 1)
        totals[row["key"]] += row["total"] if "n" in row else row["value"]
        for one in of:
            colours[row["key"]][one["value"]] += one["count"]
    return [
        {"key": key, "n": counts[key], "total": totals[key],
         "colours": [{"value": value, "count": count} for value, count in sorted(colours[key].items())]}
        for key in sorted(counts)
    ]  # fmt: skip


def _report(
    run: RunDirectory, plan: RoutingPlan, came: tuple[int, int], queued: list[Row], left: list[Row]
) -> StageReport:
    """The report of a stage to which rows of the input came, and rows of the last one's backlog."""
    left_over = Counter(row["key"] for row in left)
    processed = Counter(row["key"] for row in queued) - left_over
    before = run.report(plan.epoch - 1).histogram.head if plan.epoch else {}
    seen = Counter({key: rows for key, (rows, _) in before.items()}) + processed + left_over
    seen.subtract({key: rows for key, (_, rows) in before.items()})
    tails = (0,) * (1 << plan.ring.ring_bits)
    return StageReport(
        stage=plan.epoch, waves=plan.waves, admitted_rows=came[0], backlog_in_rows=came[1], forwarded_rows=0,
        processed_rows=processed.total(), backlog_rows=left_over.total(), stage_seconds=1.0,
        tasks=_loads(plan, processed, left_over),
        histogram=Histogram(
            seen_rows=seen.total(), seen_null_rows=0, backlog_null_rows=0,
            head={key: (seen[key], left_over[key]) for key in sorted(seen)}, seen_tail=tails, backlog_tail=tails,
        ),
    )  # fmt: skip


def _loads(plan: RoutingPlan, processed: Mapping[str, int], left: Mapping[str, int]) -> tuple[TaskLoad, ...]:
    def of(counts: Mapping[str, int]) -> Counter[int]:
        found: Counter[int] = Counter()
        for key, rows in counts.items():
            found[plan.head[key][0][0] if key in plan.head else plan.tail_task(key)] += rows
        return found

    done, over = of(processed), of(left)
    return tuple(
        TaskLoad(
            task=str(task), queued_rows=done[at] + over[at], processed_rows=done[at], backlog_rows=over[at], states=0
        )
        for at, task in enumerate(plan.tasks)
    )
