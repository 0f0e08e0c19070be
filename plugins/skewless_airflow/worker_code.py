"""The code that Spark's Python workers run, and whether those of a server may still have an older one.

Under spark-submit every step has workers of its own. A server keeps idle ones for a minute, with the modules that they
have imported: whoever edits an aggregate and runs it again at once would see the one of before.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path

#: Spark lets workers go that nobody used for a minute, and looks once in a while.
KEPT_SECONDS = 70.0
_OURS = ("skewless", "skewless_spark")
_REGISTERED = ("skewless.aggregates", "skewless.mappers")


def worker_folders() -> list[Path]:
    """The folders of all packages that a step may have its workers import; none of them is imported here."""
    registered = (one.module.partition(".")[0] for group in _REGISTERED for one in entry_points(group=group))
    found = []
    for name in sorted({*_OURS, *registered}):
        spec = importlib.util.find_spec(name)
        found += [Path(folder) for folder in (spec.submodule_search_locations or () if spec else ())]
        if spec and spec.origin and not spec.submodule_search_locations:
            found.append(Path(spec.origin))
    return found


def changed_at(places: Iterable[Path]) -> float:
    """When the newest of some source files was written or put there, in seconds since 1970; 0 without any.

    An installer sets the time of a file's content to that of the package's making: what counts is when the file came.
    """
    files = (path for place in places for path in ([place] if place.is_file() else place.rglob("*.py")))
    return max((path.stat().st_ctime for path in files), default=0.0)


def seconds_until_fresh(changed: float, launched: float, now: float) -> float:
    """How long workers may live on that have imported what was there before.

    Args:
        changed: when the code was changed last.
        launched: when the server was started, whose workers are all younger.
        now: the moment; all three in seconds since 1970.
    """
    return max(0.0, changed + KEPT_SECONDS - now) if changed > launched else 0.0
