"""The store at an address; and the one in a folder of a local or shared file system, by rename alone.

    ROOT/heads/KEY/VERSION   an empty file, the only one in its folder: its name is the key's version
    ROOT/values/VERSION      what is stored under that version
    ROOT/births/VERSION/     a head's folder before it is in its place

A rename fails if its source is gone, so renaming ``heads/KEY/OLD`` to ``heads/KEY/NEW`` is a
compare-and-set: of all who have read OLD one succeeds. A folder that is renamed over another one
succeeds only if that is empty, so a new head's folder appears only where there is none. The value
is in its place before the head names it. A process that is killed between two calls leaves a value or a birth that no
head names: a few bytes, but nothing half written and no lock.

Bounds: a key is at most 200 bytes long, quoted. On NFS a rename whose answer was lost may be
reported as failed although it happened; the writer then looks for its own head before it gives up.
"""

import contextlib
import errno
import os
import secrets
from pathlib import Path
from urllib.parse import quote, unquote

from skewless.run import OBJECT_SCHEMES
from skewless_leases.store import LONGEST_KEY_BYTES, KeyValueStore, StoreError, Versioned, as_store_error, bad_key

#: Of a key that others keep writing to while it is read.
MOST_LOOKS = 1000


def open_store(address: str, *, durable: bool = True, answer_seconds: float = 5.0) -> KeyValueStore:
    """The store at an address.

    Args:
        address: the path of a folder on a local or shared file system; or ``s3://BUCKET/FOLDER`` (``gs://``,
            ``abfss://`` alike).
        durable: of a folder: whether a write is on the disk before it is answered. Heartbeats need not
            be, and on a busy disk must not wait for it.
        answer_seconds: of an object store: how long a call waits for an answer.
    """
    if address.partition("://")[0] in OBJECT_SCHEMES:
        from skewless_leases.object_store import ObjectStore  # noqa: PLC0415  # its client need not be installed

        return ObjectStore(address, answer_seconds=answer_seconds)
    return FileStore(address, durable=durable)


class FileStore:
    """A KeyValueStore in a folder.

    Args:
        root: the folder; it is made if it is not there.
        durable: whether a write is on the disk before it is answered.
    """

    def __init__(self, root: str, *, durable: bool = True) -> None:
        self.root, self.durable = Path(root), durable
        self._heads, self._values, self._births = (self.root / name for name in ("heads", "values", "births"))
        with as_store_error(self.root, "its folder"):
            for folder in (self._heads, self._values, self._births):
                folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> Versioned | None:
        """The value of a key, or None."""
        with as_store_error(self.root, "its folder"):
            return self._read(self._head(key))

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        """Write if the key still has that version; the new version, or None."""
        head, version = self._head(key), secrets.token_hex(12)
        with as_store_error(self.root, "its folder"):
            self._write_value(version, value)
            done = self._create(head, version) if expected is None else _rename(head / expected, head / version)
            if not done:
                (self._values / version).unlink(missing_ok=True)
                return None
            self._sync(head)
            if expected is not None:
                (self._values / expected).unlink(missing_ok=True)
        return version

    def delete(self, key: str, expected: str) -> bool:
        """Remove if the key still has that version."""
        head = self._head(key)
        grave = self._births / f"{expected}-deleted"
        with as_store_error(self.root, "its folder"):
            if not _rename(head / expected, grave):
                return False
            self._sync(head)
            (self._values / expected).unlink(missing_ok=True)
            grave.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # somebody has created the key anew
                head.rmdir()
        return True

    def scan(self) -> dict[str, Versioned]:
        """All keys."""
        with as_store_error(self.root, "its folder"):
            rows = {unquote(head.name): self._read(head) for head in list(self._heads.iterdir())}
        return {key: row for key, row in rows.items() if row}

    def _head(self, key: str) -> Path:
        name = quote(key, safe="")
        if not key.strip(".") or len(name) > LONGEST_KEY_BYTES:
            raise bad_key(self.root, key)
        return self._heads / name

    def _read(self, head: Path) -> Versioned | None:
        before = None
        for _ in range(MOST_LOOKS):
            try:
                versions = [path.name for path in head.iterdir()]
            except FileNotFoundError:
                return None
            if not versions:
                return None
            if len(versions) > 1:  # the listing fell into a rename, and shows both names
                continue
            version = versions[0]
            try:
                return Versioned((self._values / version).read_bytes(), version)
            except FileNotFoundError:
                if version == before:  # not overtaken by a writer: the disk has lost it
                    return Versioned(b"", version)
                before = version
        raise StoreError(
            str(head), "a folder with one file in it", f"{len(versions)} of them", "remove what is not ours"
        )

    def _write_value(self, version: str, value: bytes) -> None:
        path = self._values / version
        try:
            with path.open("xb") as out:
                out.write(value)
                if self.durable:
                    out.flush()
                    os.fsync(out.fileno())
        except OSError:  # a full disk does not get fuller with each beat
            path.unlink(missing_ok=True)
            raise
        self._sync(self._values)

    def _create(self, head: Path, version: str) -> bool:
        birth = self._births / version
        birth.mkdir()
        (birth / version).touch()
        self._sync(birth)
        try:
            birth.rename(head)
        except OSError as err:
            if (head / version).exists():
                return True
            (birth / version).unlink(missing_ok=True)
            birth.rmdir()
            if err.errno in {errno.ENOTEMPTY, errno.EEXIST}:
                return False
            raise
        self._sync(self._heads)
        return True

    def _sync(self, folder: Path) -> None:
        if not self.durable:
            return
        with contextlib.suppress(FileNotFoundError):  # deleted since, by somebody who has read what we wrote
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _rename(source: Path, target: Path) -> bool:
    try:
        source.rename(target)
    except FileNotFoundError:
        return target.exists()
    return True
