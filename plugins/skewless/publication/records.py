"""The records of a publication: the manifest in the published folder, and the record in the run directory."""

import os
import re
from pathlib import Path
from typing import Annotated

from fsspec.implementations.local import LocalFileSystem
from pydantic import Field, field_validator

from skewless.document import Count, Document, Frozen
from skewless.documents.commit import inner_path
from skewless.documents.job import Job
from skewless.documents.quality import State
from skewless.errors import DocumentError
from skewless.run.directory import PUBLISH_STEP, RunDirectory
from skewless.run.folder import is_object, open_location
from skewless.run.storage import content_checksum

PUBLISHED = f"{PUBLISH_STEP}/published.json"
#: The manifest of a version, in its folder. Spark and pyarrow pass over names that begin so; no glob of an ending fits.
MANIFEST = "_published"

#: The keys in quarantine, beside those that are published: in a folder of its own in that of the day. As its files have
#: no ending of a format, no glob of one fits them, either.
QUARANTINE = "_quarantine"

Sha256 = Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]


class Identity(Frozen):
    """Which run published, or claimed, a day."""

    job: Sha256
    """SHA-256 of its stored ``job.json``, which contains its turn. It stays the same if the run directory is moved,
    whichever release reads it."""
    run: str
    """Where the run directory was then, as a path or a URL."""

    def __str__(self) -> str:
        """The text that a store of turns keeps."""
        return f"{self.job} {self.run}"

    @classmethod
    def parse(cls, text: str, where: str) -> "Identity":
        """Read what ``str`` gave; any other text is a ``DocumentError``."""
        found = re.fullmatch(r"([0-9a-f]{64}) (.*)", text, re.DOTALL)
        if found is None:
            raise DocumentError(where, "the identity of a run", repr(text[:120]), "it was edited by hand")
        return cls(job=found[1], run=found[2])


class PublishedFile(Frozen):
    """One file of a version: its name, its length and the SHA-256 of all of it."""

    name: str
    size_bytes: Count
    sha256: Sha256

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        if not inner_path(name) or "/" in name.removeprefix(f"{QUARANTINE}/"):
            raise ValueError("should be the name of a file")
        return name


class VersionManifest(Document):
    """What a published folder holds, exactly, and which run published it in which turn: ``_published`` in it.

    The names of the files end with that of the version, so no other version has them.
    """

    by: Identity
    turn: Count
    name: str
    files: tuple[PublishedFile, ...]


class Overtaken(Frozen):
    """The run that has published the day in a later turn than a run, which is superseded by it."""

    by: Identity
    turn: Count


class Publication(Document):
    """The record of a run's publication: its result became visible, or a later run had published before."""

    path: str
    rows: Count
    """Rows of the input that the result accounts for, keys in quarantine included."""
    keys: Count
    """Rows of the result that are published."""
    turn: Count
    quarantined: Count = 0
    """Its rows that are not, and lie beside them; ``withheld_rows`` those of the input that they stand for; None where
    the result does not count them."""
    withheld_rows: Count | None = 0
    superseded: Overtaken | None = None
    """By whom, if a later run of the day published before this one had finished; then the result of this run never
    became visible, or no longer is."""
    snapshot: Annotated[int, Field(ge=0)] | None = None
    """Of a table, the snapshot or version that published it."""

    @property
    def published_rows(self) -> int | None:
        """Rows of the input that readers see counted; None where nobody has counted those that are withheld."""
        return None if self.withheld_rows is None else self.rows - self.withheld_rows


def state_of(run: RunDirectory) -> State:
    """How a run stands by its documents, as far as they go."""
    record, quality, comparison = record_of(run), run.quality(), run.comparison()
    verdict = quality.verdict if quality else State("none yet", "")
    if record is not None and record.superseded is not None:
        return State("superseded", "superseded by a later run of the day")
    if record is not None:
        plain = verdict.word in {"passed", "none yet"}
        return State("published", "published") if plain else State(verdict.word, f"published, {verdict.sentence}")
    if comparison is not None:
        allowed = comparison.allowed_by(run.job().spec.shadow)
        word = "failed" if not allowed else "differs" if comparison.found else "agrees"
        return State(word, f"compared, {comparison.verdict}; nothing was published")
    if verdict.word == "failed":
        return State("failed", "failed validation, nothing is published")
    if run.fs.exists(f"{run.root}/failures"):
        return State("failed", "failed before it was done")
    return State("unfinished", f"validated, {verdict.sentence}; not published yet" if quality else "not finished")


def published_path(job: Job) -> str:
    """The folder the result of a job is published in."""
    return f"{job.output_path}/{job.part.folder(job.spec.output.partition)}"


def identity_of(run: RunDirectory) -> Identity:
    """The identity of a run that was prepared."""
    job = content_checksum(run.fs, f"{run.root}/job.json")
    where = run.root if isinstance(run.fs, LocalFileSystem) else str(run)
    return Identity(job=job, run=os.fsencode(where).decode(errors="replace"))


def record_of(run: RunDirectory) -> Publication | None:
    """The record of a publication; None as long as the run is neither published nor superseded."""
    return run.read(PUBLISHED, Publication) if run.exists(PUBLISHED) else None


def publication_of(run: RunDirectory) -> Publication | None:
    """The record of the publication, if the run was published."""
    record = record_of(run)
    return record if record is not None and record.superseded is None else None


def manifest_of(folder: Path | str) -> VersionManifest | None:
    """The manifest of a version; None if it cannot be read: it was lost, or the folder is not a version of ours."""
    try:
        return read_manifest(folder)
    except (ImportError, OSError):
        return None


def read_manifest(folder: Path | str) -> VersionManifest | None:
    """The manifest of a version; None if it is damaged, an ``OSError`` if it cannot be read."""
    where = f"{folder}/{MANIFEST}"
    if not is_object(where):
        return parsed_manifest(Path(where).read_bytes(), where)
    fs, path = open_location(where)
    return parsed_manifest(fs.cat_file(path), where)


def parsed_manifest(content: bytes, where: str) -> VersionManifest | None:
    """A manifest by its bytes; None if these are damaged, or not of one."""
    try:
        return VersionManifest.from_sealed(content, where)
    except DocumentError:
        return None
