"""The manifest by which a step's output counts: ``COMMIT.json``, first writer wins."""

from __future__ import annotations

from pydantic import Field

from skewless.document import Document, Frozen


class CommittedFile(Frozen):
    """One file: its kind, its path below the run directory, its rows, its length and its ``file_checksum``.

    ``content`` is the ``content_checksum`` of a file that is copied as it is, unread; else empty.
    """

    kind: str
    path: str
    rows: int = Field(ge=0)
    size_bytes: int = Field(ge=0)
    checksum: str = Field(pattern="[0-9a-f]{64}")
    content: str = Field(default="", pattern="^([0-9a-f]{64})?$")


class StepCommit(Document):
    """What a step produced. Readers read these files and never list a folder.

    Attributes:
        step: the step's folder below the run directory.
        attempt: the attempt that won.
        files: exactly the files that count.
        counts: row counts of the step, by name.
    """

    step: str
    attempt: str
    files: tuple[CommittedFile, ...]
    counts: dict[str, int] = Field(default_factory=dict)

    def of_kind(self, kind: str) -> tuple[CommittedFile, ...]:
        """The files of one kind, in the order they were committed."""
        return tuple(file for file in self.files if file.kind == kind)
