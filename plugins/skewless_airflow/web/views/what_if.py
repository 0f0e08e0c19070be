"""A run under other policies, replayed from its own documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from skewless.errors import PlanError, SkewlessError
from skewless.replay import Replayed, as_it_ran, replay
from skewless.run_directory import RunDirectory, stage_step
from skewless_airflow.web.run_folders import stamp
from skewless_airflow.web.views.job import whole_job


@dataclass(frozen=True)
class WhatIfView:
    """The run as it ran, and what each policy would have made of it.

    Attributes:
        lines: as it ran, and then by policy.
        refused: policies that cannot be played, each with the reason.
        fault: why nothing can be replayed; "" if it can.
    """

    lines: tuple[Replayed, ...]
    refused: tuple[tuple[str, str], ...]
    fault: str = ""


def read_what_if(run: RunDirectory, policies: Sequence[str]) -> WhatIfView:
    """Replay a run; the answers are kept, since the documents of a finished run do not change."""
    mark = _mark(run)
    if mark is None:
        return WhatIfView((), (), "This run has no committed stage yet: there is nothing to replay.")
    lines, refused = [], []
    try:
        lines.append(_as_it_ran(run.path(""), mark))
    except PlanError as err:
        return WhatIfView((), (), str(err))
    for policy in policies:
        played = _replayed(run.path(""), mark, policy)
        if isinstance(played, Replayed):
            lines.append(played)
        else:
            refused.append((policy, played))
    return WhatIfView(tuple(lines), tuple(refused))


def _mark(run: RunDirectory) -> str | None:
    """What changes when another stage commits."""
    stages = run.committed_stages()
    return f"{stages} {stamp(run, f'{stage_step(stages - 1)}/COMMIT.json')}" if stages else None


@lru_cache(maxsize=256)
def _as_it_ran(location: str, _mark: str) -> Replayed:
    run = RunDirectory(location)
    reports = run.reports()
    plans = [run.plan(report.stage) for report in reports]
    stages = (report.stage + 1 for report in reports)
    said = [run.decision(stage).sentence for stage in stages if run.exists(f"decisions/{stage:04d}.json")]
    return as_it_ran(whole_job(run), plans, reports, said)


@lru_cache(maxsize=1024)
def _replayed(location: str, _mark: str, policy: str) -> Replayed | str:
    """What a policy would have made of the run, or why it cannot be played."""
    run = RunDirectory(location)
    job = whole_job(run)
    # The run's own policy begins with its own plan 0, which may be a warm start.
    plan = run.plan(0) if policy == job.spec.routing.policy else None
    try:
        return replay(job, run.reports(), policy, plan)
    except SkewlessError as err:
        return str(err)
