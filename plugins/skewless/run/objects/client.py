"""The client of an object store, and what its errors mean in a few words.

Credentials come from the environment of each process alone (``AWS_ACCESS_KEY_ID``, an instance profile, ...). They are
in no document, no plan and no message.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import from_url

#: The variables that a client is set up by.
_SETTINGS = ("AWS_", "GOOGLE_", "AZURE_")
#: A request that was answered by 5xx, or whose connection was lost, is sent again: at most so often, and for so long in
#: all. The client draws its pauses, which grow slowly: 8 tries were over after 2 seconds, 40 are after 14 to 40.
RETRIES, RETRY_SECONDS, LONGEST_PAUSE_SECONDS = 40, 60.0, 8.0
#: For the answer to one request, and for a connection.
ANSWER_SECONDS, CONNECT_SECONDS = 60.0, 10.0

_STATUS = re.compile(r"status code: (\d{3}[\w ]*)")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
#: The client's own words for a request without an answer, behind the address and its counts.
_WORDS = re.compile(r" - ([^-\n]{1,160})$")


def bucket(scheme: str, place: str) -> Any:
    """The client of a bucket or container.

    Args:
        scheme: of the path, like ``s3a``.
        place: the bucket, or ``container@account...``, as the path has it.

    Raises:
        OSError: the environment does not say how to reach it.
    """
    settings = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith(_SETTINGS)))
    return _bucket(scheme, place, settings, os.getpid())


@lru_cache(maxsize=64)
def _bucket(scheme: str, place: str, settings: tuple[tuple[str, str], ...], process: int) -> Any:
    del process  # connections are not shared with a process that was forked
    with answered():
        return from_url(  # type: ignore[call-overload]  # which knows one kind of store at a time
            f"{'gs' if scheme == 'gcs' else scheme}://{place}",
            config=config_of(scheme),
            client_options={
                "timeout": f"{ANSWER_SECONDS:.0f}s",
                "connect_timeout": f"{CONNECT_SECONDS:.0f}s",
                "allow_http": in_clear(dict(settings)),
            },
            retry_config={
                "max_retries": RETRIES,
                "retry_timeout": dt.timedelta(seconds=RETRY_SECONDS),
                "backoff": {"max_backoff": dt.timedelta(seconds=LONGEST_PAUSE_SECONDS)},
            },
        )


def config_of(scheme: str) -> dict[str, Any]:
    """What is set for a scheme, beside the environment: not every S3 server has a request that removes many objects."""
    return {"disable_bulk_delete": True} if scheme in {"s3", "s3a"} else {}


def in_clear(settings: Mapping[str, str]) -> bool:
    """Whether the environment names a server that is reached without TLS: then that is meant."""
    endpoints = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
    return any(settings.get(name, "").startswith("http://") for name in endpoints)


@contextmanager
def answered(path: str = "") -> Iterator[None]:
    """Errors of the client as those of a file system, in a few words and without what the store sent.

    Raises:
        FileNotFoundError: there is no such object.
        FileExistsError: there is one already.
        PermissionError: the store does not let us in.
        OSError: anything else.
    """
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
    said = str(err).partition("\n\nDebug source")[0]
    status, code = _STATUS.search(said), _CODE.search(said)
    if status:
        return f"the store answered {' '.join(status[1].split())}{f', {code[1]}' if code else ''}"
    words = _WORDS.search(said.partition("\n")[0].strip())
    return f"the store did not answer: {words[1].strip()}" if words else f"the client failed with {type(err).__name__}"


def delete(store: Any, keys: list[str]) -> None:
    """Remove objects; those that are gone are no error."""
    with answered():
        obstore.delete(store, keys)
