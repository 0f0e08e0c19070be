"""A run in a few figures, from its documents alone."""

from __future__ import annotations

from pydantic import JsonValue

from skewless.documents.ledger import balance
from skewless.run.certificate import run_certificate
from skewless.run.directory import RESULT_STEP, RunDirectory


def run_facts(run: RunDirectory) -> dict[str, JsonValue]:
    """Quality verdict, balance and stages of a validated run, as JSON values.

    ``balance.max_over_mean`` is the sum of the stages' makespans over the fair share of all rows,
    1 at best; ``balance.gap`` is the distance from the bound, relative to it. Both are null where
    ``balance.conclusion`` says that nothing was measured.
    """
    job, reports, quality = run.job(), run.reports(), run.quality()
    whole, result = run_certificate(job, reports), run.commit_of(RESULT_STEP)
    ledger = balance(job, reports, result.count("rows") if result else 0, run.part_lines())
    checks, table = quality.checks if quality else (), job.source.pinned
    return {
        "date": job.date.isoformat(),
        **({"hour": job.hour} if job.hour else {}),
        **({"input_table": table.name, "input_snapshot": table.snapshot} if table else {}),
        "policy": job.spec.routing.policy.name,
        "stages": len(reports),
        "forwarded_rows": sum(report.forwarded_rows for report in reports),
        "quality": {
            "passed": bool(quality and quality.success),
            "verdict": quality.verdict.sentence if quality else "none yet",
            "expectations": len(checks),
            "failed": sum(one.fails for one in checks),
            "warnings": [*quality.warnings(len(job.spec.quality.expectations), values=False)] if quality else [],
            "quarantined_keys": quality.quarantined_keys if quality else 0,
            "ledger_balanced": ledger.balanced,
        },
        "balance": {
            "max_over_mean": whole.over_fair and round(whole.over_fair, 4),
            "gap": whole.gap and round(whole.gap, 4),
            "conclusion": whole.conclusion,
        },
    }
