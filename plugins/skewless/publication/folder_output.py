"""The folder of a day as the target of a publication: a draft is built beside it, and exchanged with it at once.

Readers that list a day see one version, whole, or find no file, but never a mix: each version has its own file names.
The draft is the fence: who has a say over a later turn moves the drafts of earlier ones away, and an exchange without
its draft moves nothing.
"""

import datetime as dt
import secrets
from collections.abc import Generator
from pathlib import Path

from fsspec.implementations.local import LocalFileSystem

from skewless.documents.job import Job
from skewless.errors import RunDirectoryError, SkewlessError
from skewless.publication.places import (
    BUILDING,
    clear_drafts,
    exchange,
    keep,
    make_beside,
    past_grace,
    place_of,
    remove,
    require_exchange,
)
from skewless.publication.publish import Commit, Target, Turns, Validated, copied
from skewless.publication.records import (
    MANIFEST,
    QUARANTINE,
    PublishedFile,
    VersionManifest,
    manifest_of,
    published_path,
)
from skewless.run.directory import RunDirectory
from skewless.run.folder import make_folder, sync_file, sync_folder
from skewless.run.storage import content_checksum


def draw_turn(output_path: str, turns: Turns, above: int = 0) -> int:
    """Draw the turn of a run whose input is about to be pinned, above a turn that is known to have been drawn.

    The turn is drawn before the input is listed. So the run with the latest turn lists its input after all others have
    drawn theirs, however long a run takes between the two.

    Raises:
        SpecError: the file system cannot exchange folders.
        RunDirectoryError: nothing can be published there.
    """
    try:
        require_exchange(make_beside(output_path))
    except OSError as err:
        reason = err.strerror or type(err).__name__
        raise RunDirectoryError.saying(output_path, f"no folder can be made beside it ({reason})") from None
    return turns.draw(above)


def shown_turn(job: Job) -> int:
    """The turn in the published folder, or prefix of a bucket, of a job's day; 0 if none.

    A run that is about to begin with no later one lists its input again, in a turn above it: the store of turns was
    lost, or a later run was faster.
    """
    lying = manifest_of(published_path(job))
    return lying.turn if lying is not None else 0


class FolderOutput(Target):
    """The folder of a run's day; see ``publish.Target``. Old versions are kept for ``output.grace_hours``."""

    def __init__(self, run: RunDirectory, now: dt.datetime) -> None:
        super().__init__(run)
        self.now, self.place = now, place_of(self.job)
        self.day, self.where = self.place.day, str(self.place.target)

    def stands(self) -> bool:
        """Whether the day shows the run's version, as it was published, or a later one."""
        lying = manifest_of(self.where)
        return lying is not None and (lying.turn > self.job.turn or self._is_mine(lying))

    def _is_mine(self, lying: VersionManifest) -> bool:
        return lying.by.job == self.me.job and not faults_of(self.place.target, lying)

    def replace(self, turns: Turns) -> Generator[str, None, Commit]:
        """Build a draft, claim the turn and exchange the folders, on the disk."""
        place, turn, lying = self.place, self.job.turn, manifest_of(self.where)
        if lying is None or not self._is_mine(lying):
            draft: Path | None = None
            try:
                make_beside(self.job.output_path)
                make_folder(place.drafts)
                make_folder(place.target.parent)
                draft = self._build()
                # After the draft was made: whoever claims a later turn from now on finds it, and moves it away.
                standing = yield from self.claim(turns)
                if standing.claimed > turn:
                    remove(draft)
                    return self.superseded(standing)
                clear_drafts(place, turn, self.now, but=draft)
                yield "cleared"
                exchange(draft, place.target)
            except FileNotFoundError:
                if draft is not None and draft.exists():
                    raise
                return self.superseded(turns.look(self.day), "another attempt or run, which moved the draft away")
            yield "exchanged"
            sync_folder(place.drafts)
            keep(place, draft, self.now)
        sync_folder(place.target)
        sync_folder(place.target.parent)
        yield "made durable"
        return Commit()

    def settle(self) -> None:
        """Move away drafts that attempts have left which were killed, and remove versions past their grace."""
        clear_drafts(self.place, self.job.turn, self.now)
        for version in past_grace(self.place.beside, self.now, dt.timedelta(hours=self.job.spec.output.grace_hours)):
            remove(version.folder)

    def _build(self) -> Path:
        """Copy the committed files into a draft, on the disk.

        While it is built it has another name, so that a half of one is never taken for a version. A
        ``FileNotFoundError`` says that somebody who has a say over it has moved the draft away.
        """
        name = f"{self.job.turn}-{secrets.token_hex(6)}"
        version = VersionManifest(by=self.me, turn=self.job.turn, name=name, files=())
        draft, building = self.place.drafts / name, self.place.drafts / f"{name}{BUILDING}"
        building.mkdir()
        try:
            self._fill(building, version)
        except (SkewlessError, OSError):
            remove(building)
            raise
        building.rename(draft)
        sync_folder(self.place.drafts)
        return draft

    def _fill(self, building: Path, version: VersionManifest) -> None:
        if Validated.of(self.run).held:  # here, once: a draft that is moved away must not come again without its files
            (building / QUARANTINE).mkdir()
        files = tuple(copied(self.run, version.name, lambda name: (building / name).open("wb")))
        for file in files:
            sync_file(building / file.name)
        manifest = building / MANIFEST
        manifest.write_text(version.model_copy(update={"files": files}).sealed(), encoding="utf-8")
        sync_file(manifest)
        if (building / QUARANTINE).exists():
            sync_folder(building / QUARANTINE)
        sync_folder(building)


def faults_of(folder: Path, manifest: VersionManifest) -> list[str]:
    """What is not as the manifest says: files that are gone, were cut or changed, or that nobody published."""
    faults = []
    for file in manifest.files:
        path = folder / file.name
        try:
            if path.stat().st_size != file.size_bytes:
                faults.append(f"{file.name} has {path.stat().st_size:,} bytes, not {file.size_bytes:,}")
            elif _described(folder, path) != file:
                faults.append(f"{file.name} has other content")
        except OSError as err:
            faults.append(f"{file.name}: {err.strerror or type(err).__name__}")
    expected = {file.name for file in manifest.files}
    # What readers pass over is nothing to them: a marker that somebody put there, say.
    strange = sorted(path.name for path in folder.iterdir() if path.name not in expected and path.name[0] not in "._")
    return faults + [f"{name} was not published" for name in strange]


def _described(folder: Path, path: Path) -> PublishedFile:
    sha256 = content_checksum(LocalFileSystem(), str(path))
    return PublishedFile(name=str(path.relative_to(folder)), size_bytes=path.stat().st_size, sha256=sha256)
