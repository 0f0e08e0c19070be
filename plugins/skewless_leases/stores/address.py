"""Which store an address means."""

from __future__ import annotations

from skewless_leases.stores.store import KeyValueStore


def open_store(address: str, *, durable: bool = True, answer_seconds: float = 5.0) -> KeyValueStore:
    """The store at an address.

    Args:
        address: the path of a folder on a local or shared file system, or ``redis://HOST:PORT/DB#NAME``
            (``rediss://``, ``unix://`` alike), where NAME keeps several sets of leases apart.
        durable: of a folder: whether a write is on the disk before it is answered. Heartbeats need not
            be, and on a busy disk must not wait for it.
        answer_seconds: of Redis: how long a call waits for an answer.

    Raises:
        StoreError: the client is not installed, or the folder cannot be made.
    """
    # Each imports what the other side of the choice need not have.
    if address.partition(":")[0] in {"redis", "rediss", "unix"}:
        from skewless_leases.stores.redis_store import RedisStore  # noqa: PLC0415

        return RedisStore(address, answer_seconds=answer_seconds)
    from skewless_leases.stores.file_store import FileStore  # noqa: PLC0415

    return FileStore(address, durable=durable)
