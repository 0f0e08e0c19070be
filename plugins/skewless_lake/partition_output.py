"""A partition of a metastore's table as the target of a publication: each version has a folder of its own.

    s3://lake/marts/clicks/date=2026-11-20/v-3f9a1c2b4d5e6f70/part-*.parquet     a version, and ``_published`` in it

Publishing lets the location of the partition be that folder, in one call; so does going back. Readers by the catalog
see one version, whole. A metastore has no call under a condition: a run that was paused in front of that call may show
its version over that of a later turn. So each run looks after it, and each try again, whether the partition shows the
version that the store of turns says is the last one, and lets it show that.
"""

import datetime as dt
import re
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from secrets import token_hex

from fsspec.implementations.local import LocalFileSystem

from skewless.documents.job import Job
from skewless.errors import DocumentError, RunDirectoryError, SpecError
from skewless.publication.publish import Commit, Shown, Target, Turns, Validated, copied
from skewless.publication.records import (
    MANIFEST,
    QUARANTINE,
    Identity,
    PublishedFile,
    VersionManifest,
    manifest_of,
    published_path,
)
from skewless.run.directory import RunDirectory
from skewless.run.folder import as_written, make_folder, open_location, sync_file
from skewless.spec.part import Part
from skewless.spec.result import Output
from skewless_lake.catalogs import METASTORES, Column, Located, Metastore
from skewless_lake.formats import told_plainly
from skewless_lake.staged_files import HOUR_COLUMN, OutputPart

_TURN, _BY = "skewless.turn", "skewless.by"


class Versions:
    """The versions of a part, and which of them its partition shows."""

    def __init__(self, target: OutputPart) -> None:
        self.part, self.output = target.part, target.output
        self.folder = f"{target.path}/{target.part.folder(target.output.partition)}"
        self._store, self.table = metastore(target.output)
        self.values, self._top = values_of(target.part), target.path

    def folder_of(self, by: Identity) -> str:
        """Where a run's version is."""
        return f"{self.folder}/v-{by.job[:16]}"

    def shown(self) -> Shown | None:
        """What the partition shows; None if it is not there, or shows what no run of ours has published."""
        found = self._store.partition(self.table, self.values)
        return found and _shown(found)

    def show(self, by: Identity, turn: int, columns: tuple[Column, ...] = ()) -> None:
        """Let the partition, and on first use the table, show a run's version."""
        keys = (Column(self.output.partition, "date"), Column(HOUR_COLUMN, "string"))[: len(self.values)]
        there = self._store.columns(self.table)
        if there is None:
            self._store.create(self.table, columns, keys, self._top)
        elif columns and there != (*columns, *keys):
            raise SpecError(
                f"table {self.table}", f"the columns {_words((*columns, *keys))}", _words(there), "alter the table"
            )  # fmt: skip
        columns = columns or (there or ())[: -len(keys)]
        located = Located(self.values, self.folder_of(by), {_TURN: str(turn), _BY: str(by)})
        self._store.point(self.table, columns, located)

    def kept(self) -> list[VersionManifest]:
        """The versions that are whole, by turn."""
        fs, root = open_location(self.folder)
        try:
            folders = [as_written(fs, self.folder, str(one["name"])) for one in fs.ls(root, detail=True)]
        except FileNotFoundError:
            return []
        found = (manifest_of(folder) for folder in folders if "/v-" in folder)
        return sorted((one for one in found if one is not None), key=lambda one: one.turn)

    def repair(self, turns: Turns, day: str) -> None:
        """Let the partition show the version of the last turn that was finished, if it shows an earlier one."""
        shown, standing = self.shown(), turns.look(day)
        if shown is not None and shown.turn < standing.finished:
            self.show(Identity.parse(standing.finisher, f"turns of {day}"), standing.finished)

    def remove_old(self, now: dt.datetime) -> None:
        """Remove versions of earlier turns, if the newest is there for ``output.grace_hours``."""
        shown, kept = self.shown(), self.kept()
        if shown is None or not kept:
            return
        fs, newest = open_location(f"{self.folder_of(kept[-1].by)}/{MANIFEST}")
        if now - fs.modified(newest) >= dt.timedelta(hours=self.output.grace_hours):
            for version in kept:
                if version.turn < shown.turn:
                    self.remove(self.left_by(version.by))

    def left_by(self, by: Identity) -> tuple[str, ...]:
        """The files of a run's version, the manifest first; none if the partition shows it."""
        shown = self.shown()
        fs, root = open_location(self.folder_of(by))
        found = () if shown is not None and shown.by.job == by.job else fs.find(root)
        return tuple(sorted(map(str, found), key=lambda path: (not path.endswith(f"/{MANIFEST}"), path)))

    def remove(self, paths: tuple[str, ...]) -> None:
        """Remove files, in this order: a half of a version is none without its manifest."""
        fs, _ = open_location(self.folder)
        for path in paths:
            with suppress(FileNotFoundError):
                fs.rm_file(path)


def metastore(output: Output) -> tuple[Metastore, str]:
    """The metastore of an output, and the name of its table there."""
    catalog, _, table = str(output.table).partition(".")
    return METASTORES[catalog](), table


class PartitionOutput(Target):
    """The partition of a run's part; see ``publish.Target``."""

    def __init__(self, run: RunDirectory, now: dt.datetime, turns: Turns) -> None:
        super().__init__(run)
        self.now, self._turns = now, turns
        self._versions = Versions(OutputPart.of(self.job))
        self.day = self.job.part.name
        self.where = self._versions.folder_of(self.me)

    def plainly(self) -> AbstractContextManager[None]:
        """Errors of the store and the catalog in one sentence."""
        return told_plainly(published_path(self.job))

    def shown(self) -> Shown | None:
        """What the partition shows."""
        return self._versions.shown()

    def stands(self) -> bool:
        """Whether the partition shows the run's version, with all of its files, or a later one."""
        shown = self.shown()
        if shown is None or shown.turn > self.job.turn:
            return shown is not None
        manifest = manifest_of(self.where) if shown.by.job == self.me.job else None
        return manifest is not None and {file.name: file.size_bytes for file in manifest.files} == self._there()

    def _there(self) -> dict[str, int]:
        fs, root = open_location(self.where)
        found = {path[len(root) + 1 :]: int(one["size"]) for path, one in fs.find(root, detail=True).items()}
        return {name: size for name, size in found.items() if name.startswith(QUARANTINE) or name[0] not in "._"}

    def replace(self, turns: Turns) -> Generator[str, None, Commit]:
        """Write the version's folder, claim the turn, and let the partition be there."""
        columns = self._build()
        standing, turn = (yield from self.claim(turns)), self.job.turn
        if standing.claimed == turn:
            self._versions.show(self.me, turn, columns)
            yield "exchanged"
            standing = turns.look(self.day)
        return Commit() if standing.claimed == turn else self.superseded(standing)

    def settle(self) -> None:
        """Let the partition show the last version, and remove versions past their grace."""
        self._versions.repair(self._turns, self.day)
        self._versions.remove_old(self.now)

    def _build(self) -> tuple[Column, ...]:
        """Write the run's files, which all of its attempts write alike; the columns that they have."""
        validated, name = Validated.of(self.run), self.me.job[:16]
        if not validated.kept:
            raise RunDirectoryError.saying(str(self.run), "its result has no files", "begin a new run")
        fs, root = open_location(self.where)
        draft, files, local = Path(root, f".{token_hex(8)}"), list[PublishedFile](), isinstance(fs, LocalFileSystem)
        if local:
            make_folder(Path(root, QUARANTINE) if validated.held else Path(root))
        for file in copied(self.run, name, lambda name: fs.open(str(draft) if local else f"{root}/{name}", "wb")):
            if local:  # readers may have this version already, from an earlier attempt
                draft.replace(Path(root, file.name))
            files.append(file)
        # An INSERT OVERWRITE of Spark's writes into the folder that the partition shows.
        for strange in self._there().keys() - {file.name for file in files}:
            fs.rm_file(f"{root}/{strange}")
        manifest = VersionManifest(by=self.me, turn=self.job.turn, name=name, files=tuple(files))
        fs.pipe_file(str(draft) if local else f"{root}/{MANIFEST}", manifest.sealed().encode())
        if local:
            draft.replace(Path(root, MANIFEST))
            for written in (*(file.name for file in files), MANIFEST, ""):
                sync_file(Path(root, written))
        return columns_of(validated.report.columns, f"table {self.job.spec.output.table}")


def values_of(part: Part) -> tuple[str, ...]:
    """The values of a part's partition."""
    return (part.date.isoformat(), *((part.hour,) if part.hour else ()))


def _shown(found: Located) -> Shown | None:
    try:
        turn, by = int(found.parameters[_TURN]), Identity.parse(found.parameters[_BY], found.location)
    except (KeyError, ValueError, DocumentError):
        return None
    return Shown(found.location, turn, by)


def draw_turn(output: Output, path: str, turns: Turns, above: int) -> int:
    """Draw a turn; an error if the metastore does not answer, or cannot have such a folder."""
    store, table = metastore(output)
    if not path.startswith(store.PLACES):
        raise SpecError("field output.path", f"a folder at {store.PLACES[0]} for {output.table}", path)
    with told_plainly(str(output.table)):
        store.columns(table)
    return turns.draw(above)


def shown_turn(job: Job) -> int:
    """The turn that the partition of a job's part shows; 0 if none."""
    with told_plainly(job.output_path):
        shown = Versions(OutputPart.of(job)).shown()
    return shown.turn if shown is not None else 0


def shown_parts(output: Output) -> dict[str, tuple[str, Identity]]:
    """By the name of a part: the version that its partition shows, and which run's result that is."""
    store, table = metastore(output)
    shown = ((one, _shown(one)) for one in store.partitions(table))
    return {
        Part(dt.date.fromisoformat(one.values[0]), *one.values[1:]).name: (what.by.job[:16], what.by)
        for one, what in shown
        if what
    }  # fmt: skip


def roll_back(target: OutputPart, turns: Turns) -> Mapping[str, str]:
    """Let the partition show the version before the one that it shows, in a turn of its own.

    Raises:
        SpecError: there is no earlier version.
    """
    versions, day = Versions(target), target.part.name
    with told_plainly(target.path):
        shown = versions.shown()
        kept = versions.kept()
        before = [one for one in kept if shown is not None and one.by.job != shown.by.job and one.turn < shown.turn]
        if shown is None or not before:
            raise SpecError(f"{target.path}, part {target.part}", "an earlier version", "none", "run the job again")
        turn, by = turns.draw(above=max(turns.look(day).finished, shown.turn)), before[-1].by
        turns.claim(day, turn, str(by))
        versions.show(by, turn)
        turns.finish(day, turn, str(by))
        versions.repair(turns, day)
    return {"run": by.run, "snapshot": versions.folder_of(by), "rolled-back": f"from {shown.location}"}


def columns_of(types: Mapping[str, str], where: str) -> tuple[Column, ...]:
    """Columns, of which the types in Spark's words are given, in Hive's words, which are nearly the same.

    Raises:
        SpecError: Hive has no such type.
    """
    columns = tuple(Column(name.lower(), kind.replace("timestamp_ntz", "timestamp")) for name, kind in types.items())
    for column in columns:
        if odd := set(re.findall(r"(?<![:\w])\w+(?![:\w])", re.sub(r"\w+:|\([^)]*\)", "", column.type))) - _TYPES:
            raise SpecError(f"{where}, column {column.name}", "a type that Hive has", min(odd), "CAST it")
    return columns


_TYPES = {
    "array", "bigint", "binary", "boolean", "date", "decimal", "double", "float", "int", "map", "smallint", "string",
    "struct", "timestamp", "tinyint",
}  # fmt: skip


def _words(columns: tuple[Column, ...]) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in columns)
