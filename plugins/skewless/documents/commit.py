"""The manifest by which a step's output counts: ``COMMIT.json``, first writer wins."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from skewless.columns import Columnar, Columns, column
from skewless.document import LAST_STAGE, Count, Document, Frozen, unmet
from skewless.errors import DocumentError


def inner_path(path: str) -> bool:
    """Whether a path leads from a folder to something in it: no root, no step up, no sign that a path cannot have."""
    parts = path.split("/")
    return "\0" not in path and not {"", ".", ".."} & set(parts)  # what a protocol ends with, too, has an empty part


def _below(path: str) -> str:
    if not inner_path(path):
        raise ValueError("should be a path below the run directory")
    return path


InnerPath = Annotated[str, AfterValidator(_below)]


class CommittedFile(Frozen):
    """One file: its kind, its path below the run directory, its rows, its length and its ``file_checksum``.

    ``content`` is the ``content_checksum`` of a file that is copied as it is, unread; else empty. ``task`` is the index
    of the only virtual task whose Python states it holds; null if there are several, or if nobody looked.
    """

    kind: str
    path: InnerPath
    rows: Count
    size_bytes: Count
    checksum: str = Field(pattern=r"\A[0-9a-f]{64}\z")
    content: str = Field(default="", pattern=r"\A([0-9a-f]{64})?\z")
    task: Count | None = None


class StepCommit(Columnar, Document):
    """What a step produced. Readers read these files and never list a folder."""

    step: str
    attempt: str
    files: Columns[CommittedFile]
    counts: dict[str, Count] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _its_own(self) -> Self:
        """Files of this step's attempts, each once: one that is listed twice would count twice.

        Of other attempts, too: where several clusters shared a stage, each wrote what it did into its own.
        """
        if not inner_path(self.step) or not inner_path(self.attempt) or "/" in self.attempt:
            raise unmet("a step and an attempt that are names of folders", f"{self.step!r} and {self.attempt!r}"[:120])
        folder, seen = f"{self.step}/attempts/", set()
        for path in column(self.files, "path"):
            if not path.startswith(folder) or path.count("/") <= folder.count("/") or path in seen:
                raise unmet(f"different files of {folder[:80]}", repr(path[:120]))
            seen.add(path)
        return self

    def count(self, name: str) -> int:
        """One of the counts; a ``DocumentError`` if the commit has none of that name."""
        if name not in self.counts:
            raise DocumentError(f"commit of {self.step}", f"a count of {name}", "none", "run the step again")
        return self.counts[name]

    def of_kind(self, kind: str) -> tuple[CommittedFile, ...]:
        """The files of one kind, in the order they were committed."""
        return tuple(self.files[at] for at, one in enumerate(column(self.files, "kind")) if one == kind)


#: In the attempt that routed a stage, and in the one that ended it.
ROUTED_ROWS, STAGE_SHARES = "routed.json", "shares.json"


class RoutedRows(Document):
    """The rows of a stage where each virtual task finds its own, states that go ahead of them included."""

    stage: int = Field(ge=0, le=LAST_STAGE)
    cluster: str
    tasks: dict[int, tuple[CommittedFile, ...]]
    """By task index the files of its rows; a task that has none is left out."""
    source_rows: Count | None = None
    """As in ``StageReport``, as are the rows given."""
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
    """One virtual task, done, and exactly what was written: what its lease's holder commits, on so many slots."""

    task: int = Field(ge=0)
    cluster: str
    slots: int = Field(default=1, ge=1)
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
