"""A summary of a run, from its documents and its result: facts for the tables on a terminal and for ``--json``."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

from skewless.documents.commit import STAGE_SHARES, StageShares
from skewless.documents.comparison import Comparison
from skewless.documents.job import Job
from skewless.documents.ledger import Ledger, balance
from skewless.documents.stage_report import StageReport
from skewless.publication.records import publication_of, superseded_by
from skewless.run.certificate import run_certificate, stage_certificate
from skewless.run.directory import DOCUMENT, RESULT_STEP, RunDirectory, stage_step
from skewless.spec.result import WINDOW_COLUMN
from skewless.standing.tree import plan_of

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows of a result that are shown.
_SHOWN = 10


def stage_lines(run: RunDirectory) -> list[dict[str, Any]]:
    """One object per committed stage: its counts, its balance, and the decision that followed."""
    job = run.job()
    return [_stage_line(run, job, report) for report in run.reports()]


def _stage_line(run: RunDirectory, job: Job, report: StageReport) -> dict[str, Any]:
    certificate = stage_certificate(job, report)
    followed = f"decisions/{report.stage + 1:04d}.json"
    decision = run.decision(report.stage + 1).sentence if run.exists(followed) else None
    if decision is None and report.stage == job.last_stage:
        decision = "none: it drains what is left, and there is no stage after it"
    clusters = tasks_by_cluster(run, report.stage)
    shared = {"clusters": clusters} if clusters else {}
    return {
        "stage": report.stage,
        "policy": job.spec.routing.policy.name,
        "engine": run.plan(report.stage).engine,
        "tasks": len(report.tasks),
        "admitted_rows": report.admitted_rows,
        "backlog_in_rows": report.backlog_in_rows,
        "forwarded_rows": report.forwarded_rows,
        "processed_rows": report.processed_rows,
        "backlog_rows": report.backlog_rows,
        "max_over_mean": report.max_over_mean and round(report.max_over_mean, 4),
        "gap_to_bound": certificate.gap and round(certificate.gap, 4),
        "seconds": report.stage_seconds,
        "work": report.work.model_dump(mode="json") if report.work else None,
        "decision": decision,
        **shared,
    }


def tasks_by_cluster(run: RunDirectory, stage: int) -> dict[str, int]:
    """The number of virtual tasks of a committed stage that each cluster did; empty if it was not shared."""
    commit = run.committed(stage_step(stage))
    if not any(file.path.endswith(f"/{STAGE_SHARES}") for file in commit.of_kind(DOCUMENT)):
        return {}
    return run.committed_document(commit, STAGE_SHARES, StageShares).done


def ledger_of(run: RunDirectory) -> Ledger:
    """The ledger of the stages so far."""
    result = run.commit_of(RESULT_STEP)
    rows = result.count("rows") if result else 0
    return balance(run.job(), run.reports(), rows, run.part_lines())


def rows_read(run: RunDirectory) -> int:
    """Rows of the source that the committed stages have read, before a map."""
    reports = run.reports()
    return sum(one.admitted_rows if one.source_rows is None else one.source_rows for one in reports)


def result_path(run: RunDirectory) -> str | None:
    """The folder in the run directory with the committed result, which no later run changes."""
    commit = run.commit_of(RESULT_STEP)
    files = commit.of_kind("result") if commit else ()
    return run.path(files[0].path.rpartition("/")[0]) if files else None


def as_object(run: RunDirectory) -> dict[str, Any]:
    """The object of ``skewless run --json``."""
    quality, publication, over = run.quality(), publication_of(run), superseded_by(run)
    ledger, window, table, savings = ledger_of(run), run.job().window, run.job().source.pinned, run.savings()
    comparison = run.comparison()
    of_window: dict[str, Any] = {}
    if window is not None:
        of_window = {"parts": window.counts(), "missing_parts": list(window.missing)}
        of_window["missing_parts_count"] = window.missing_count
        of_window["late_parts"] = {part.name: delay for part, delay in window.late()}
        of_window |= {"late_files_ignored": window.ignored_files, "late_rows_ignored": window.ignored_rows}
        of_window["window_plan"] = _window_plan(run)
        of_window["finality"] = told.model_dump(mode="json", exclude={"version"}) if (told := run.finality()) else None
    return {
        "run_dir": str(run),
        "result_path": result_path(run),
        "published_path": publication.path if publication else None,
        **({} if publication is None or publication.snapshot is None else {"published_snapshot": publication.snapshot}),
        **({} if table is None else {"input_snapshot": table.snapshot}),
        "superseded_by": over.model_dump(mode="json") if over else None,
        "rows_read": rows_read(run),
        "skipped_parts": list(run.job().skipped),
        **of_window,
        "stages": stage_lines(run),
        "ledger": {**ledger.model_dump(mode="json"), "balanced": ledger.balanced},
        "quality": quality.model_dump(mode="json", exclude={"ledger"}) if quality else None,
        **({} if comparison is None else {"comparison": comparison_as_object(comparison)}),
        "savings": savings.model_dump(mode="json", exclude={"version"}) if savings else None,
        "certificate": run_certificate(run.job(), run.reports()).model_dump(mode="json"),
    }


def comparison_as_object(found: Comparison) -> dict[str, Any]:
    """The object of ``skewless compare --json``."""
    return {**found.model_dump(mode="json", exclude={"version"}), "found": found.found}


def _window_plan(run: RunDirectory) -> list[dict[str, Any]] | None:
    """The parts and nodes whose states each window was merged of; None until the result is merged."""
    plan = plan_of(run)
    if plan is None:
        return None
    return [{"window": window, "merged": list(names)} for window, names in plan.results.items()]


def hottest(run: RunDirectory) -> tuple[str | None, list[dict[str, Any]]]:
    """The name of the first numeric aggregate, and the rows of the result with its largest values.

    Of several windows only the longest is looked at.

    The committed files are read batch by batch, and only the rows to be shown are kept, since a result may be large.
    """
    job, commit = run.job(), run.commit_of(RESULT_STEP)
    if commit is None:
        return None, []
    # All other facts are had from the base installation, which has no Arrow.
    import pyarrow.compute as pc  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    by: str | None = None
    best: list[dict[str, Any]] = []
    for file in commit.of_kind("result"):
        with run.fs.open(f"{run.root}/{file.path}", "rb") as opened:
            parquet = pq.ParquetFile(opened)
            by = by or _first_number(job, parquet.schema_arrow)
            for whole in parquet.iter_batches():
                longest = job.spec.windows[-1] if job.spec.windows else None
                batch = whole if longest is None else whole.filter(pc.equal(whole[WINDOW_COLUMN], longest))
                if by is None:
                    best = [*best, *batch.slice(0, _SHOWN).to_pylist()][:_SHOWN]
                    continue
                order = pc.sort_indices(batch, sort_keys=[(by, "descending")])
                some = [*best, *batch.take(order.slice(0, _SHOWN)).to_pylist()]
                best = heapq.nlargest(_SHOWN, some, key=lambda row: row[by] or 0)
    return by, best


def _first_number(job: Job, schema: pa.Schema) -> str | None:
    import pyarrow as pa  # noqa: PLC0415  # as in ``hottest``

    kinds = {field.name: field.type for field in schema}
    numeric = (
        name for name in job.spec.aggregates if pa.types.is_integer(kinds[name]) or pa.types.is_floating(kinds[name])
    )
    return next(numeric, None)
