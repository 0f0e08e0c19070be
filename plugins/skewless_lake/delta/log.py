"""The commits of a Delta table, each by the number of the file that its log has it in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from skewless.run.objects.location import open_location

#: So many commits are read at once, at most: a bucket takes as long for all of them as for one. The newest is read
#: alone, as it is mostly the one that is looked for, and a commit of many files is large.
_AT_ONCE = 8

#: The actions of a commit: each says by its one name what it is.
Actions = list[dict[str, Any]]


def commits(location: str, newest: int) -> Iterator[tuple[int, Actions]]:
    """The versions up to one, the newest first, as far back as the log has their commits.

    ``DeltaTable.history`` is no help: it counts down from the version that was opened, though it finds newer commits,
    too, and none that says nothing of itself. Below either, its numbers are those of other versions.
    """
    fs, root = open_location(location)

    def read(version: int) -> Actions | None:
        try:
            log = fs.cat_file(f"{root.rstrip('/')}/_delta_log/{version:020d}.json")
        except FileNotFoundError:  # it was removed when a later checkpoint had all of it
            return None
        return [json.loads(line) for line in log.splitlines() if line.strip()]

    last, many = newest, 1
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        while last >= 0:
            versions = range(last, max(last - many, -1), -1)
            for version, actions in zip(versions, pool.map(read, versions), strict=True):
                if actions is None:
                    return
                yield version, actions
            last, many = last - many, min(2 * many, _AT_ONCE)


def said_in(actions: Actions) -> dict[str, Any]:
    """What a commit says of itself; empty if it says nothing."""
    return next((one["commitInfo"] for one in actions if one.get("commitInfo")), {})
