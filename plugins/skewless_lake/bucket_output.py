"""The prefix of a day in a bucket as the target of a publication, where nothing can be exchanged at once.

All files of a version are uploaded first, under names that no other version has, and completed together. Then
``_published`` names them, in the place of the manifest that was read before, or not at all; and then the files of
earlier versions go. Who lists the prefix in between sees files of two versions (``output.allow_gap``); who reads the
files that ``_published`` names never does. The manifest is the fence: one of a later turn is never replaced.
"""

import logging
import re
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Any

from skewless.errors import RunDirectoryError, SpecError
from skewless.publication.publish import Commit, Target, Turns, copied
from skewless.publication.records import (
    MANIFEST,
    QUARANTINE,
    Overtaken,
    PublishedFile,
    VersionManifest,
    manifest_of,
    parsed_manifest,
    published_path,
)
from skewless.run.directory import RunDirectory
from skewless.run.folder import open_location

log = logging.getLogger(__name__)

_AT_A_TIME = 32
_OURS = re.compile(rf"(?:{QUARANTINE}/)?part-\d{{5}}-(\d{{1,18}})-[0-9a-f]{{12}}(?:\.\w+)?")


def draw_turn(output_path: str, turns: Turns, above: int = 0) -> int:
    """As ``folder_output.draw_turn``; a ``RunDirectoryError`` of a bucket in which two can replace one object."""
    try:
        fs, root = open_location(output_path)
        fs.require_one_replaces(root)
    except (ImportError, ValueError, OSError) as err:
        raise RunDirectoryError.saying(output_path, f"nothing can be published there ({err})") from None
    return turns.draw(above)


class BucketOutput(Target):
    """The prefix of a run's day; see ``publish.Target``. Replaced versions are not kept."""

    def __init__(self, run: RunDirectory) -> None:
        super().__init__(run)
        self.where = published_path(self.job)
        self.day = self.job.part.folder(self.job.spec.output.partition).replace("/", "--")
        self._fs, self._root = open_location(self.where)
        #: All attempts of a run have the same names: two of them write the same bytes.
        self._version = f"{self.job.turn}-{self.me.job[:12]}"

    def stands(self) -> bool:
        """Whether the day shows the run's version, whole and alone, or a later one."""
        lying = manifest_of(self.where)
        if lying is None:
            return False
        there = self._there()
        return lying.turn > self.job.turn or (self._is_mine(lying, there) and not self._older(lying, there))

    def _is_mine(self, lying: VersionManifest, there: dict[str, int]) -> bool:
        return lying.by.job == self.me.job and all(there.get(file.name) == file.size_bytes for file in lying.files)

    def replace(self, turns: Turns) -> Generator[str, None, Commit]:
        """Upload all files, claim the turn, complete them, let the manifest name them, remove those of earlier turns.

        Raises:
            SpecError: there are files of others, which readers would count beside ours.
        """
        turn, lying, there = self.job.turn, manifest_of(self.where), self._there()
        self._require_ours(there)
        begun = time.monotonic()
        if lying is None or not self._is_mine(lying, there):
            files, uploads = self._begin()
            if (standing := (yield from self.claim(turns))).claimed > turn:
                return self.superseded(standing)
            begun = time.monotonic()
            with ThreadPoolExecutor(_AT_A_TIME) as pool:
                list(pool.map(lambda upload: upload.complete(), uploads))
            yield "completed"
            lying = VersionManifest(by=self.me, turn=turn, name=self._version, files=files)
            if (over := self._show(lying)) is not None:
                self._clear(over)
                return Commit(over=Overtaken(by=over.by, turn=over.turn))
            yield "exchanged"
        if self._clear(lying):
            milliseconds = 1000 * (time.monotonic() - begun)
            log.info("%s: who lists it has seen files of two versions for %.0f ms", self.where, milliseconds)
        yield "cleared"
        return Commit()

    def settle(self) -> None:
        """Remove what killed attempts have left of this run and of earlier ones."""
        if (lying := manifest_of(self.where)) is not None:
            self._clear(lying)

    def _begin(self) -> tuple[tuple[PublishedFile, ...], list[Any]]:
        uploads = list[Any]()

        def begun(name: str) -> Any:
            uploads.append(self._fs.begin(f"{self._root}/{name}"))
            return uploads[-1]

        return tuple(copied(self.run, self._version, begun)), uploads

    def _show(self, mine: VersionManifest) -> VersionManifest | None:
        """Let ``_published`` name a version, unless it names one of a later turn, which is returned."""
        path, content = f"{self._root}/{MANIFEST}", mine.sealed().encode()
        while True:
            before = self._fs.known(path)
            lying = parsed_manifest(before.content, path) if before is not None else None
            if lying is not None and lying.turn > mine.turn:
                return lying
            if self._fs.replace(path, content, before):
                return None

    def _there(self) -> dict[str, int]:
        found = self._fs.find(self._root, detail=True)
        return {path[len(self._root) + 1 :]: int(facts["size"]) for path, facts in found.items()}

    def _older(self, lying: VersionManifest, there: dict[str, int]) -> list[str]:
        """The files of versions up to that of a manifest, which does not name them."""
        named = {file.name for file in lying.files}
        turns = ((name, _OURS.fullmatch(name)) for name in there.keys() - named)
        return sorted(name for name, found in turns if found is not None and int(found[1]) <= lying.turn)

    def _clear(self, lying: VersionManifest) -> int:
        older = self._older(lying, self._there())
        for name in older:
            self._fs.rm_file(f"{self._root}/{name}")
        return len(older)

    def _require_ours(self, there: dict[str, int]) -> None:
        # Spark, pyarrow and DuckDB's Hive readers pass over names that begin with these letters.
        seen = (name for name in sorted(there) if all(piece[0] not in "._" for piece in PurePosixPath(name).parts))
        strange = [name for name in seen if not _OURS.fullmatch(name)]
        if strange:
            raise SpecError(
                f"field output.path, {self.where}", "a prefix with nothing in it but what is published here",
                f"{len(strange):,} other objects, such as {strange[0]}, which readers would count, too",
                "remove them, or choose another path",
            )  # fmt: skip
