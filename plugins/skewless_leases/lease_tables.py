"""The three tables that all workers share, one look at them, and how long each worker has been silent.

workers/NAME            Presence: the heartbeat, and the room that the worker has
    allocation/PARTITION    Allocation: who holds the partition, and its fencing number
    grab/PARTITION          Grab: who has challenged the holder

Allocation and grab are the two hash keys of the algorithm we follow; presence is what it lacks.

No clock is ever compared with another one, and no time is stored: each heartbeat writes a new version, and an observer
measures a silence by its own monotonic clock. A wall clock that jumps changes nothing here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from skewless_leases.store import KeyValueStore, LeaseError, StoreError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


WORKERS, ALLOCATION, GRAB = "workers/", "allocation/", "grab/"


@dataclass(frozen=True)
class Presence:
    """A worker's heartbeat: each beat writes it anew."""

    room: int
    """How many partitions the worker can hold."""
    gone: bool = False
    """Its process has ended, as its heartbeat has seen; nobody need wait for its silence."""


@dataclass(frozen=True)
class Allocation:
    """Who holds a partition."""

    fence: int
    """The fencing number; grows by one with each grant, and never shrinks."""
    holder: str | None = None
    """The worker, or None if the last one has given it back."""
    value: str | None = None
    """What the holder has last committed."""
    kept: bool = False
    """Whether the holder would rather end its work than give it back; only its death moves it."""


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
    """The tables as one worker has read them."""

    time: float
    """The reader's own monotonic clock, in seconds, before it began to read."""
    presences: Mapping[str, Row[Presence]]
    allocations: Mapping[str, Row[Allocation]]
    grabs: Mapping[str, Row[Grab]]

    def of(self, partition: str) -> Allocation:
        """Who holds a partition, dead or alive; of one that was never granted, nobody under 0."""
        row = self.allocations.get(partition)
        return row.record if row else Allocation(fence=0)

    def committed(self) -> dict[str, str]:
        """What was last committed, of those partitions of which anything was."""
        values = {partition: row.record.value for partition, row in self.allocations.items()}
        return {partition: value for partition, value in values.items() if value is not None}

    def is_open(self, grab: Grab, partition: str) -> bool:
        """Whether the tenure that a grab challenges still stands."""
        return grab.fence == self.of(partition).fence


def look_at(store: KeyValueStore, time: float) -> Look:
    """Read the tables.

    Raises:
        StoreError: a record has no value just now.
        LeaseError: a record is damaged; neither of them for one of a heartbeat, which the next beat overwrites.
    """
    presences: dict[str, Row[Presence]] = {}
    allocations: dict[str, Row[Allocation]] = {}
    grabs: dict[str, Row[Grab]] = {}
    for key, stored in sorted(store.scan().items()):
        kind, _, name = key.partition("/")
        if kind == "workers":
            with suppress(LeaseError):
                presences[name] = Row(decode(Presence, stored.value, name), stored.version)
        elif kind == "allocation":
            allocations[name] = Row(decode(Allocation, stored.value, key), stored.version)
        elif kind == "grab":
            grabs[name] = Row(decode(Grab, stored.value, key), stored.version)
    return Look(time, presences, allocations, grabs)


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
    if not isinstance(raw, dict) or set(raw) != {part.name for part in fields(kind)}:
        return None
    for part in fields(kind):
        value = raw[part.name]
        if type(value) not in types[str(part.type)] or (type(value) is int and value < 0):
            return None
    return kind(**raw)


#: How often a worker looks at the tables within one normal lease time. Taking over from a live
#: holder needs three looks and one of the holder's; all of it has to fit into one normal lease time.
LOOKS_PER_LEASE = 8
#: How often a heartbeat beats within one maximum lease time.
BEATS_PER_LEASE = 10


@dataclass(frozen=True, kw_only=True)
class TimeSpans:
    """Five time spans, all in seconds; every worker on the same tables needs the same ones."""

    normal_lease: float = 60.0
    """A worker starts at most one round of challenges in this time; a newcomer has its share after it."""
    maximum_lease: float = 300.0
    """A holder whose heartbeat did not change for this long is dead. At least twice the normal lease time."""
    maximum_shutdown: float = 30.0
    """How long a holder that has been asked for a partition may take to stop it, before it is taken by force. Shorter
    than the maximum lease time."""
    minimum_grab: float = 30.0
    """How long a partition that was challenged is left in peace after. Shorter than the normal lease time."""
    held_delay: float = 0.5
    """Times the number of partitions that a worker holds (and a half): how long it leaves a chance to others, who have
    less. Shorter than the normal lease time, and never longer than that in all."""

    def __post_init__(self) -> None:
        normal, maximum = self.normal_lease, self.maximum_lease
        rules = [(span.name, getattr(self, span.name) > 0, "more than 0 seconds") for span in fields(self)]
        rules += [
            ("maximum_lease", maximum >= 2 * normal, f"at least twice normal_lease ({normal} seconds)"),
            ("maximum_shutdown", self.maximum_shutdown < maximum, f"less than maximum_lease ({maximum} seconds)"),
            ("minimum_grab", self.minimum_grab < normal, f"less than normal_lease ({normal} seconds)"),
            ("held_delay", self.held_delay < normal, f"less than normal_lease ({normal} seconds)"),
        ]
        for name, holds, required in rules:
            if not holds:
                raise LeaseError(f"time span {name}", required, f"{getattr(self, name)}")

    @classmethod
    def around(cls, normal_lease: float) -> Self:
        """Spans in good proportion to a normal lease time, in seconds."""
        return cls(
            normal_lease=normal_lease,
            maximum_lease=4 * normal_lease,
            maximum_shutdown=normal_lease,
            minimum_grab=normal_lease / 2,
            held_delay=normal_lease / 50,
        )

    @property
    def look_every(self) -> float:
        """How often a worker looks at the tables, in seconds."""
        return self.normal_lease / LOOKS_PER_LEASE

    @property
    def beat_every(self) -> float:
        """How often a heartbeat beats, in seconds."""
        return self.maximum_lease / BEATS_PER_LEASE

    def patience(self, held: float) -> float:
        """How long a worker that holds so many average partitions leaves the first move to others, in seconds."""
        return min((held + 0.5) * self.held_delay, self.normal_lease)


@dataclass(frozen=True)
class Heard:
    """The last beat of a worker that an observer has heard, by its version; None if there is no record of it."""

    beat: str | None
    silence: float


@dataclass(frozen=True)
class Silences:
    """The silence of all workers that were ever named in the tables, up to the last look."""

    time: float = 0.0
    heard: Mapping[str, Heard] = field(default_factory=dict)

    def after(self, look: Look, longest_gap: float) -> Silences:
        """Add a look.

        Args:
            look: the tables at that moment.
            longest_gap: what passed since the last look counts up to here, in seconds. An observer that was itself
                stopped, or could not reach the store, has not listened in the meantime; when everything
                wakes at once, it must not be the first one to speak and call all others dead.
        """
        passed = min(look.time - self.time, longest_gap) if self.heard else 0.0
        holders = {row.record.holder for row in look.allocations.values() if row.record.holder}
        challengers = {row.record.challenger for row in look.grabs.values()}
        heard = {}
        for worker in {*look.presences, *holders, *challengers}:
            row = look.presences.get(worker)
            beat, before = row.version if row else None, self.heard.get(worker)
            same = before is not None and before.beat == beat
            heard[worker] = Heard(beat, before.silence + passed if before and same else 0.0)
        return Silences(look.time, heard)

    def dead(self, look: Look, maximum_lease: float) -> frozenset[str]:
        """Who is gone, or has been silent for the maximum lease time or longer."""
        gone = {worker for worker, row in look.presences.items() if row.record.gone}
        return frozenset(gone | {worker for worker, last in self.heard.items() if last.silence >= maximum_lease})
