"""One attempt at a step: its files lie where no other attempt writes, and count once it has committed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

from skewless.document import Document
from skewless.documents.commit import CommittedFile, StepCommit
from skewless.errors import LostRaceError
from skewless.run.file_checksum import content_checksum, file_checksum
from skewless.run.storage import Storage

#: Kind of the committed files that are documents of ours.
DOCUMENT = "document"
#: What an attempt would commit, in its own folder: it is there before the fence admits the attempt.
MANIFEST = "manifest.json"


def commit_path(step: str) -> str:
    """Where a step's commit is, below the run directory."""
    return f"{step}/COMMIT.json"


class Fence(Protocol):
    """The right to commit a step. It ends when somebody else is granted it under a higher fencing number."""

    def admit(self, attempt: str) -> None:
        """Record that this attempt is the one that commits, if the right still holds at that moment.

        Raises:
            SkewlessError: it no longer holds; nothing was written.
        """


class Attempt:
    """One attempt at a step. Nothing that it writes counts before ``commit``."""

    def __init__(self, run: Storage, step: str, ident: str, fence: Fence | None = None) -> None:
        self.run, self.step, self.ident, self._fence = run, step, ident, fence
        self.folder = f"{step}/attempts/{ident}"
        self._documents: list[CommittedFile] = []
        self._reported: list[str] = []

    def path(self, name: str) -> str:
        """The full path of a file or folder of this attempt."""
        return self.run.path(f"{self.folder}/{name}")

    def write(self, name: str, document: Document) -> None:
        """Write a document into this attempt; the commit will list it."""
        path = f"{self.folder}/{name}"
        self.run.write_same(path, document)
        content = document.sealed().encode()
        checksum = hashlib.sha256(content).hexdigest()
        self._documents.append(
            CommittedFile(kind=DOCUMENT, path=path, rows=0, size_bytes=len(content), checksum=checksum)
        )

    def report(self, paths: Sequence[str]) -> None:
        """Take note of the data files that tasks have written, by their full paths as ``path`` makes them.

        Beside them there may be files of tasks that were repeated or thought dead: those are not listed.
        """
        self._reported += [f"{self.run.root}/{path[len(self.run.path('')) :]}" for path in paths]

    def listed(self, folder: str, ending: str = ".parquet") -> list[str]:
        """The data files below a folder that this attempt has written, sorted.

        Only the writer lists, and only its own attempt, unless its tasks have reported what they wrote.
        """
        below = f"{self.run.root}/{self.folder}/{folder}".rstrip("/") + "/"
        found = [path for path in self._reported if path.startswith(below)] or self.run.fs.find(below.rstrip("/"))
        return sorted(path for path in found if path.endswith(ending))

    def relative(self, path: str) -> str:
        """A listed path, relative to the run directory."""
        return path[len(self.run.root) + 1 :]

    def described(self, kind: str, path: str, rows: int, *, copied: bool = False) -> CommittedFile:
        """A listed path as a commit names it, with its length and checksum as they are now.

        Args:
            kind: what it holds.
            path: as it was listed.
            rows: as its writer counted them.
            copied: whether it will be copied without being read, and so needs a checksum of all of it.
        """
        fs = self.run.fs
        return CommittedFile(
            kind=kind, path=self.relative(path), rows=rows, size_bytes=int(fs.size(path)),
            checksum=file_checksum(fs, path), content=content_checksum(fs, path) if copied else "",
        )  # fmt: skip

    def manifest(self, files: Sequence[CommittedFile], counts: dict[str, int]) -> StepCommit:
        """The documents that this attempt wrote, and these data files: what a commit lists."""
        return StepCommit(step=self.step, attempt=self.ident, files=(*files, *self._documents), counts=counts)

    def commit(self, files: Sequence[CommittedFile], counts: dict[str, int]) -> StepCommit:
        """Make this attempt the one that counts, with the documents that it wrote and these data files.

        Raises:
            LostRaceError: another attempt committed first; that one counts.
            SkewlessError: the fence does not admit this attempt, and no other one has committed yet.
        """
        commit = self.manifest(files, counts)
        if self._fence is not None:
            # In this order: whoever comes after an attempt that was admitted can commit for it.
            self.run.write_same(f"{self.folder}/{MANIFEST}", commit)
            self._fence.admit(self.ident)
        if self.run.write_once(commit_path(self.step), commit):
            return commit
        winner = self.run.read(commit_path(self.step), StepCommit)
        if winner == commit:  # an object store's client that lost the answer to its first try
            return winner
        raise LostRaceError(
            self.run.path(self.step),
            "",
            f"attempt {winner.attempt} committed first",
            "its files count and those of this attempt do not; go on from there",
        )
