"""A run replayed under other policies; as a program, the process that computes the replays."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from skewless.errors import SkewlessError
from skewless.replay.replay import ERROR_WORDS, Replayed, as_it_ran, replay
from skewless.run.directory import RunDirectory, stage_step
from skewless_airflow.web.replaying import REPLAYS
from skewless_airflow.web.run_folders import stamp
from skewless_airflow.web.views.job import whole_job


@dataclass(frozen=True)
class WhatIfView:
    """The run as it ran, and as it would have gone under each policy.

    Attributes:
        lines: as it ran, and then by policy.
        refused: policies that cannot be replayed, each with the reason.
        fault: why nothing can be replayed; "" if it can.
        pending: the policies whose replay is not done; "" is the run as it ran.
        error_words: how large the error of the figures may be.
    """

    lines: tuple[Replayed, ...]
    refused: tuple[tuple[str, str], ...]
    fault: str = ""
    pending: tuple[str, ...] = ()
    error_words: str = ERROR_WORDS


async def read_what_if(run: RunDirectory, policies: Sequence[str], patience_seconds: float | None = None) -> WhatIfView:
    """Replay a run without holding up other requests; answers are cached, because documents do not change.

    Args:
        run: its directory.
        policies: those to replay.
        patience_seconds: how long to wait for replays; None for as long as it takes.

    Raises:
        TooManyReplaysError: too many requests wait already.
    """
    mark = await asyncio.to_thread(_mark, run)
    if mark is None:
        return WhatIfView((), (), "This run has no committed stage yet: there is nothing to replay.")
    asked = ("", *policies)
    answers = REPLAYS.ask(run.path(""), mark, asked)
    await asyncio.wait([asyncio.wrap_future(one) for one in answers], timeout=patience_seconds)
    pending = tuple(policy for policy, one in zip(asked, answers, strict=True) if not one.done())
    known = {policy: one.result() for policy, one in zip(asked, answers, strict=True) if one.done()}
    if isinstance(fault := known.get(""), str):
        return WhatIfView((), (), fault)
    lines = tuple(one for one in known.values() if isinstance(one, Replayed))
    refused = tuple((policy, one) for policy, one in known.items() if isinstance(one, str))
    return WhatIfView(lines, refused, pending=pending)


def _mark(run: RunDirectory) -> str | None:
    """A text that changes when another stage commits."""
    stages = run.committed_stages()
    return f"{stages} {stamp(run, f'{stage_step(stages - 1)}/COMMIT.json')}" if stages else None


def _as_it_ran(run: RunDirectory) -> Replayed:
    reports = run.reports()
    plans = [run.plan(report.stage) for report in reports]
    stages = (report.stage + 1 for report in reports)
    said = [run.decision(stage).sentence for stage in stages if run.exists(f"decisions/{stage:04d}.json")]
    return as_it_ran(whole_job(run), plans, reports, said)


def _replayed(run: RunDirectory, policy: str) -> Replayed:
    """The run under a policy."""
    job = whole_job(run)
    # The run's own policy begins with its own plan 0, which may be a warm start.
    plan = run.plan(0) if policy == job.spec.routing.policy.name else None
    return replay(job, run.reports(), policy, plan)


def main() -> None:
    """Answer the request on standard input with a line of JSON for each policy, in their order."""
    asked = json.load(sys.stdin)
    os.nice(10)  # pages come first
    resource.setrlimit(resource.RLIMIT_AS, (asked["memory_bytes"], asked["memory_bytes"]))
    resource.setrlimit(resource.RLIMIT_CPU, (asked["seconds"], asked["seconds"]))  # also if the server has ended
    run = RunDirectory(asked["location"])
    for policy in asked["policies"]:
        said: dict[str, Any]
        try:
            said = {"replayed": (_replayed(run, policy) if policy else _as_it_ran(run)).model_dump(mode="json")}
        except SkewlessError as err:
            said = {"refused": str(err)}
        except MemoryError:
            limit = f"at most {asked['memory_bytes'] >> 30} GiB of memory"
            said = {"refused": f"what if: expected {limit}, but got more; run skewless replay."}
        sys.stdout.write(f"{json.dumps(said)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # whoever asked has ended
        main()
