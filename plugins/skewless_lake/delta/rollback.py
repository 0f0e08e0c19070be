"""Going back, in a Delta table, to the version of a part before the published one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deltalake.exceptions import CommitFailedError, DeltaError

from skewless.errors import LostRaceError, SpecError
from skewless_lake.commits import ATTEMPTS, wait
from skewless_lake.delta.publishing import commit_part, publications, require_race
from skewless_lake.delta.statistics import Bounds, of_bounds
from skewless_lake.delta.tables import files_of_part, find_table, location_of
from skewless_lake.staged import OutputPart, StagedFile


def roll_back(target: OutputPart, turn: int, at: str) -> Mapping[str, str]:
    """Commit the files that a part had before the newest publication of it; other parts stay as they are.

    Args:
        target: the part.
        turn: a new one, so that no older run undoes this.
        at: the time, for the log.

    Returns:
        What the new version's commit says, with its number as ``snapshot``.

    Raises:
        SpecError: there is no earlier version, or its files have been vacuumed.
        LostRaceError: others commit all the time.
    """
    unanswered: Exception | None = None
    for attempt in range(ATTEMPTS):
        table = find_table(target)
        history = list(publications(table, target)) if table is not None else []
        if table is None or len(history) < 2:
            raise SpecError(
                f"{target.path}, part {target.part}", "two publications of it in the table's log", f"{len(history)}",
                "run the job again",
            )  # fmt: skip
        done = next((one for one in history if one[1].get("turn") == str(turn)), None)
        if done is not None:  # the answer to an attempt was lost, and it was a success: once more would undo it
            return {**done[1], "snapshot": str(done[0])}
        if unanswered is not None:
            raise unanswered
        (newest, _), (before, told) = history[:2]
        about = {**told, "turn": str(turn), "at": at, "rolled-back": f"from version {newest}"}
        files = _files(target, before)
        try:
            version = commit_part(table, target, turn, files, about)
        except CommitFailedError as err:
            require_race(table, target, err)
            wait(attempt)
            continue
        except (DeltaError, OSError) as err:  # it may have been committed all the same: the log tells
            unanswered = err
            continue
        return {**about, "snapshot": str(version)}
    raise LostRaceError(target.path, "a commit of its own", f"{ATTEMPTS} commits of others", "try again later")


def _files(target: OutputPart, version: int) -> list[StagedFile]:
    """The files of a part in a version."""
    location, table = location_of(target), find_table(target, version)
    found = [
        StagedFile(path=one["path"], rows=one["num_records"], size_bytes=one["size_bytes"], statistics=_statistics(one))
        for one in (files_of_part(table, target, ()) if table is not None else ())
    ]
    gone = [] if "://" in location else [file.path for file in found if not Path(location, file.path).exists()]
    if gone:
        raise SpecError(
            f"{target.path}, part {target.part}", f"the files of version {version}", f"{gone[0]} is gone",
            "it has been vacuumed: run the job again",
        )  # fmt: skip
    return found


def _statistics(action: Mapping[str, Any]) -> str:
    """What the log says of a file's columns."""
    of_columns = [name.removeprefix("null_count.") for name in action if name.startswith("null_count.")]
    return of_bounds(
        action["num_records"],
        {
            name: Bounds(action.get(f"min.{name}"), action.get(f"max.{name}"), action[f"null_count.{name}"])
            for name in of_columns
            if "." not in name
        },
    )
