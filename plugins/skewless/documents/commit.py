"""The manifest by which a step's output counts: ``COMMIT.json``, first writer wins."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from skewless.columns import Columnar, Columns, column
from skewless.document import Count, Document, Frozen, unmet
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
