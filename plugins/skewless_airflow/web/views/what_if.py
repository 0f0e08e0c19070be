"""What other policies would have made of a run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from skewless.documents.bill import AS_IT_RAN, ERROR_WORDS, Replayed
from skewless.planner.policies import POLICIES
from skewless.run.directory import RunDirectory


@dataclass(frozen=True)
class WhatIfView:
    """A run as it ran, and under other policies, as far as documents say so.

    Attributes:
        missing: policies that nobody has replayed it under.
        command: what writes their documents.
    """

    lines: tuple[Replayed, ...]
    missing: tuple[str, ...]
    command: str
    error_words: str = ERROR_WORDS


def read_what_if(run: RunDirectory) -> WhatIfView:
    """The replays of a run that were written down: by its publication, and by ``skewless replay``."""
    written = {policy: run.replayed(policy) for policy in (AS_IT_RAN, *POLICIES)}
    missing = tuple(policy for policy, line in written.items() if line is None and policy != AS_IT_RAN)
    command = shlex.join(["skewless", "replay", str(run), "--policies", ",".join(missing)])
    return WhatIfView(tuple(line for line in written.values() if line is not None), missing, command)
