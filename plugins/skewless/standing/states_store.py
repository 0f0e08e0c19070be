"""Where standing states are kept: one folder for each job and fingerprint, with versions of each part.

The fingerprint is a checksum of all that shapes states. States of two fingerprints are never mixed.

STORE/FINGERPRINT/fingerprint.json
    STORE/FINGERPRINT/parts/2026-11-20/versions/0007.json     the units, the rows, and the files with states
    STORE/FINGERPRINT/states/attempts/ID/...                  the files, which count once a version names them
    STORE/FINGERPRINT/merges/2026-11-14+7-1b2c....json        the states of several parts merged, see ``tree``
    STORE/FINGERPRINT/damaged/2026-11-20@7.json               a run has found damage in the files of this version

A version is written once, and the first writer wins: who comes second takes the next number. Each version is whole in
itself, so it does not matter which of two runs was first.
"""

import ast
import datetime as dt
import hashlib
import io
import json
import posixpath
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import decode_source
from pathlib import Path
from typing import Any, NamedTuple

from fsspec.implementations.local import LocalFileSystem
from pydantic import Field

from skewless.document import Count, Document, Frozen
from skewless.documents.commit import CommittedFile
from skewless.documents.job import STATE_FORM
from skewless.documents.window import PartVersion
from skewless.errors import DocumentError, RunDirectoryError
from skewless.run.folder import sync_file, sync_folder
from skewless.run.storage import Storage
from skewless.spec.spec import JobSpec


class Fingerprint(Document):
    """What shapes the states of a job, by name: ``fingerprint.json`` of a store."""

    shapes: dict[str, str]
    """A checksum or a short text of each thing, by its name for people."""

    @property
    def name(self) -> str:
        """The folder of the states."""
        return self.digest()[:24]

    def is_like(self, other: "Fingerprint") -> bool:
        """Whether the states differ in nothing but the types of columns."""
        mine, theirs = (
            {name: value for name, value in one.shapes.items() if not name.startswith((*_TYPES, _LOOKUP))}
            for one in (self, other)
        )
        return mine == theirs

    @property
    def types_of_input(self) -> dict[str, str]:
        """The type of each column of the input that shapes the states."""
        of_map = any(name.startswith(_TYPES[1]) for name in self.shapes)
        prefix = _TYPES[of_map]
        return {
            str(ast.literal_eval(name.removeprefix(prefix))): kind
            for name, kind in self.shapes.items() if name.startswith(prefix)
        }  # fmt: skip


#: How the types of columns are called: of keys and arguments, and with a map, of what it reads.
_TYPES = ("the type of column ", "the type of input column ")
_LOOKUP = "the rows of the lookup "


def fingerprint_of(
    spec: JobSpec,
    types: Mapping[str, str],
    code: Mapping[str, str],
    fields: Mapping[str, str] | None = None,
    inputs: Mapping[str, str] | None = None,
    lookups: Mapping[str, str] | None = None,
) -> Fingerprint:
    """The fingerprint of the states of a job.

    ``types`` are the Spark SQL types of the columns that are keys or arguments, ``inputs``, with a map, of those that
    it reads. ``code`` has a checksum of the code of each aggregate and mapper. Of a table, ``fields`` tell what each
    column is that is read: a name may come to stand for another column. ``lookups`` are checksums of those whose
    changes make all parts anew. The version of Spark is no part of it: each
    reads the states of all others (``tests/system/test_spark_versions.py``).
    """
    given = spec.input
    # The types of what is read stand for themselves. Without a header, names say where in a line a column is.
    places = list(given.columns or ()) if given.format == "csv" and not given.header else None
    read = {"format": given.format, "options": given.reader_options, "columns": places}
    shapes: dict[str, object] = {
        "the form of states": str(STATE_FORM),
        "the unit of parts": spec.schedule.unit,
        "the key": spec.key,
        "how the input is read": read,
        "the map": spec.map.model_dump(mode="json") if spec.map else None,
        # In their order: state columns are numbered.
        "the names and order of aggregates": list(spec.aggregates),
        **{f"{_TYPES[0]}{name!r}": kind for name, kind in sorted(types.items())},
        **{f"{_TYPES[1]}{name!r}": kind for name, kind in sorted((inputs or {}).items())},
        **{f"aggregate {name!r}": call.model_dump(mode="json") for name, call in spec.aggregates.items()},
        **{f"the code of {name!r}": text for name, text in sorted(code.items())},
        **{f"the table's column {name!r}": text for name, text in sorted((fields or {}).items())},
        **{f"{_LOOKUP}{name!r}": text for name, text in sorted((lookups or {}).items())},
    }
    return Fingerprint(shapes={name: _short(value) for name, value in shapes.items()})


def code_alone(content: bytes) -> str:
    """A module's source without comments, texts that stand alone and empty lines, none of which shapes a state.

    Source that this Python cannot parse stays as it is.
    """
    try:
        source = decode_source(content)
        tree, tokens = ast.parse(source), list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (SyntaxError, ValueError, tokenize.TokenError):
        return content.decode(errors="backslashreplace")
    lines, gone = source.split("\n"), set[int]()
    for token in tokens:
        line, column = token.start
        if token.type == tokenize.COMMENT:
            lines[line - 1] = lines[line - 1][:column].rstrip()
        if token.type == tokenize.NL and not lines[line - 1].strip():
            gone.add(line)
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    for node in texts:
        first, last = node.lineno, node.end_lineno or node.lineno
        # A text beside other code stays, as in `def f(): "..."`.
        if lines[first - 1].lstrip()[:1] in {'"', "'"} and lines[last - 1][-1:] in {'"', "'"}:
            gone.update(range(first, last + 1))
    return "\n".join(line for number, line in enumerate(lines, start=1) if number not in gone).strip("\n")


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= 64 else hashlib.sha256(text.encode()).hexdigest()


FINGERPRINT = "fingerprint.json"
#: The step, in terms of ``Attempt``, whose files are states.
STATES_STEP = "states"
_VERSION = re.compile(r"(\d{4,})\.json")
#: As ``Part.name`` has it: what else lies there, such as ``.DS_Store``, is no part.
_PART = re.compile(r"\d{4}-\d\d-\d\d(T\d\db?)?")
#: ``map``, or what does as much in several threads: the result of each call, in the order of the arguments.
Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


class Numbered(NamedTuple):
    """A version of a part with its number."""

    number: int
    version: PartVersion


class MergedPart(Frozen):
    """A part whose states are in a node: ``states`` is the ``states_checksum`` of its version."""

    part: str
    states: str


class MergedParts(Document):
    """A node: the states of several parts, oldest first, as one state for each key."""

    fingerprint: str
    run: str
    parts: tuple[MergedPart, ...] = Field(min_length=2)
    rows: Count
    """That the states stand for: the sum of the rows of the versions, as ``rows_hash`` is of their hashes."""
    rows_hash: Count = 0
    states: tuple[CommittedFile, ...]
    """The files with the states, below the store. No key is in two of them."""


class DamagedVersion(Document):
    """A version whose files cannot be read to their end, and the run directory that found it."""

    name: str
    run: str


class StatesStore(Storage):
    """The standing states of one job and fingerprint. See ``Storage`` for its arguments."""

    def begin(self, fingerprint: Fingerprint) -> None:
        """Write down what shapes the states."""
        self.write_same(FINGERPRINT, fingerprint)

    def parts(self) -> list[str]:
        """The names of the parts that have states, sorted."""
        return sorted(name for name in names_in(self, "parts") if _PART.fullmatch(name))

    def kept_parts(self, most: int | None, now: dt.datetime) -> set[str]:
        """So many of the newest parts, or all; those that are to come are not counted, and are kept."""
        parts = self.parts()
        come = [part for part in parts if not is_to_come(part, now)]
        return set(parts) - set(come[: -most if most else 0])

    def numbers(self, part: str) -> list[int]:
        """The numbers of the versions of a part, ascending."""
        matches = (_VERSION.fullmatch(name) for name in names_in(self, f"parts/{part}/versions"))
        return sorted(int(match[1]) for match in matches if match)

    def version(self, part: str, number: int) -> PartVersion:
        """A version of a part; a ``RunDirectoryError`` if it is gone, a ``DocumentError`` if it is damaged."""
        name = version_path(part, number)
        version = self.read(name, PartVersion)
        self.require_its_own(name, f"a version of part {part}", version.part == part, f"one of {version.part[:80]!r}")
        return version

    def newest(self, part: str) -> tuple[Numbered | None, tuple[str, ...]]:
        """The newest version of a part that can be used, and why newer ones cannot.

        A version that is damaged, as its document or one of its files is, is passed over: the part can be reduced anew.
        """
        faults = list[str]()
        for number in reversed(self.numbers(part)):
            try:
                return Numbered(number, self.usable(part, number)), tuple(faults)
            except (DocumentError, RunDirectoryError) as err:
                faults.append(f"version {number} cannot be used ({err})")
        return None, tuple(faults)

    def usable(self, part: str, number: int) -> PartVersion:
        """A version of a part whose files have the lengths and footers that it names; errors as of ``version``."""
        version = self.version(part, number)
        if self.exists(aside := damaged_path(part, number)):
            raise RunDirectoryError.saying(
                self.path(aside), "a run has found damage in its files", "the part is reduced anew"
            )
        for file in version.states:
            self.verify(file)
        return version

    def commit_all(self, versions: Sequence[PartVersion], each: Each = map) -> list[Numbered]:
        """Add versions of parts, unless this run has added one that can be used: then that one counts.

        Their files are on the disk before they are, and so are their names before they count.
        """
        known = list(each(self._of_its_run, versions))
        new = [version for version, number in zip(versions, known, strict=True) if number is None]
        self._keep_on_disk([file.path for version in new for file in version.states], each)
        added = list(each(self._write_next, new))
        self._keep_on_disk([version_path(one.version.part, one.number) for one in added], each)
        left = iter(added)
        return [number or next(left) for number in known]

    def _of_its_run(self, version: PartVersion) -> Numbered | None:
        for number in reversed(self.numbers(version.part)):
            try:
                found = self.version(version.part, number)
                # Made of the same commits: an earlier attempt ended, or lost its lease, after this version.
                if found.run == version.run and found.files == version.files:
                    return Numbered(number, self.usable(version.part, number))
            except (DocumentError, RunDirectoryError):
                continue
        return None

    def _write_next(self, version: PartVersion) -> Numbered:
        number = max(self.numbers(version.part), default=0) + 1
        while not self.write_once(version_path(version.part, number), version):
            number += 1
        return Numbered(number, version)

    def _keep_on_disk(self, paths: Iterable[str], each: Each = map) -> None:
        """See to it that files and their names outlast a loss of power, as on an object store they do at once."""
        if not isinstance(self.fs, LocalFileSystem):
            return
        files, folders = list[Path](), set[Path]()
        for path in (Path(self.root, path) for path in paths):
            noted = path.with_name(f".{path.name}.crc")  # by Hadoop, which believes it more than the file
            files += filter(Path.exists, (path, noted))
            folders |= {Path(self.root, folder) for folder in path.relative_to(self.root).parents}
        list(each(sync_file, files))
        list(each(sync_folder, sorted(folders)))

    def set_aside(self, part: str, number: int, run: str) -> None:
        """Say that a version cannot be used."""
        self.write_once(damaged_path(part, number), DamagedVersion(name=f"{part}@{number}", run=run))

    def merges(self) -> set[str]:
        """The names of the nodes that are kept."""
        return {name.removesuffix(".json") for name in names_in(self, _MERGES) if name.endswith(".json")}

    def merge(self, name: str) -> MergedParts:
        """A node; errors as of ``version``."""
        merge = self.read(merge_path(name), MergedParts)
        own = node_name(merge.parts)
        self.require_its_own(merge_path(name), f"merged states {name}", own == name, f"{own[:80]!r}")
        return merge

    def usable_merge(self, name: str) -> MergedParts:
        """A node whose files have the lengths and footers that it names; errors as of ``version``."""
        merge = self.merge(name)
        for file in merge.states:
            self.verify(file)
        return merge

    def keep_merges(self, merges: Sequence[MergedParts], each: Each = map) -> None:
        """Keep nodes, unless there are some of these states; arguments as of ``commit_all``."""
        self._keep_on_disk([file.path for merge in merges for file in merge.states], each)
        list(each(lambda merge: self.write_once(merge_path(node_name(merge.parts)), merge), merges))

    def forget_merge(self, name: str) -> None:
        """Have a node made anew. Whoever reads it now can go on: a prune removes its files a while later."""
        with suppress(FileNotFoundError):
            self.fs.rm_file(f"{self.root}/{merge_path(name)}")


def open_states(location: str, fingerprint: Fingerprint) -> StatesStore:
    """The store of a fingerprint below the folder of a job's states; nothing is written."""
    return StatesStore(posixpath.join(location, fingerprint.name))


def other_fingerprints(location: str, but: str) -> Iterator[Fingerprint]:
    """What shaped the other states that a job has."""
    folder = Storage(location)
    for name in sorted(names_in(folder, "")):
        if name != but and folder.exists(f"{name}/{FINGERPRINT}"):
            yield folder.read(f"{name}/{FINGERPRINT}", Fingerprint)


def why_anew(location: str, fingerprint: Fingerprint) -> str:
    """Why there are no states of a fingerprint, in words: there are none at all, or what shapes them has changed."""
    try:
        others = [other.shapes for other in other_fingerprints(location, fingerprint.name)]
    except (DocumentError, RunDirectoryError) as err:
        return f"its states begin anew, and what changed cannot be told ({err})"
    if not others:
        return "no states were kept before"
    now = fingerprint.shapes
    changed = [[name for name in dict.fromkeys([*one, *now]) if one.get(name) != now.get(name)] for one in others]
    _, nearest = min((len(names), names) for names in changed)
    return f"its states begin anew, as this changed: {', '.join(nearest)}"


def is_to_come(part: str, now: dt.datetime) -> bool:
    """Whether the day of a part is still to come, in every time zone: somebody has named a day by mistake.

    >>> now = dt.datetime(2026, 11, 20, 23, tzinfo=dt.UTC)
    >>> [is_to_come(part, now) for part in ("2026-11-21T13", "2026-11-22", "2099-01-01")]
    [False, True, True]
    """
    tomorrow = now.astimezone(dt.UTC).date() + dt.timedelta(days=1)
    return part.partition("T")[0] > tomorrow.isoformat()


def version_path(part: str, number: int) -> str:
    """Where a version of a part is, below the store of its fingerprint."""
    return f"parts/{part}/versions/{number:04d}.json"


_MERGES, DAMAGED = "merges", "damaged"


def merge_path(name: str) -> str:
    """Where a node is, below the store of its fingerprint."""
    return f"{_MERGES}/{name}.json"


def damaged_path(part: str, number: int) -> str:
    """Where it is said that a version is damaged."""
    return f"{DAMAGED}/{part}@{number}.json"


def node_name(parts: Sequence[MergedPart]) -> str:
    """The name of the merged states of some parts: equal states have equal names, in any run."""
    content = "\n".join(f"{one.part} {one.states}" for one in parts)
    return f"{parts[0].part}+{len(parts) - 1}-{hashlib.sha256(content.encode()).hexdigest()[:24]}"


def states_checksum(version: PartVersion) -> str:
    """SHA-256 of the list of a version's files, in hex: files have the name of the attempt that wrote them."""
    listed = "\n".join(f"{file.path} {file.checksum}" for file in version.states)
    return hashlib.sha256(listed.encode()).hexdigest()


def names_in(storage: Storage, folder: str) -> list[str]:
    """The names in a folder; none if it is not there."""
    try:
        entries = storage.fs.ls(f"{storage.root}/{folder}".rstrip("/"), detail=False)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [str(entry).rstrip("/").rpartition("/")[2] for entry in entries]
