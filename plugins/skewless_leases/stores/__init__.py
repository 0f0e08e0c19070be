"""The key-value stores that leases live in, and which of them an address means."""

from __future__ import annotations

from skewless.run.objects import OBJECT_SCHEMES
from skewless_leases.stores.store import KeyValueStore


def open_store(address: str, *, durable: bool = True, answer_seconds: float = 5.0) -> KeyValueStore:
    """The store at an address.

    Args:
        address: the path of a folder on a local or shared file system; or ``s3://BUCKET/FOLDER`` (``gs://``,
            ``abfss://`` alike).
        durable: of a folder: whether a write is on the disk before it is answered. Heartbeats need not
            be, and on a busy disk must not wait for it.
        answer_seconds: of an object store: how long a call waits for an answer.

    Raises:
        StoreError: the client is not installed, or the folder cannot be made.
    """
    # Each imports what the other side of the choice need not have.
    if address.partition("://")[0] in OBJECT_SCHEMES:
        from skewless_leases.stores.object_store import ObjectStore  # noqa: PLC0415

        return ObjectStore(address, answer_seconds=answer_seconds)
    from skewless_leases.stores.file_store import FileStore  # noqa: PLC0415

    return FileStore(address, durable=durable)
