"""The identity of an input file, by which a change of its content is noticed.

Length and modification time are not enough: a rewrite can keep both. Object stores name each content by a tag. A local
file has an inode, and a change time, which no user can set. But these also change without the content: by new
permissions, a backup's hard link, a restored copy. Then a checksum decides, which ``prepare`` computed for small files.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import fsspec
from fsspec.implementations.local import LocalFileSystem

from skewless.documents.job import Job, Unit
from skewless.documents.window import InputFile
from skewless.errors import InputError
from skewless.run.folder import open_location
from skewless.run.storage import content_checksum
from skewless.standing.parts import FoundFile
from skewless_spark.sources.formats.input_files import in_threads

#: A checksum is computed of files of at most this many bytes, and of this many in total: a tenth of a second.
CHECKSUM_FILE_BYTES, CHECKSUM_BYTES = 4 << 20, 64 << 20

_LOCAL = LocalFileSystem()
#: Begins the version of a file of an Iceberg or Delta table. The table's own metadata names it, and it never changes.
TABLE = "table"

#: The names that fsspec's file systems use for the tag of a content or of its version.
_TAGS = ("ETag", "etag", "VersionId", "version_id", "generation", "md5Hash", "content_md5")
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modificationTime", "modified")


def listed_file(fs: fsspec.AbstractFileSystem, file: str) -> FoundFile:
    """A file that has just been listed, with its identity.

    Raises:
        InputError: it has been removed since, or cannot be inspected.
    """
    try:
        return found_file(fs, file)
    except OSError as err:
        reason = err.strerror or str(err)[:200]
        raise InputError(f"input file {file}", "a file that stays there", reason, "try again when it does") from None


def found_file(fs: fsspec.AbstractFileSystem, file: str) -> FoundFile:
    """A file with its identity now; a ``FileNotFoundError`` if it does not exist any more."""
    if isinstance(fs, LocalFileSystem):
        now = os.stat(file)  # noqa: PTH116  # fsspec has times as floats, which are too coarse
        return FoundFile(file, now.st_size, f"stat:{now.st_mtime_ns}:{now.st_ctime_ns}:{now.st_ino}")
    info = fs.info(file)
    return FoundFile(file, int(info["size"]), version_from(info))


def version_from(info: Mapping[str, Any]) -> str:
    """What identifies the content of a file, from what a file system of fsspec reports.

    Returns:
        ``tag:`` and the tag of the content; or ``stat:`` with modification time, change time (both in nanoseconds) and
        inode, of a local file; or ``time:`` and a time alone, which is weak evidence; or an empty text.
    """
    for kind, names in (("tag", _TAGS), ("time", _TIMES)):
        said = [str(info[name]) for name in names if info.get(name)]
        if said:
            return f"{kind}:{'/'.join(said)}"
    return ""


def checksums(fs: fsspec.AbstractFileSystem, found: Sequence[FoundFile]) -> list[str]:
    """The SHA-256 of files without a tag, whose identity may change without the content; else empty.

    Only small files have one, and of many files only the first, so that the input is not read twice.
    """
    left, chosen = CHECKSUM_BYTES, []
    for file in found:
        wanted = not file.version.startswith("tag:") and file.size_bytes <= min(CHECKSUM_FILE_BYTES, left)
        left -= file.size_bytes if wanted else 0
        chosen.append(file.path if wanted else "")
    return list(in_threads(lambda file: _checksum(fs, file) if file else "", chosen))


def _checksum(fs: fsspec.AbstractFileSystem, file: str) -> str:
    try:
        return content_checksum(fs, file)
    except OSError as err:
        reason = err.strerror or str(err)[:200]
        raise InputError(f"input file {file}", "a readable file", reason, "mend or remove it") from None


def verdict(unit: InputFile, now: FoundFile) -> Literal["same", "rewritten", "touched", "compare"]:
    """Whether a unit's file has changed since the run was prepared, as far as its identity tells.

    Returns:
        ``compare`` if only the checksum can tell; ``touched`` if that is needed but was not computed.
    """
    if now.size_bytes != unit.size_bytes:
        return "rewritten"
    if unit.version.startswith(f"{TABLE}:"):
        return "same"
    if now.version == unit.version:
        telling = now.version.startswith(("tag:", "stat:"))  # a changed content always has another one
        return "same" if telling or not unit.checksum else "compare"
    before, after = unit.version.split(":"), now.version.split(":")
    if before[0] != "stat" or before[:2] != after[:2]:
        return "rewritten"
    if unit.checksum:
        return "compare"
    # On another host the inode alone may differ. No content changes without a new change time.
    return "touched" if before[2] != after[2] else "same"


def require_unchanged(job: Job, ordinals: Sequence[int]) -> None:
    """Check that files have not changed since the run was prepared.

    A run reads its input stage by stage, and its lookups in each: a file rewritten in between would mix two versions in
    the result.

    Raises:
        InputError: a file has been removed or has changed; the error names the first.
    """
    for lookup in job.lookups:
        require_unchanged(job.of_lookup(lookup), range(len(lookup.units)))
    known = {unit.path: unit for unit in map(job.units.__getitem__, ordinals)}
    changed = next((found for found in in_threads(_change, known.values()) if found), None)
    if changed:
        pinned = job.source.pinned
        where = f"input {pinned}" if pinned else job.input_path
        again = "the snapshot has expired or was removed, so start a new run" if pinned else "start a new run"
        raise InputError(where, "the files that the run was prepared with", changed, f"nothing was committed; {again}")


def _change(unit: Unit) -> str:
    # A path without a scheme is local; finding its file system out takes longer than looking at the file.
    fs, file = open_location(unit.path) if "://" in unit.path else (_LOCAL, unit.path)
    try:
        found = verdict(unit, found_file(fs, file))
        if found == "compare":
            found = "same" if content_checksum(fs, file) == unit.checksum else "rewritten"
    except FileNotFoundError:
        return f"input file {unit.path} is gone"
    except OSError as err:
        return f"input file {unit.path}, which cannot be read ({err.strerror or err})"
    if found == "touched":
        return (
            f"input file {unit.path} was touched: its change time is another, and no checksum of it was taken "
            f"(files of at most {CHECKSUM_FILE_BYTES >> 20} MiB have one, up to {CHECKSUM_BYTES >> 20} MiB together)"
        )
    return f"input file {unit.path} was rewritten" if found == "rewritten" else ""
