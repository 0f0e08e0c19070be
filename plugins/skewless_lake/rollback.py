"""Going back to the version of a part before the published one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from skewless_lake.publication import turn_in_table, turns_of
from skewless_lake.refusals import told_plainly
from skewless_lake.staged import OutputPart


def roll_back(target: OutputPart, now: dt.datetime) -> Mapping[str, str]:
    """Publish again what the newest publication of a part has replaced.

    Args:
        target: the part of the table.
        now: the time.

    Returns:
        Where that came from, as the table's history says, and the new snapshot or version as ``snapshot``.

    Raises:
        SpecError: there is nothing to go back to.
        UnreachableError: the store or the catalog of the table does not answer.
    """
    turns, at = turns_of(target), now.astimezone(dt.UTC).isoformat(timespec="seconds")
    # The store of turns may have been lost: the table knows its own.
    turn = turns.draw(above=max(turns.look(target.part.name).finished, turn_in_table(target)))
    with told_plainly(target.path):
        if target.output.format == "iceberg":
            from skewless_lake.iceberg import rollback as iceberg  # noqa: PLC0415  # an extra

            about = iceberg.roll_back(target, turn, at)
        else:
            from skewless_lake.delta import rollback as delta  # noqa: PLC0415  # an extra

            about = delta.roll_back(target, turn, at)
    turns.finish(target.part.name, turn, f"{about['run-digest']} {about['run']}")
    return about
