"""Where the nights of a job are kept: beside its output, so that they outlast run directories.

FOLDER/0007.json      all that is kept, whole; the highest number counts

A change is the next number, and the first writer wins: who comes second changes what the first has written. A few
numbers before the newest stay, and the older ones are removed. Each hour of the day has a folder of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

from skewless.documents.nights import JobNights
from skewless.errors import RunDirectoryError
from skewless.run.storage import Storage

#: So many documents stay.
KEPT = 4
_NUMBER = re.compile(r"(\d{4,})\.json")


class NightsStore(Storage):
    """The nights of a job. See ``Storage`` for its arguments."""

    def newest(self) -> JobNights:
        """What is kept; a ``DocumentError`` if the newest document is damaged: without it, the one before counts."""
        return self._listed()[1]

    def change(self, changed: Callable[[JobNights], JobNights]) -> JobNights:
        """Change what is kept, and return it. The change must be one that has no effect when it is made again.

        It is looked at again after it was written: a writer that slept for long may have taken a number that others
        had gone past and removed.
        """
        while True:
            numbers, now = self._listed()
            if (then := changed(now)) == now:
                return now
            number = numbers[-1] + 1 if numbers else 1
            if not numbers:  # as the umask says: other users publish and validate, too
                self.fs.makedirs(self.root, exist_ok=True)
            if self.write_once(_name(number), then):
                for old in numbers[: -(KEPT - 1)]:
                    with suppress(OSError):
                        self.fs.rm_file(f"{self.root}/{_name(old)}")

    def _listed(self) -> tuple[list[int], JobNights]:
        """The numbers that there are, and the document of the last one; listed again if others removed it meanwhile."""
        while numbers := self._numbers():
            try:
                return numbers, self.read(_name(numbers[-1]), JobNights)
            except RunDirectoryError:
                if numbers[-1] in self._numbers():
                    raise
        return [], JobNights()

    def _numbers(self) -> list[int]:
        try:
            entries = self.fs.ls(self.root, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        matches = (_NUMBER.fullmatch(str(entry).rpartition("/")[2]) for entry in entries)
        return sorted(int(match[1]) for match in matches if match)


def _name(number: int) -> str:
    return f"{number:04d}.json"
