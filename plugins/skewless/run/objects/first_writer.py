"""The first writer of an object wins, by a put under the condition that there is none (``If-None-Match: *``).

A store that ignores the condition lets every writer win. So each process lets two writers of one object compete before
it trusts a bucket, and refuses it if both have won.
"""

from __future__ import annotations

import errno
import posixpath
import secrets
from typing import Any

import obstore

from skewless.errors import RunDirectoryError
from skewless.run.objects.client import answered, delete

#: S3 may answer that another request for the same key is on its way (409); if nothing came of that, it is asked again.
_TRIES = 8
#: The last part of the names of the objects of which two writers compete; they are removed at once.
PROBE = ".skewless-probe-"
#: The clients of buckets that were found to honour the condition.
_trusted: list[Any] = []


def create(store: Any, place: str, key: str, content: bytes) -> bool:
    """Write an object unless there is one.

    A lost answer is no lost object: the client sends the request again, finds the object there, and if it has this
    very content, it is its own. So contents must tell writers apart where that matters, as commits do.

    Args:
        store: the client of a bucket.
        place: its scheme and name, for people.
        key: of the object.
        content: of the object.

    Returns:
        Whether the object has this content.

    Raises:
        RunDirectoryError: the store ignores the condition.
        OSError: the store does not answer, or refuses.
    """
    _require_first_writer(store, place, posixpath.dirname(key))
    return _put(store, key, content)


def _put(store: Any, key: str, content: bytes) -> bool:
    for _ in range(_TRIES):
        try:
            with answered(key):
                obstore.put(store, key, content, mode="create")
        except FileExistsError:
            found = _content(store, key)
        except OSError:
            # Nobody has said whether it was written.
            found = _content(store, key)
            if found is None:
                raise
        else:
            return True
        if found is not None:
            return found == content
        # The object is not there: another writer's request was on its way, and has failed, or it was removed.
    raise OSError(errno.EBUSY, "the store says again and again that the object exists, and it does not")


def _content(store: Any, key: str) -> bytes | None:
    try:
        with answered(key):
            return bytes(obstore.get(store, key).bytes())
    except FileNotFoundError:
        return None


def _require_first_writer(store: Any, place: str, folder: str) -> None:
    if any(store is one for one in _trusted):
        return
    key = posixpath.join(folder, f"{PROBE}{secrets.token_hex(8)}")
    won = [_put(store, key, content) for content in (b"first", b"second")]
    delete(store, [key])
    if won != [True, False]:
        raise RunDirectoryError.saying(
            place,
            "two writers of one object have both won, as the store ignores the condition If-None-Match",
            "choose a store that honours it, or a folder of a shared file system",
        )
    _trusted.append(store)
