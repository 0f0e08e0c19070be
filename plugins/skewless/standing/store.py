"""Where standing states are kept: one folder for each job and fingerprint, with versions of each part.

    STORE/FINGERPRINT/fingerprint.json
    STORE/FINGERPRINT/parts/2026-11-20/versions/0007.json     the units, the rows, and the files with states
    STORE/FINGERPRINT/states/attempts/ID/...                  the files, which count once a version names them

A version is written once, and the first writer wins: who comes second takes the next number. Each version is whole in
itself, so it does not matter which of two runs was first.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

from skewless.documents.window import PartVersion
from skewless.errors import DocumentError, RunDirectoryError
from skewless.run.storage import Storage
from skewless.standing.fingerprint import Fingerprint, changed_shapes

FINGERPRINT = "fingerprint.json"
#: The step, in terms of ``Attempt``, whose files are states.
STATES_STEP = "states"
_VERSION = re.compile(r"(\d{4,})\.json")


class Numbered(NamedTuple):
    """A version of a part with its number."""

    number: int
    version: PartVersion


class StatesStore(Storage):
    """The standing states of one job and fingerprint. See ``Storage`` for its arguments."""

    def begin(self, fingerprint: Fingerprint) -> None:
        """Write down what shapes the states."""
        self.write_same(FINGERPRINT, fingerprint)

    def parts(self) -> list[str]:
        """The names of the parts that have states, sorted."""
        return sorted(names_in(self, "parts"))

    def numbers(self, part: str) -> list[int]:
        """The numbers of the versions of a part, ascending."""
        matches = (_VERSION.fullmatch(name) for name in names_in(self, f"parts/{part}/versions"))
        return sorted(int(match[1]) for match in matches if match)

    def version(self, part: str, number: int) -> PartVersion:
        """A version of a part.

        Raises:
            DocumentError: it is damaged, or that of another part.
            RunDirectoryError: it is gone.
        """
        name = version_path(part, number)
        version = self.read(name, PartVersion)
        self.require_its_own(name, f"a version of part {part}", version.part == part, f"one of {version.part[:80]!r}")
        return version

    def newest(self, part: str) -> tuple[Numbered | None, tuple[str, ...]]:
        """The newest version of a part that can be used, and why newer ones cannot.

        A version that is damaged, or whose files are not there any more, is passed over: the part can be reduced anew.
        """
        faults = []
        for number in reversed(self.numbers(part)):
            try:
                version = self.version(part, number)
            except (DocumentError, RunDirectoryError) as err:
                faults.append(f"version {number} cannot be used ({err})")
                continue
            lost = next((one.path for one in version.states if not self._is_there(one.path, one.size_bytes)), None)
            if lost is None:
                return Numbered(number, version), tuple(faults)
            faults.append(f"version {number} cannot be used: its file {lost} is gone or cut")
        return None, tuple(faults)

    def _is_there(self, path: str, size_bytes: int) -> bool:
        try:
            return int(self.fs.size(f"{self.root}/{path}")) == size_bytes
        except OSError:
            return False

    def commit(self, version: PartVersion) -> Numbered:
        """Add a version of a part, unless this run has added one: then that one counts.

        Returns:
            The version that counts for this run, with its number.
        """
        numbers = self.numbers(version.part)
        for number in reversed(numbers):
            try:
                found = self.version(version.part, number)
            except (DocumentError, RunDirectoryError):
                continue
            # Its states were made of the same commits: an earlier attempt ended, or lost its lease, after this version.
            if found.run == version.run and found.files == version.files:
                return Numbered(number, found)
        number = (numbers[-1] if numbers else 0) + 1
        while not self.write_once(version_path(version.part, number), version):
            number += 1
        return Numbered(number, version)


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
        others = [changed_shapes(one, fingerprint) for one in other_fingerprints(location, fingerprint.name)]
    except (DocumentError, RunDirectoryError) as err:
        return f"its states begin anew, and what changed cannot be told ({err})"
    if not others:
        return "no states were kept before"
    _, nearest = min((len(names), names) for names in others)
    return f"its states begin anew, as this changed: {', '.join(nearest)}"


def version_path(part: str, number: int) -> str:
    """Where a version of a part is, below the store of its fingerprint."""
    return f"parts/{part}/versions/{number:04d}.json"


def names_in(storage: Storage, folder: str) -> list[str]:
    """The names in a folder; none if it is not there."""
    try:
        entries = storage.fs.ls(f"{storage.root}/{folder}".rstrip("/"), detail=False)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [str(entry).rstrip("/").rpartition("/")[2] for entry in entries]
