"""Replays of a run as documents: publishing writes that under plain hashing, ``skewless replay`` the others."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from skewless.documents.step_documents import AS_IT_RAN, PLAIN, Replayed, Savings
from skewless.errors import SkewlessError
from skewless.replay.replay import as_it_ran, replay
from skewless.replay.savings import savings_of
from skewless.run.directory import SAVINGS, RunDirectory, replay_document


def replayed(run: RunDirectory, policy: str) -> Replayed:
    """A finished run under a policy, or ``AS_IT_RAN``: a document that the first call computes and writes.

    Raises:
        PlanError: the run is not finished, or the policy has no safe plan for its job.
        SpecError: the policy has no ring for its job.
    """
    if (before := run.replayed(policy)) is not None:
        return before
    job, reports = run.job(), run.reports()
    if policy == AS_IT_RAN:
        plans = [run.plan(report.stage) for report in reports]
        # The last possible stage is followed by no decision.
        decided = [stage for stage in range(1, len(reports) + 1) if run.exists(f"decisions/{stage:04d}.json")]
        played = as_it_ran(job, plans, reports, [run.decision(stage).sentence for stage in decided])
    else:
        # Plan 0 may be from the last run; another policy begins with a plan of its own.
        played = replay(job, reports, policy, run.plan(0) if policy == job.spec.routing.policy.name else None)
    run.write_once(replay_document(policy), played)
    return played


def keep_savings(run: RunDirectory) -> Savings | None:
    """Write down and return what a published or compared run has saved, once, with the replays that say so.

    Neither step fails by it: the sentence says why it is not known. None if documents cannot be read or written.
    """
    with suppress(SkewlessError, OSError):
        if (before := run.savings()) is not None:
            return before
        try:
            reports = run.reports()
            plans = [run.plan(report.stage) for report in reports]
            savings = savings_of(run.job(), plans, reports, partial(replayed, run, PLAIN))
            if savings.over_bound is not None:
                replayed(run, AS_IT_RAN)
        except Exception as err:  # noqa: BLE001  # the run is published, whatever becomes of this
            savings = Savings.unknown("", f"{type(err).__name__}: {err}")
        run.write_once(SAVINGS, savings)
        return savings
    return None
