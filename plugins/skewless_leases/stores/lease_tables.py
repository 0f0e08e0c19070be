"""The three tables that all workers share, and one look at them.

workers/NAME            Presence: the heartbeat, and the room that the worker has
    allocation/PARTITION    Allocation: who holds the partition, and its fencing number
    grab/PARTITION          Grab: who has challenged the holder

Allocation and grab are the two hash keys of the algorithm we follow; presence is what it lacks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Generic, TypeVar

from skewless_leases.lease_errors import LeaseError, StoreError
from skewless_leases.stores.store import KeyValueStore, Versioned

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


WORKERS, ALLOCATION, GRAB = "workers/", "allocation/", "grab/"


@dataclass(frozen=True)
class Presence:
    """A worker's heartbeat.

    Attributes:
        beat: changes with every beat; what it is does not matter.
        room: how many partitions the worker can hold.
        gone: its process has ended, as its heartbeat has seen; nobody need wait for its silence.
    """

    beat: int
    room: int
    gone: bool = False


@dataclass(frozen=True)
class Allocation:
    """Who holds a partition.

    Attributes:
        fence: the fencing number; grows by one with each grant, and never shrinks.
        holder: the worker, or None if the last one has given it back.
        value: what the holder has last committed.
        kept: whether the holder would rather end its work than give it back; only its death moves it.
    """

    fence: int
    holder: str | None = None
    value: str | None = None
    kept: bool = False


@dataclass(frozen=True)
class Grab:
    """A challenge: ``challenger`` asks for the partition that was granted under ``fence``."""

    challenger: str
    fence: int


Record = TypeVar("Record", bound="DataclassInstance")
Record_co = TypeVar("Record_co", bound=Presence | Allocation | Grab, covariant=True)


@dataclass(frozen=True)
class Row(Generic[Record_co]):
    """A record, and the version that a write in its place has to name."""

    record: Record_co
    version: str


@dataclass(frozen=True)
class Look:
    """The tables as one worker has read them.

    Attributes:
        time: the reader's own monotonic clock, in seconds, before it began to read.
    """

    time: float
    presences: Mapping[str, Row[Presence]]
    allocations: Mapping[str, Row[Allocation]]
    grabs: Mapping[str, Row[Grab]]

    def holder(self, partition: str) -> str | None:
        """Who holds a partition, dead or alive."""
        row = self.allocations.get(partition)
        return row.record.holder if row else None

    def fence(self, partition: str) -> int:
        """The last fencing number that was granted, 0 if none was."""
        row = self.allocations.get(partition)
        return row.record.fence if row else 0

    def is_kept(self, partition: str) -> bool:
        """Whether the holder has asked to be left in peace."""
        row = self.allocations.get(partition)
        return row is not None and row.record.kept

    def committed(self) -> dict[str, str]:
        """What was last committed, of those partitions of which anything was."""
        values = {partition: row.record.value for partition, row in self.allocations.items()}
        return {partition: value for partition, value in values.items() if value is not None}

    def is_open(self, grab: Grab, partition: str) -> bool:
        """Whether the tenure that a grab challenges still stands."""
        return grab.fence == self.fence(partition)


def look_at(store: KeyValueStore, time: float) -> Look:
    """Read the tables.

    Raises:
        StoreError: a record has no value just now.
        LeaseError: a record is damaged; neither of them for one of a heartbeat, which the next beat overwrites.
    """
    rows = store.scan("")
    presences = {}
    for name, row in _below(rows, WORKERS).items():
        try:
            presences[name] = Row(decode(Presence, row.value, name), row.version)
        except LeaseError:
            continue
    allocations = {
        name: Row(decode(Allocation, row.value, ALLOCATION + name), row.version)
        for name, row in _below(rows, ALLOCATION).items()
    }
    grabs = {name: Row(decode(Grab, row.value, GRAB + name), row.version) for name, row in _below(rows, GRAB).items()}
    return Look(time, presences, allocations, grabs)


def _below(rows: Mapping[str, Versioned], table: str) -> dict[str, Versioned]:
    return {key.removeprefix(table): row for key, row in sorted(rows.items()) if key.startswith(table)}


def encode(record: DataclassInstance) -> bytes:
    """A record, a frozen value of texts, numbers and booleans, as it is stored: JSON."""
    return json.dumps(asdict(record), separators=(",", ":")).encode()


def decode(kind: type[Record], stored: bytes, where: str) -> Record:
    """Read a stored record.

    Raises:
        StoreError: there is nothing in it.
        LeaseError: it is not what this release writes.
    """
    if not stored:
        hint = "look again: its listing may be older than the last write; if it stays so, the disk has lost it"
        raise StoreError.saying(f"lease record {where}", "it is empty", hint)
    record = parsed(kind, stored)
    if record is None:
        hint = "remove it if it was edited by hand, or use the release of Skewless that wrote it"
        raise LeaseError(f"lease record {where}", f"the fields of {kind.__name__}", repr(stored[:120]), hint)
    return record


def parsed(kind: type[Record], stored: bytes) -> Record | None:
    """What ``encode`` was given; None if it is not just the fields of a kind, or a number among them is negative."""
    try:
        raw = json.loads(stored)
    except ValueError:
        return None
    types = {"int": (int,), "bool": (bool,), "str": (str,), "str | None": (str, type(None))}
    if not isinstance(raw, dict) or set(raw) != {field.name for field in fields(kind)}:
        return None
    for field in fields(kind):
        value = raw[field.name]
        if type(value) not in types[str(field.type)] or (type(value) is int and value < 0):
            return None
    return kind(**raw)
