"""What a run came to as a whole, in a few figures, from its documents alone."""

from __future__ import annotations

from pydantic import JsonValue

from skewless.certificate import Certificate, certify
from skewless.job import Job
from skewless.ledger import balance
from skewless.run_directory import RESULT_STEP, RunDirectory
from skewless.stage_report import StageReport


def largest_load(job: Job, report: StageReport) -> float:
    """Rows of the largest task. Input splits reduced where they are read are taken to fill the slots evenly."""
    return float(report.processed.max()) if report.tasks else report.processed_rows / job.spec.routing.slot_count


def overall(run: RunDirectory) -> Certificate:
    """The run as a whole against the best there could be: the sum of its stages' largest loads.

    ``makespan_rows`` is what a cluster with one slot per task would have waited for.
    """
    job, reports = run.job(), run.reports()
    makespan = sum(largest_load(job, report) for report in reports)
    head = reports[-1].histogram.head if reports else {}
    heaviest = max(((key, float(seen)) for key, (seen, _) in head.items()), key=lambda one: one[1], default=None)
    total = float(sum(report.processed_rows for report in reports))
    return certify(total, job.spec.routing.reducers, makespan, heaviest, job.splittable)


def run_facts(run: RunDirectory) -> dict[str, JsonValue]:
    """Quality verdict, balance and stages of a validated run, as JSON values.

    ``balance.max_over_mean`` is the sum of the stages' largest loads over the fair share of all rows,
    1 at best; ``balance.gap`` is what is missing to the best there could be.
    """
    job, reports, quality = run.job(), run.reports(), run.quality()
    whole, result = overall(run), run.commit_of(RESULT_STEP)
    ledger = balance(job, reports, result.count("rows") if result else 0)
    fair = sum(report.processed_rows for report in reports) / max(1, job.spec.routing.reducers)
    checks = quality.checks if quality else ()
    return {
        "date": job.date.isoformat(),
        **({"hour": job.hour} if job.hour else {}),
        "mode": job.spec.mode,
        "policy": job.spec.routing.policy,
        "stages": len(reports),
        "forwarded_rows": sum(report.forwarded_rows for report in reports),
        "quality": {
            "passed": bool(quality and quality.success),
            "expectations": len(checks),
            "failed": sum(not one.success for one in checks),
            "ledger_balanced": ledger.balanced,
        },
        "balance": {
            "max_over_mean": round(whole.makespan_rows / fair, 4) if fair else 1.0,
            "gap": round(whole.gap, 4),
            "conclusion": whole.conclusion,
        },
    }
