"""What one worker does next: a pure function of the tables, its memory of them, and the time.

It follows the algorithm for balancing without a coordinator by leases (a blog post of 2015; our
``docs/leases.md`` tells what of it is kept and what is mended). Decisions are values; ``worker.Member``
enacts them, and the store refuses those that are too late.
"""

import math
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heapify, heappop, heappush

from skewless_leases.lease_tables import Look, Silences, TimeSpans
from skewless_leases.store import LeaseError


@dataclass(frozen=True)
class Assignment:
    """The partitions that workers should take."""

    free: Mapping[str, str]
    """For each free partition that a worker has room for, that worker."""
    moves: Mapping[str, tuple[str, str]]
    """For each partition that should move, from whom (the victim) to whom (the thief)."""


#: A move must take so much from the larger of two loads, in average partitions; where all weigh the same, it takes one
#: or nothing. Less than this is lost in weights that are measured (``make bench ONLY=leases``).
WORTH_A_MOVE = 0.5


def assign(
    free: Sequence[str],
    loads: Mapping[str, float],
    room: Mapping[str, int],
    movable: Mapping[str, Sequence[str]],
    weights: Mapping[str, float],
) -> Assignment:
    """Give each free partition to the worker with the least load, then move partitions while that improves the balance.

    A move improves the balance if the thief, with the partition, still has less than the victim had. With each such
    move the sum of the squares of all loads falls, so moves end. Of what a victim has, that partition moves which makes
    the larger of the two loads smallest.

    Args:
        free: the partitions that no worker holds and no live worker has challenged; the heaviest are given first.
        loads: the weight of what each live worker holds, what it is about to get included and what it is about to
            lose not.
        room: how many further partitions each live worker can hold at most.
        movable: the partitions of each worker that may be moved now.
        weights: what each partition weighs, in average partitions.
    """
    receivers: dict[str, str] = {}
    moves: dict[str, tuple[str, str]] = {}
    workers = sorted(loads)
    left, most = [loads[worker] for worker in workers], [room[worker] for worker in workers]
    stock = [sorted(sorted(movable.get(worker, ()), reverse=True), key=weights.__getitem__) for worker in workers]
    # Two heaps instead of a look at all workers for each partition: every worker decides this, in each turn.
    poor = [(load, number) for number, load in enumerate(left) if most[number] > 0]
    heapify(poor)
    for partition in sorted(free, key=lambda name: (-weights[name], name)):
        if not poor:
            break
        receiver = heappop(poor)[1]
        receivers[partition] = workers[receiver]
        left[receiver] += weights[partition]
        most[receiver] -= 1
        if most[receiver] > 0:
            heappush(poor, (left[receiver], receiver))
    rich = [(-load, -number) for number, load in enumerate(left)]
    heapify(rich)
    while poor and rich:
        thief, victim = poor[0][1], -rich[0][1]
        if poor[0][0] != left[thief] or not most[thief]:  # it has changed since
            heappop(poor)
            continue
        changed = -heappop(rich)[0] != left[victim]
        place = None if changed else _best_to_move(stock[victim], weights, left[victim] - left[thief])
        if place is None:
            continue
        partition = stock[victim].pop(place)
        moves[partition] = (workers[victim], workers[thief])
        for number, sign in ((thief, 1), (victim, -1)):
            left[number] += sign * weights[partition]
            most[number] -= sign
            heappush(poor, (left[number], number))
            heappush(rich, (-left[number], -number))
    return Assignment(receivers, moves)


def _best_to_move(stock: Sequence[str], weights: Mapping[str, float], gap: float) -> int | None:
    """The place, in a stock from light to heavy, of what is best moved between two loads that differ by a gap."""
    heavier = bisect_right(stock, gap / 2, key=weights.__getitem__)
    gains = {
        place: min(weights[stock[place]], gap - weights[stock[place]])
        for place in (heavier - 1, heavier)
        if 0 <= place < len(stock)
    }
    best = max(gains, key=gains.__getitem__, default=None)
    return best if best is not None and gap - weights[stock[best]] >= WORTH_A_MOVE else None


@dataclass(frozen=True)
class Take:
    """Become the holder of a partition."""

    partition: str
    reason: str


@dataclass(frozen=True)
class Challenge:
    """Ask a live holder for a partition."""

    partition: str
    victim: str


@dataclass(frozen=True)
class Surrender:
    """Stop a partition that somebody has asked for, then give it back."""

    partition: str
    challenger: str


@dataclass(frozen=True)
class ClearGrab:
    """Remove a challenge that is settled, overtaken or abandoned."""

    partition: str
    reason: str


Action = Take | Challenge | Surrender | ClearGrab


@dataclass(frozen=True)
class Memory:
    """What a worker remembers from look to look; all times are of its own monotonic clock."""

    silences: Silences = field(default_factory=Silences)
    free_since: Mapping[str, float] = field(default_factory=dict)
    """Since when it has seen each free partition free."""
    grab_since: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Since when it has seen each challenge, by partition and version."""
    uneven_since: float | None = None
    """Since when it has seen moves that it should make; None if there are none."""
    last_round: float | None = None
    """When it last started challenges."""


@dataclass(frozen=True)
class Situation:
    """A look, with what this worker remembers, what each partition weighs, and which of them nobody alive holds."""

    me: str
    weights: Mapping[str, float]
    look: Look
    memory: Memory
    dead: frozenset[str]
    free: frozenset[str]
    spans: TimeSpans

    @cached_property
    def live(self) -> frozenset[str]:
        """The workers that may hold partitions."""
        return frozenset(self.look.presences) - self.dead

    @cached_property
    def claims(self) -> dict[str, str]:
        """The partitions that a live worker has asked for and not got yet, with that worker."""
        allocated = self.look.of
        return {
            partition: row.record.challenger
            for partition, row in self.look.grabs.items()
            if row.record.challenger not in self.dead
            and self.look.is_open(row.record, partition)
            and not (allocated(partition).kept and allocated(partition).holder not in self.dead)
        }

    def grab_age(self, partition: str) -> float:
        """How long this worker has seen a partition's challenge, in seconds."""
        return self.look.time - self.memory.grab_since[partition, self.look.grabs[partition].version]

    def planned_holder(self, partition: str) -> str | None:
        """The worker that will hold a partition when all open challenges are settled."""
        return self.claims.get(partition, None if partition in self.free else self.look.of(partition).holder)


def decide(
    me: str, partitions: Collection[str], look: Look, memory: Memory, spans: TimeSpans
) -> tuple[tuple[Action, ...], Memory]:
    """What to do after a look, and what to remember.

    ``partitions`` may give a weight to each of them. A worker that does not see its own heartbeat takes nothing: others
    consider it dead.
    """
    silences = memory.silences.after(look, longest_gap=spans.maximum_lease / 2)
    dead = silences.dead(look, spans.maximum_lease)
    weights = _in_averages(partitions)
    free = frozenset(name for name in weights if (holder := look.of(name).holder) is None or holder in dead)
    grabs = {(partition, row.version) for partition, row in look.grabs.items()}
    memory = replace(
        memory,
        silences=silences,
        free_since={partition: memory.free_since.get(partition, look.time) for partition in free},
        grab_since={grab: memory.grab_since.get(grab, look.time) for grab in grabs},
    )
    seen = Situation(me, weights, look, memory, dead, free, spans)
    asked_back = [
        Surrender(partition, challenger)
        for partition, challenger in sorted(seen.claims.items())
        if challenger != me and look.of(partition).holder == me
    ]
    cleared = _cleared(seen)
    if me not in seen.live:
        return (*asked_back, *cleared), memory
    shares = _shares(seen)
    moves = {partition: victim for partition, (victim, thief) in shares.moves.items() if thief == me}
    challenges, after = _challenged(seen, moves)
    return (*asked_back, *cleared, *_taken(seen, shares), *challenges), after


def _in_averages(partitions: Collection[str]) -> Mapping[str, float]:
    """What each partition weighs, in average partitions; a ``LeaseError`` if a weight is no number, or below zero."""
    raw = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions, 1.0)
    for name, weight in raw.items():
        if not 0 <= weight < math.inf:
            raise LeaseError(f"partition {name}", "a weight that is a number of 0 or more", repr(weight))
    mean = math.fsum(raw.values()) / max(1, len(raw))
    return {name: weight / mean for name, weight in raw.items()} if mean else dict.fromkeys(raw, 1.0)


def _cleared(seen: Situation) -> list[ClearGrab]:
    cleared = []
    for partition, row in sorted(seen.look.grabs.items()):
        age, challenger, allocation = seen.grab_age(partition), row.record.challenger, seen.look.of(partition)
        is_open = seen.look.is_open(row.record, partition)
        if challenger in seen.dead:
            cleared.append(ClearGrab(partition, "its challenger is dead"))
        elif is_open and allocation.holder == seen.me and allocation.kept:
            cleared.append(ClearGrab(partition, "it is kept until its work has ended"))
        elif age >= seen.spans.maximum_lease:
            cleared.append(ClearGrab(partition, "nothing has come of it for the maximum lease time"))
        elif not is_open and challenger == seen.me and age >= seen.spans.minimum_grab:
            cleared.append(ClearGrab(partition, "settled"))
    return cleared


def _shares(seen: Situation) -> Assignment:
    planned = {partition: seen.planned_holder(partition) for partition in seen.weights}
    held: dict[str, list[str]] = {worker: [] for worker in seen.live}
    for name, holder in planned.items():
        if holder in held:
            held[holder].append(name)
    return assign(
        free=[partition for partition, holder in planned.items() if holder is None],
        loads={worker: math.fsum(seen.weights[name] for name in names) for worker, names in held.items()},
        room={worker: max(0, seen.look.presences[worker].record.room - len(names)) for worker, names in held.items()},
        # A partition under challenge is on its way, and one that has just come is left in peace.
        movable={
            worker: [name for name in names if name not in seen.look.grabs and not seen.look.of(name).kept]
            for worker, names in held.items()
        },
        weights=seen.weights,
    )


def _taken(seen: Situation, shares: Assignment) -> list[Take]:
    """What this worker may take: first the partitions that it challenged, then its part of the free ones."""
    takes = []
    held = [weight for partition, weight in seen.weights.items() if seen.look.of(partition).holder == seen.me]
    room = seen.look.presences[seen.me].record.room - len(held)
    for partition, challenger in sorted(seen.claims.items()):
        if challenger != seen.me or partition not in seen.weights:
            continue
        if partition in seen.free:
            takes.append(Take(partition, "asked for, and given back"))
        elif seen.grab_age(partition) >= seen.spans.maximum_shutdown:
            takes.append(Take(partition, "asked for, and not given back within the maximum shutdown time"))
    for partition in sorted(seen.free - set(seen.claims), key=lambda name: (-seen.weights[name], name)):
        waited = seen.look.time - seen.memory.free_since[partition]
        if shares.free.get(partition) == seen.me:
            takes.append(Take(partition, "free, and mine by the even balance"))
        elif waited >= seen.spans.normal_lease + seen.spans.patience(math.fsum(held)):
            takes.append(Take(partition, "free, and not taken by whose share it is"))
    return takes[: max(room, 0)]


def _challenged(seen: Situation, moves: Mapping[str, str]) -> tuple[list[Challenge], Memory]:
    """This worker's own moves, after they have been due for a while, at most one round in a normal lease time."""
    time, memory = seen.look.time, seen.memory
    since = (time if memory.uneven_since is None else memory.uneven_since) if moves else None
    load = math.fsum(weight for name, weight in seen.weights.items() if seen.planned_holder(name) == seen.me)
    settled = since is not None and since < time and time - since >= seen.spans.patience(load)
    rested = memory.last_round is None or time - memory.last_round >= seen.spans.normal_lease
    if not (settled and rested):
        return [], replace(memory, uneven_since=since)
    challenges = [Challenge(partition, victim) for partition, victim in sorted(moves.items())]
    return challenges, replace(memory, uneven_since=None, last_round=time)
