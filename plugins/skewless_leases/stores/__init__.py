"""The key-value stores that leases live in, and which of them an address means."""

from __future__ import annotations

import os

from skewless.run.objects import OBJECT_SCHEMES, SETTINGS
from skewless_leases.stores.store import KeyValueStore


def settings_of(address: str) -> dict[str, str]:
    """The variables of this process's environment that another process needs to reach the same store."""
    if address.partition("://")[0] not in OBJECT_SCHEMES:
        return {}
    return {name: value for name, value in os.environ.items() if name.startswith(SETTINGS)}


def open_store(address: str, *, durable: bool = True, answer_seconds: float = 5.0) -> KeyValueStore:
    """The store at an address.

    Args:
        address: the path of a folder on a local or shared file system; or ``s3://BUCKET/FOLDER`` (``gs://``,
            ``abfss://`` alike); or ``redis://HOST:PORT/DB#NAME`` (``rediss://``, ``unix://`` alike), where NAME keeps
            several sets of leases apart.
        durable: of a folder: whether a write is on the disk before it is answered. Heartbeats need not
            be, and on a busy disk must not wait for it.
        answer_seconds: of a server: how long a call waits for an answer.

    Raises:
        StoreError: the client is not installed, or the folder cannot be made.
    """
    scheme = address.partition("://")[0]
    # Each imports what the other sides of the choice need not have.
    if scheme in OBJECT_SCHEMES:
        from skewless_leases.stores.object_store import ObjectStore  # noqa: PLC0415

        return ObjectStore(address, answer_seconds=answer_seconds)
    if scheme.partition(":")[0] in {"redis", "rediss", "unix"}:
        from skewless_leases.stores.redis_store import RedisStore  # noqa: PLC0415

        return RedisStore(address, answer_seconds=answer_seconds)
    from skewless_leases.stores.file_store import FileStore  # noqa: PLC0415

    return FileStore(address, durable=durable)
