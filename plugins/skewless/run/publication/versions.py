"""A version of a day: the files of a committed result under names of its own, with a manifest."""

from __future__ import annotations

import secrets
from pathlib import Path

from fsspec.implementations.local import LocalFileSystem

from skewless.documents.commit import StepCommit
from skewless.errors import SkewlessError
from skewless.run.directory import RunDirectory
from skewless.run.file_checksum import content_checksum
from skewless.run.publication.exchange import sync_file, sync_folder
from skewless.run.publication.places import BUILDING, Place, remove
from skewless.run.publication.records import MANIFEST, Identity, PublishedFile, VersionManifest, manifest_of


def build(run: RunDirectory, result: StepCommit, place: Place, by: Identity, turn: int) -> Path:
    """Copy the committed files into a draft, on the disk.

    While it is built it has another name, so that a half of one is never taken for a version.

    Raises:
        RunDirectoryError: a committed file is gone, or is another one.
        FileNotFoundError: the draft was moved away by somebody who has a say over it.
    """
    name = f"{turn}-{secrets.token_hex(6)}"
    draft = place.drafts / name
    building = draft.with_name(f"{name}{BUILDING}")
    building.mkdir()
    try:
        _fill(building, run, result, VersionManifest(by=by, turn=turn, name=name, files=()))
    except (SkewlessError, OSError):
        remove(building)
        raise
    building.rename(draft)
    sync_folder(place.drafts)
    return draft


def _fill(building: Path, run: RunDirectory, result: StepCommit, version: VersionManifest) -> None:
    ending, files = run.job().spec.output.file_format, []
    for number, file in enumerate(result.of_kind("published") or result.of_kind("result")):
        run.verify(file)
        copy = building / f"part-{number:05d}-{version.name}.{ending}"
        run.fs.get_file(f"{run.root}/{file.path}", str(copy))
        sync_file(copy)
        files.append(_described(copy))
        if file.content and files[-1].sha256 != file.content:
            raise run.differs_from_commit(file, "other content")
    manifest = building / MANIFEST
    manifest.write_text(version.model_copy(update={"files": tuple(files)}).sealed(), encoding="utf-8")
    sync_file(manifest)
    sync_folder(building)


def faults_of(folder: Path, manifest: VersionManifest) -> list[str]:
    """What is not as the manifest says: files that are gone, were cut or changed, or that nobody published."""
    found = []
    for file in manifest.files:
        path = folder / file.name
        try:
            if path.stat().st_size != file.size_bytes:
                found.append(f"{file.name} has {path.stat().st_size:,} bytes, not {file.size_bytes:,}")
            elif _described(path) != file:
                found.append(f"{file.name} has other content")
        except OSError as err:
            found.append(f"{file.name}: {err.strerror or type(err).__name__}")
    expected = {file.name for file in manifest.files}
    # What readers pass over is nothing to them: a marker that somebody put there, say.
    strange = sorted(one.name for one in folder.iterdir() if one.name not in expected and one.name[0] not in "._")
    return found + [f"{name} was not published" for name in strange]


def lies_whole(place: Place, by: Identity) -> bool:
    """Whether the published folder holds a version of this run, as it was published."""
    manifest = manifest_of(place.target)
    return manifest is not None and manifest.by.job == by.job and not faults_of(place.target, manifest)


def _described(path: Path) -> PublishedFile:
    sha256 = content_checksum(LocalFileSystem(), str(path))
    return PublishedFile(name=path.name, size_bytes=path.stat().st_size, sha256=sha256)
