"""The documents of a stage that several clusters share: what was routed, who did what."""

from __future__ import annotations

from pydantic import Field

from skewless.document import LAST_STAGE, Count, Document, Frozen
from skewless.documents.commit import CommittedFile

#: In the attempt that routed a stage, and in the one that ended it.
ROUTED_ROWS, STAGE_SHARES = "routed.json", "shares.json"


class RoutedRows(Document):
    """The rows of a stage where each virtual task finds its own, states that go ahead of them included.

    Attributes:
        tasks: by task index the files of its rows; a task that has none is left out.
        source_rows: as in ``StageReport``, as are the rows given.
    """

    stage: int = Field(ge=0, le=LAST_STAGE)
    cluster: str
    tasks: dict[int, tuple[CommittedFile, ...]]
    source_rows: Count | None = None
    given_rows: Count | None = None

    @property
    def rows(self) -> dict[int, int]:
        """By task index its rows, which is what its lease weighs."""
        return {task: sum(file.rows for file in files) for task, files in self.tasks.items()}

    @property
    def partitions(self) -> dict[str, int]:
        """The names under which tasks are leased, each with its task index.

        They sort by their rows, the most first, as leases are worked on in the order of their names: what takes long
        is begun early, and what is left for the end is short.
        """
        rows = self.rows
        largest_first = sorted(rows, key=lambda task: (-rows[task], task))
        return {f"task-{rank:06d}-{task}": task for rank, task in enumerate(largest_first)}


class SharedTask(Document):
    """One virtual task, done, and exactly what was written: what its lease's holder commits through the fence."""

    task: int = Field(ge=0)
    cluster: str
    seconds: float = Field(ge=0)
    files: tuple[CommittedFile, ...]


class TaskShare(Frozen):
    """Who did a virtual task, and in how many seconds."""

    cluster: str
    seconds: float = Field(ge=0)


class StageShares(Document):
    """Who routed a shared stage, and who did which virtual task that had rows, by its name."""

    stage: int = Field(ge=0, le=LAST_STAGE)
    routed_by: str
    tasks: dict[str, TaskShare]

    @property
    def done(self) -> dict[str, int]:
        """How many virtual tasks each cluster did."""
        clusters = [share.cluster for share in self.tasks.values()]
        return {cluster: clusters.count(cluster) for cluster in sorted(set(clusters))}
