"""Object stores: the client and its files, what its errors mean in a few words, and how the first writer wins.

Credentials come from the environment of each process alone (``AWS_ACCESS_KEY_ID``, an instance profile, ...). They are
in no document, no plan and no message.

The first writer wins by a put under the condition that there is no object (``If-None-Match: *``). A store that ignores
the condition lets every writer win. So each process lets two writers of one object compete before it trusts a bucket,
and refuses it if both have won.
"""

import datetime as dt
import errno
import io
import os
import posixpath
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.fsspec import BufferedFile, FsspecStore
from obstore.store import from_url

from skewless.errors import RunDirectoryError

if TYPE_CHECKING:
    from obstore import UpdateVersion

#: A request that was answered by 5xx, or whose connection was lost, is sent again: at most so often, and for so long in
#: all. The client draws its pauses, which grow slowly: 8 tries were over after 2 seconds, 40 are after 14 to 40.
RETRIES, RETRY_SECONDS, LONGEST_PAUSE_SECONDS = 40, 60.0, 8.0
#: How the variables of the environment begin that a client is set up by.
SETTINGS = ("AWS_", "GOOGLE_", "AZURE_")
#: The variables of the environment that may name a server.
ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
#: For the answer to one request, and for a connection.
ANSWER_SECONDS, CONNECT_SECONDS = 60.0, 10.0
#: S3 may answer that another request for the same key is on its way (409); if nothing came of that, it is asked again.
TRIES = 8
#: The last part of the names of the objects of which two writers compete; they are removed at once.
PROBE = ".skewless-probe-"

#: The clients of buckets that were found to honour a condition, each with that.
_trusted: list[tuple[Any, str]] = []

_STATUS = re.compile(r"status code: (\d{3}[\w ]*)")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
#: The client's own words for a request without an answer, behind the address and its counts.
_CAUSE = re.compile(r" - ([^-\n]{1,160})$")


def bucket(scheme: str, place: str) -> Any:
    """The client of a bucket or ``container@account...``; an ``OSError`` if the environment does not tell."""
    settings = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith(SETTINGS)))
    return _bucket(scheme, place, settings, os.getpid())


@lru_cache(maxsize=64)
def _bucket(scheme: str, place: str, settings: tuple[tuple[str, str], ...], process: int) -> Any:
    del settings, process  # connections are not shared with a process that was forked
    return opened(scheme, place, RETRIES, RETRY_SECONDS, LONGEST_PAUSE_SECONDS, ANSWER_SECONDS, CONNECT_SECONDS)


def opened(
    scheme: str, place: str, retries: int, retry_seconds: float, pause_seconds: float, answer_seconds: float,
    connect_seconds: float,
) -> Any:  # fmt: skip
    """A client of its own of a bucket or container, that asks so often and waits so long; errors as of ``bucket``."""
    # An environment that names a server without TLS means it.
    in_clear = any(os.environ.get(name, "").startswith("http://") for name in ENDPOINTS)
    with answered():
        return from_url(
            f"{'gs' if scheme == 'gcs' else scheme}://{place}",
            # Not every S3 server has a request that removes many objects.
            config={"disable_bulk_delete": True} if scheme in {"s3", "s3a"} else {},
            client_options={
                "timeout": f"{answer_seconds:.3f}s", "connect_timeout": f"{connect_seconds:.3f}s",
                "allow_http": in_clear,
            },
            retry_config={
                "max_retries": retries, "retry_timeout": dt.timedelta(seconds=retry_seconds),
                "backoff": {"max_backoff": dt.timedelta(seconds=pause_seconds)},
            },
        )  # fmt: skip


@contextmanager
def answered(path: str = "") -> Iterator[None]:
    """Errors of the client as ``OSError`` and its kinds, in a few words and without what the store sent."""
    try:
        yield
    except FileNotFoundError as err:
        if "NoSuchBucket" in str(err) or "ContainerNotFound" in str(err):
            raise OSError(errno.ENODEV, "there is no such bucket") from None
        raise FileNotFoundError(errno.ENOENT, "no such object", path) from None
    except (AlreadyExistsError, PreconditionError):
        raise FileExistsError(errno.EEXIST, "the object exists", path) from None
    except (PermissionDeniedError, UnauthenticatedError, PermissionError) as err:
        raise PermissionError(errno.EACCES, f"the store does not let us in: {_reason(err)}") from None
    except BaseError as err:
        if re.search(r"answered 40[13]\b", reason := _reason(err)):
            raise PermissionError(errno.EACCES, f"the store does not let us in: {reason}") from None
        raise OSError(errno.EIO, reason) from None


def _reason(err: Exception) -> str:
    message = str(err).partition("\n\nDebug source")[0]
    if status := _STATUS.search(message):
        code = _CODE.search(message)
        return f"the store answered {' '.join(status[1].split())}{f', {code[1]}' if code else ''}"
    cause = _CAUSE.search(message.partition("\n")[0].strip())
    return f"the store did not answer: {cause[1].strip()}" if cause else f"the client failed with {type(err).__name__}"


def delete(store: Any, keys: list[str]) -> None:
    """Remove objects; those that are gone are no error."""
    with answered():
        obstore.delete(store, keys)


def content_of(store: Any, key: str) -> bytes | None:
    """The bytes of an object; None if there is none."""
    try:
        with answered(key):
            return bytes(obstore.get(store, key).bytes())
    except FileNotFoundError:
        return None


def create(store: Any, key: str, content: bytes) -> bool:
    """Write an object unless there is one; whether the object has this content.

    After a lost answer, the client finds its own object there. So contents must tell writers apart, as commits do.
    """
    for _ in range(TRIES):
        try:
            with answered(key):
                obstore.put(store, key, content, mode="create")
        except OSError as err:
            present = content_of(store, key)  # as nobody has said that it was not written
            if present is not None:
                return present == content
            if not isinstance(err, FileExistsError):
                raise
        else:
            return True
        # The object is not there: another writer's request was on its way, and has failed, or it was removed.
    raise OSError(errno.EBUSY, "the store says again and again that the object exists, and it does not")


class Known(NamedTuple):
    """An object as it was read: its bytes, and what tells its versions apart."""

    content: bytes
    version: "UpdateVersion"


def require_first_writer(place: str, store: Any, folder: str) -> None:
    """Let two writers compete in a bucket, once for each client; a ``RunDirectoryError`` if both have won."""
    _require_one_winner(place, store, folder, "If-None-Match", lambda key, content: create(store, key, content))


def _require_one_winner(
    place: str, store: Any, folder: str, condition: str, write: Callable[[str, bytes], bool]
) -> None:
    if any(store is other and condition == honoured for other, honoured in _trusted):
        return
    key = posixpath.join(folder, f"{PROBE}{secrets.token_hex(8)}")
    won = [write(key, content) for content in (b"first", b"second")]
    delete(store, [key])
    if won != [True, False]:
        raise RunDirectoryError.saying(
            place, f"two writers of one object have both won, as the store ignores the condition {condition}",
            "choose a store that honours it, or a folder of a shared file system",
        )  # fmt: skip
    _trusted.append((store, condition))


#: A file that is not larger is read in one request, and is in memory until it is uploaded.
_BLOCK = 1 << 20
#: The size of a part of an object that is uploaded in parts, and how many are on their way at a time.
_PART, _PARTS_AT_A_TIME = 16 << 20, 4
#: The same where an object is begun and completed later: the least that S3 takes, as up to that much is in memory.
_LEAST_PART = 5 << 20


class ObjectFiles(FsspecStore):  # type: ignore[misc]  # as fsspec, it counts as untyped
    """The files of all buckets of a scheme, like ``s3a``: written whole or not at all, and not cached.

    A path in it is ``BUCKET/KEY``.

    All methods are fsspec's own, with its arguments. They raise ``OSError`` and its kinds, as a local file system. That
    of obstore raises errors of its own, loads a file that it copies into memory, and uploads the file of a writer that
    has failed.
    """

    #: The environment may name another server by now.
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(name) for name in path]
        return str(path).rpartition("://")[2].rstrip("/")

    def _construct_store(self, bucket_name: str) -> Any:
        return bucket(str(self.protocol), bucket_name)

    def _split(self, path: str) -> tuple[Any, str, str]:
        place, key = self._split_path(self._strip_protocol(path))
        return self._construct_store(place), place, key

    def create(self, path: str, content: bytes) -> bool:
        """See ``create``; a ``RunDirectoryError`` if the store lets every writer win."""
        store, place, key = self._split(path)
        require_first_writer(f"{self.protocol}://{place}", store, posixpath.dirname(key))
        return create(store, key, content)

    def require_one_replaces(self, path: str) -> None:
        """Let two writers replace one object of a folder; a ``RunDirectoryError`` if both have won."""
        store, place, folder = self._split(path)
        before: list[Known | None] = []

        def write(key: str, content: bytes) -> bool:
            if not before:
                create(store, key, b"before")
                before.append(self.known(f"{place}/{key}"))
            return self.replace(f"{place}/{key}", content, before[0])

        _require_one_winner(f"{self.protocol}://{place}", store, folder, "If-Match", write)

    def known(self, path: str) -> Known | None:
        """An object with what tells its versions apart; None if there is none."""
        store, _place, key = self._split(path)
        try:
            with answered(key):
                answer = obstore.get(store, key)
                facts = {name: answer.meta[name] for name in ("e_tag", "version") if answer.meta[name] is not None}
                return Known(bytes(answer.bytes()), facts)  # type: ignore[arg-type]
        except FileNotFoundError:
            return None

    def replace(self, path: str, content: bytes, before: Known | None) -> bool:
        """Write an object in the place of the one that was read, or of none; whether the object has this content.

        Contents must tell writers apart, as with ``create``.
        """
        store, _place, key = self._split(path)
        if before is None:
            return create(store, key, content)
        try:
            with answered(key):
                obstore.put(store, key, content, mode=before.version)
        except OSError as err:
            mine = content_of(store, key) == content  # the answer to a request that was carried out may have been lost
            if not mine and not isinstance(err, FileExistsError):
                raise
            return mine
        return True

    def begin(self, path: str) -> "BegunObject":
        """Begin an object, which there is once it is completed."""
        store, _place, key = self._split(path)
        return BegunObject(path, obstore.open_writer(store, key, buffer_size=_LEAST_PART))

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        store, place, key = self._split(path)
        if key:
            with suppress(FileNotFoundError), answered(path):
                return _facts(place, await obstore.head_async(store, key))
        await self._ls(path)
        return {"name": path, "size": 0, "type": "directory"}

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        with answered(path):
            return await super()._ls(self._strip_protocol(path), detail)

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **_: Any
    ) -> Any:  # fmt: skip
        """All objects below a folder, by one listing; fsspec's own passes over folders that it cannot list."""
        path = self._strip_protocol(path)
        store, place, key = self._split(path)
        with answered(path):
            entries = [_facts(place, entry) for page in obstore.list(store, key or None) for entry in page]
        if not entries and key:
            with suppress(FileNotFoundError), answered(path):
                entries = [_facts(place, obstore.head(store, key))]
        below = {entry["name"]: entry for entry in entries}
        if withdirs:
            for name in list(below):
                while len(name := posixpath.dirname(name)) > len(path):
                    below[name] = {"name": name, "size": 0, "type": "directory"}
        if maxdepth is not None:
            below = {name: entry for name, entry in below.items() if name[len(path) :].count("/") <= maxdepth}
        return dict(sorted(below.items())) if detail else sorted(below)

    async def _find(self, *args: Any, **kwargs: Any) -> Any:
        return self.find(*args, **kwargs)  # of ``glob``

    async def _cat_file(self, path: str) -> bytes:
        store, _, key = self._split(path)
        with answered(path):
            content: bytes = (await (await obstore.get_async(store, key)).bytes_async()).to_bytes()
        return content

    def get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        """Copy an object into a local file."""
        store, _place, key = self._split(rpath)
        with answered(rpath), Path(lpath).open("wb") as out:
            out.writelines(obstore.get(store, key).stream())

    def modified(self, path: str) -> dt.datetime:
        """When an object was written."""
        moment: dt.datetime = self.info(path)["LastModified"]
        return moment

    async def _rm_file(self, path: str, **_: Any) -> None:
        with answered(path):
            await super()._rm_file(path)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        store, _place, key = self._split(path)
        if mode == "wb":
            return _Upload(lambda content: _upload(store, key, content))
        size = int(self.info(path)["size"])
        return io.BytesIO(self.cat_file(path)) if size <= _BLOCK else _Large(self, path, "rb", size=size)


class BegunObject:
    """An object that is uploaded in parts. Nobody sees it until it is completed.

    What was uploaded of one that never is stays in the bucket, unseen.
    """

    def __init__(self, path: str, writer: Any) -> None:
        self.path, self._writer = path, writer

    def write(self, block: bytes) -> None:
        """Upload the next bytes, an ``OSError`` if that fails."""
        with answered(self.path):
            self._writer.write(block)

    def close(self) -> None:
        """Nothing more is written; it is still to be completed."""

    def complete(self) -> None:
        """Let the object be there, whole, an ``OSError`` if that fails."""
        with answered(self.path):
            self._writer.close()


class _Large(BufferedFile):  # type: ignore[misc]
    def read(self, length: int = -1) -> Any:
        with answered(self.path):
            return super().read(length)


class _Upload(tempfile.SpooledTemporaryFile[bytes]):
    """An object that is written. It is uploaded once it is complete: if its block ends in an error, there is none."""

    def __init__(self, upload: Callable[[IO[bytes]], None]) -> None:
        super().__init__(max_size=_BLOCK)
        self._upload: Callable[[IO[bytes]], None] | None = upload

    def close(self) -> None:
        upload, self._upload = self._upload, None
        try:
            if upload is not None:
                self.seek(0)
                upload(self)
        finally:
            super().close()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._upload = None
        self.close()

    def __del__(self) -> None:
        self._upload = None  # nobody has closed it
        self.close()


def _upload(store: Any, key: str, content: IO[bytes]) -> None:
    with answered(key):
        obstore.put(store, key, content, chunk_size=_PART, max_concurrency=_PARTS_AT_A_TIME)


def _facts(place: str, entry: Any) -> dict[str, Any]:
    return {
        "name": f"{place}/{entry['path']}", "size": int(entry["size"]), "type": "file",
        "ETag": entry["e_tag"], "LastModified": entry["last_modified"],
    }  # fmt: skip
