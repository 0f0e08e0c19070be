"""Going back, in an Iceberg table, to the version of a part before the published one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyiceberg.exceptions import CommitFailedException

from skewless.errors import LostRaceError, SpecError
from skewless_lake.commits import ATTEMPTS, wait
from skewless_lake.iceberg.snapshots import files_of_part, ours, replace_part, require_race
from skewless_lake.iceberg.tables import find_table
from skewless_lake.staged import OutputPart


def roll_back(target: OutputPart, turn: int, at: str) -> Mapping[str, str]:
    """Commit the files that a part had before the newest publication of it; other parts stay as they are.

    Args:
        target: the part.
        turn: a new one, so that no older run undoes this.
        at: the time, for the summary.

    Returns:
        What the new snapshot's summary says, with its id as ``snapshot``.

    Raises:
        SpecError: there is no earlier version.
        LostRaceError: others commit all the time.
    """
    unanswered: Exception | None = None
    failed = Counter[str]()
    for attempt in range(ATTEMPTS):
        table = find_table(target)
        history = [one for one in ours(table) if one[1]["part"] == target.part.name] if table is not None else []
        if table is None or len(history) < 2:
            raise SpecError(
                f"{target.path}, part {target.part}", "two publications of it in the table's history",
                f"{len(history)}", "run the job again, or have a look at older snapshots with pyiceberg",
            )  # fmt: skip
        done = next((one for one in history if one[1].get("turn") == str(turn)), None)
        if done is not None:  # the answer to an attempt was lost, and it was a success: once more would undo it
            return {**done[1], "snapshot": str(done[0].snapshot_id)}
        if unanswered is not None:
            raise unanswered
        (newest, _), (before, told) = history[:2]
        about = {**told, "turn": str(turn), "at": at, "rolled-back": f"from snapshot {newest.snapshot_id}"}
        files = files_of_part(table, target.values, before.snapshot_id)
        try:
            made = replace_part(table, target.values, files, about, branch="main")
        except CommitFailedException as err:
            require_race(failed, table, err)
            wait(attempt)
            continue
        except Exception as err:  # noqa: BLE001  # each catalog has its own; it may have been committed: the table tells
            unanswered = err
            continue
        return {**about, "snapshot": str(made.snapshot_id)}
    raise LostRaceError(target.path, "a commit of its own", f"{ATTEMPTS} commits of others", "try again later")
