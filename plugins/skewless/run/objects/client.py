"""The client of an object store, what its errors mean in a few words, and how only the first writer of an object wins.

Credentials come from the environment of each process alone (``AWS_ACCESS_KEY_ID``, an instance profile, ...). They are
in no document, no plan and no message.

The first writer wins by a put under the condition that there is no object (``If-None-Match: *``). A store that ignores
the condition lets every writer win. So each process lets two writers of one object compete before it trusts a bucket,
and refuses it if both have won.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import posixpath
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import from_url

from skewless.errors import RunDirectoryError
from skewless.run.objects import SETTINGS

#: A request that was answered by 5xx, or whose connection was lost, is sent again: at most so often, and for so long in
#: all. The client draws its pauses, which grow slowly: 8 tries were over after 2 seconds, 40 are after 14 to 40.
RETRIES, RETRY_SECONDS, LONGEST_PAUSE_SECONDS = 40, 60.0, 8.0
#: The variables of the environment that may name a server.
ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
#: For the answer to one request, and for a connection.
ANSWER_SECONDS, CONNECT_SECONDS = 60.0, 10.0
#: S3 may answer that another request for the same key is on its way (409); if nothing came of that, it is asked again.
TRIES = 8
#: The last part of the names of the objects of which two writers compete; they are removed at once.
PROBE = ".skewless-probe-"
TWO_FIRST_WRITERS = "two writers of one object have both won, as the store ignores the condition If-None-Match"

#: The clients of buckets that were found to honour the condition that there is no object.
_trusted: list[Any] = []

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
    except AlreadyExistsError:
        raise FileExistsError(errno.EEXIST, "the object exists", path) from None
    except (PermissionDeniedError, UnauthenticatedError, PermissionError) as err:
        raise PermissionError(errno.EACCES, f"the store does not let us in: {_reason(err)}") from None
    except BaseError as err:
        raise OSError(errno.EIO, _reason(err)) from None


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


def require_first_writer(place: str, store: Any, folder: str) -> None:
    """Let two writers compete in a bucket, once for each client; a ``RunDirectoryError`` if both have won."""
    if any(store is other for other in _trusted):
        return
    if not refuses_second_writer(store, folder):
        hint = "choose a store that honours it, or a folder of a shared file system"
        raise RunDirectoryError.saying(place, TWO_FIRST_WRITERS, hint)
    _trusted.append(store)


def refuses_second_writer(store: Any, folder: str) -> bool:
    """Let two writers of one object in a folder compete: whether the store honours the condition."""
    key = posixpath.join(folder, f"{PROBE}{secrets.token_hex(8)}")
    won = [create(store, key, content) for content in (b"first", b"second")]
    delete(store, [key])
    return won == [True, False]
