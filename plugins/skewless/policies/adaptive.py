"""``adaptive``: heavy keys are placed one by one on top of the tail the ring gave each task.

The tail is many light keys: a ring spreads it well enough, and nobody has to name its keys.
What a ring cannot spread is the head. So we take the tail's load of each task as given and
pour the head keys on top up to one common level; the key at a task's brim is split, and its
partial states are merged at the end. Where keys may not be split they are placed whole.

Two ways of pouring are proposed. ``rebalance`` leaves rows where they are as far as the level
allows; ``repack`` starts afresh, which needs the fewest pieces. The planner prices both.
"""

from __future__ import annotations

from collections.abc import Sequence

from skewless.forecast import Forecast
from skewless.head_placement import place_whole, pour, pour_in_place
from skewless.job import Job
from skewless.policies.proposal import Proposal
from skewless.routing_plan import Shares


def propose(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """Rebalance and repack; or, where keys may not be split, one placement of whole keys."""
    keys, rows, base = forecast.keys, forecast.head_rows, forecast.tail_rows(forecast.plan)
    if not keys or len(base) == 1:
        return ()
    if not job.splittable:
        return (_proposal("place whole", place_whole(keys, rows, base)),)
    proposals = []
    rebalanced = pour_in_place(keys, rows, base, forecast.shares_now)
    if sum(map(len, rebalanced.values())) <= len(keys) + len(base) - 1:
        proposals.append(_proposal("rebalance", rebalanced))
    proposals.append(_proposal("repack", pour(keys, rows, base)))
    return proposals


def _proposal(action: str, head: dict[str, Shares]) -> Proposal:
    split = [key for key, shares in head.items() if len(shares) > 1]
    words = f"pin {len(head) - len(split):,} keys"
    if split:
        named = ", ".join(repr(key[:20]) for key in split[:3])
        words += f", split {len(split):,} ({named}{', ...' if len(split) > 3 else ''})"
    return Proposal(action, head, words)
