"""The store on an object store, by objects that are created and never changed: ``If-None-Match: *`` alone.

    ROOT/KEY/00000042   version 42 of a key: who wrote it, upon which version, and the value, or that it is deleted

The version with the highest number is the one that counts. Who has read version 42 creates 43 under the condition that
there is none, so of all who have read 42 one succeeds. A deletion is a version, too, so numbers only grow.

Old versions are removed, and that must not let somebody who has slept since version 42 create 43 anew. So a writer
looks for higher numbers after it has written. If there is none, its version counts: of all numbers that were ever
given, the highest is never removed. If 44 is there, it says whether it was written upon this 43. If only later ones
are left, nobody can say, and the call fails as one whose answer was lost: callers read again in either case.

A version that was seen as the highest is never read again, as it cannot change while it is the highest.
"""

import contextlib
import json
import posixpath
import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from skewless_leases.store import LONGEST_KEY_BYTES, LeaseError, StoreError, Versioned, as_store_error, bad_key

try:
    import obstore

    from skewless.run.object_client import answered, content_of, create, delete, opened, require_first_writer
except ImportError:
    raise StoreError.saying(
        "leases on an object store", "the package obstore is not installed", "install skewless[object-stores]"
    ) from None

#: So many versions of a key stay, for those who wrote one and look for its successors.
KEPT_VERSIONS = 32
#: How often it is looked anew for a version that was removed between a listing and a read.
_MOST_LOOKS = 100
#: How often a request is sent again whose connection was lost, or that was answered by 5xx.
_RETRIES = 8
_AT_A_TIME = 8
_NUMBER = re.compile(r"\d{8,}")


class _Version(NamedTuple):
    """A version of a key."""

    number: int
    writer: str
    before: str
    """The writer of the version that this one was written upon; empty for the first."""
    value: bytes | None
    """What is stored; None if the key is deleted."""

    @property
    def name(self) -> str:
        return f"{self.number}-{self.writer}"

    def encoded(self) -> bytes:
        head = {"writer": self.writer, "before": self.before, "deleted": self.value is None}
        return json.dumps(head).encode() + b"\n" + (self.value or b"")


class ObjectStore:
    """A KeyValueStore on an object store.

    Args:
        root: a URL like ``s3://BUCKET/FOLDER``. Credentials come from the environment.
        answer_seconds: a server that does not answer for this long counts as gone, for this call.
    """

    def __init__(self, root: str, *, answer_seconds: float) -> None:
        self.root = root.rstrip("/")
        scheme, _, rest = self.root.partition("://")
        place, _, self._folder = rest.partition("/")
        self._seen: dict[str, _Version] = {}
        with as_store_error(self.root, "it"):
            # Connections that are lost are made anew while a server may still answer, and none after that.
            self._bucket: Any = opened(
                scheme, place, _RETRIES, answer_seconds, answer_seconds / 4, answer_seconds, answer_seconds
            )

    def get(self, key: str) -> Versioned | None:
        """The value of a key, or None."""
        with as_store_error(self.root, "it"):
            return _row(self._highest(self._below(key)))

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        """Write if the key still has that version; the new version, or None."""
        with as_store_error(self.root, "it"):
            written = self._write(self._below(key), value, expected)
        return written.name if written else None

    def delete(self, key: str, expected: str) -> bool:
        """Remove if the key still has that version."""
        with as_store_error(self.root, "it"):
            return self._write(self._below(key), None, expected) is not None

    def scan(self) -> dict[str, Versioned]:
        """All keys."""
        with as_store_error(self.root, "it"):
            numbers: dict[str, list[int]] = {}
            for path in self._listed(self._folder):
                below, _, name = path.rpartition("/")
                if _NUMBER.fullmatch(name):
                    numbers.setdefault(below, []).append(int(name))
            with ThreadPoolExecutor(_AT_A_TIME) as pool:
                versions = list(pool.map(lambda listed: self._highest(*listed), numbers.items()))
        rows = {unquote(below.rpartition("/")[2]): _row(last) for below, last in zip(numbers, versions, strict=True)}
        return {key: row for key, row in rows.items() if row is not None}

    def _below(self, key: str) -> str:
        name = quote(key, safe="").replace(".", "%2E")
        if not key or len(name) > LONGEST_KEY_BYTES:
            raise bad_key(self.root, key)
        return posixpath.join(self._folder, name)

    def _write(self, below: str, value: bytes | None, expected: str | None) -> _Version | None:
        require_first_writer(f"store {self.root}", self._bucket, self._folder)
        last = self._expected(below, expected)
        if last is None:
            return None
        mine = _Version(last.number + 1, secrets.token_hex(12), last.writer, value)
        if not create(self._bucket, _path(below, mine.number), mine.encoded()):  # which names its writer
            return None
        later = self._later(below, mine.number)
        if later and not self._was_mine(below, mine, later):
            return None
        if not later:
            self._seen[below] = mine
        self._forget_old(below, mine.number)
        return mine

    def _expected(self, below: str, expected: str | None) -> _Version | None:
        """The version to write upon, if that is the expected one; number 0 where there was none ever."""
        seen = self._seen.get(below)
        if expected is not None and seen is not None and seen.name == expected:
            return None if seen.value is None else seen  # if it is not the highest any more, its successor exists
        highest = self._highest(below)
        if expected is None:
            if highest is None:
                return _Version(0, "", "", None)
            return highest if highest.value is None else None
        return highest if highest and highest.value is not None and highest.name == expected else None

    def _was_mine(self, below: str, mine: _Version, later: list[int]) -> bool:
        """Whether versions after one that was just written were written upon it. If not, it is removed."""
        if mine.number + 1 in later and (successor := self._read(below, mine.number + 1)) is not None:
            if successor.before == mine.writer:
                return True
            delete(self._bucket, [_path(below, mine.number)])
            return False
        raise StoreError.saying(
            f"store {self.root}", "others have written since, and nobody can say whether this write came before them",
            "read again",
        )  # fmt: skip

    def _later(self, below: str, number: int) -> list[int]:
        return [later for later in self._numbers(below, _path(below, number)) if later > number]

    def _forget_old(self, below: str, number: int) -> None:
        """Remove versions that nobody looks for any more; every few versions, as each removal is a request."""
        if number % (KEPT_VERSIONS // 2):
            return
        old = [_path(below, listed) for listed in self._numbers(below) if listed <= number - KEPT_VERSIONS]
        with contextlib.suppress(OSError):  # the next one does
            delete(self._bucket, old)

    def _highest(self, below: str, numbers: list[int] | None = None) -> _Version | None:
        for _ in range(_MOST_LOOKS):
            highest = max(self._numbers(below) if numbers is None else numbers, default=0)
            if not highest:
                return None
            seen = self._seen.get(below)
            if seen is not None and seen.number == highest:
                return seen
            version = self._read(below, highest)
            if version is not None:
                self._seen[below] = version
                return version
            numbers = None  # it was removed since it was listed, as there are later ones
        raise StoreError.saying(f"store {self.root}", "a version that is listed cannot be read", "look who removes it")

    def _numbers(self, below: str, after: str | None = None) -> list[int]:
        names = (path.rpartition("/")[2] for path in self._listed(below, after))
        return [int(name) for name in names if _NUMBER.fullmatch(name)]

    def _listed(self, below: str, after: str | None = None) -> list[str]:
        with answered():
            pages = list(obstore.list(self._bucket, below or None, offset=after))
        return [str(entry["path"]) for page in pages for entry in page]

    def _read(self, below: str, number: int) -> _Version | None:
        content = content_of(self._bucket, _path(below, number))
        if content is None:
            return None
        try:
            head, _, value = content.partition(b"\n")
            about = json.loads(head)
            return _Version(number, str(about["writer"]), str(about["before"]), None if about["deleted"] else value)
        except (ValueError, LookupError, TypeError):
            required, hint = "an object that a lease has written", "remove what is not ours"
            raise LeaseError(f"store {self.root}", required, repr(content[:80]), hint) from None


def _path(below: str, number: int) -> str:
    return f"{below}/{number:08d}"


def _row(version: _Version | None) -> Versioned | None:
    return None if version is None or version.value is None else Versioned(version.value, version.name)
