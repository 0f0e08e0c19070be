"""Simulated processes over a simulated clock. One runs at a time; who runs next is decided at its calls, by a seed.

A process is a thread that waits for its turn. It hands over at each call of the disk, of the bucket or of the clock. At
such a call it may also be killed, be stopped for a while, or the power may go. Each decision is written down under the
number of its call, so that a history is played again from its seed, or from fewer decisions.
"""

import _thread
import hashlib
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: A call takes so many seconds; the clock begins on 2026-11-21 at 03:00 UTC.
CALL_SECONDS, BEGIN = 0.001, 1_795_230_000.0
#: A history with more calls goes round in circles.
MOST_CALLS = 60_000
#: What was decided: the sort, and the process that is next or the seconds that it takes.
Decision = tuple[str, float]


class Killed(BaseException):  # an end and no error: no handler of the product catches it
    """The process is no more. Whatever it calls from here on ends so, too, as no ``finally`` would have run."""


class Chances(NamedTuple):
    """How a history goes.

    Attributes:
        calls: from one change of process to the next, on average.
        kill: the chance of it at such a change, as the others are; ``lose`` is that of a request of the network.
        seconds: that a stop takes, or a restart, on average.
    """

    calls: float = 20.0
    kill: float = 0.1
    stop: float = 0.1
    power: float = 0.0
    lose: float = 0.02
    most: int = 5
    seconds: float = 60.0


@dataclass(eq=False)
class Process:
    """What runs beside others.

    Attributes:
        restarts: how often it is begun again if it is killed.
        serves: whether a history may end before it does.
        owner: the process that it is a thread of; it lives, stops and dies with that.
    """

    name: str
    play: Callable[[], object]
    pid: int
    wakes: float
    restarts: int
    serves: bool
    owner: "Process | None" = None
    pause: float = 0.0
    dead: bool = False
    begun: bool = False
    ended: bool = False
    baton: Any = field(default_factory=_thread.allocate_lock)


class World:
    """One history: all that is drawn in it follows from its seed, or is given by the decisions of an earlier one."""

    def __init__(self, seed: str, chances: Chances, given: dict[str, Decision] | None = None) -> None:
        self.chances, self._given = chances, given
        # What the product draws is not shifted by what is decided.
        self._decides, self.draws = random.Random(f"decides {seed}"), random.Random(f"draws {seed}")
        self.now, self.calls, self._passes, self._left, self._over = BEGIN, 0, 0, chances.most, False
        self.decisions: dict[str, Decision] = {}
        self.told: list[tuple[int, str, str]] = []
        self.faults: list[str] = []
        self.running: Process | None = None
        self._processes: list[Process] = []
        self._pids = 100
        self.power_lost: list[Callable[[], None]] = []
        self._main = _thread.allocate_lock()
        self._change = self._gap()

    def call(self, what: str) -> None:
        """A process is about to do something that others see: it may be their turn before."""
        me = self.running
        if me is None:
            return
        if me.dead:
            raise Killed
        self.calls += 1
        self.now += CALL_SECONDS
        self.told.append((self.calls, me.name, what))
        if self.calls > MOST_CALLS:
            self.fault(f"it does not end: {me.name} is at {what}")
            self._end()
            raise Killed
        if self._given is None:
            if self.calls < self._change:
                return
            self._change = self.calls + self._gap()
        decision = self._decided(str(self.calls), self._drawn)
        if decision is not None:
            self._enact(me, *decision)

    def sleep(self, seconds: float) -> None:
        """Sleep; if all do, the clock goes on."""
        me = self.running
        if me is None:
            self.now += seconds
            return
        if me.dead:
            raise Killed
        me.wakes = self.now + seconds
        self._pass_on(me)

    def loses(self, *sorts: str) -> str:
        """What happens to a request: one of the sorts of mishaps, or nothing."""

        def draw() -> Decision | None:
            if self._left <= 0 or self._decides.random() >= self.chances.lose:
                return None
            self._left -= 1
            return self._decides.choice(sorts), 0.0

        decision = None if self.running is None else self._decided(f"request {self.calls}", draw)
        return decision[0] if decision else ""

    def begin(
        self, name: str, play: Callable[[], object], *, after: float = 0.0, restarts: int = 2, serves: bool = False,
        owner: "Process | None" = None,
    ) -> Process:  # fmt: skip
        self._pids += 1
        one = Process(name, play, self._pids, self.now + after, restarts, serves, owner)
        one.baton.acquire()
        self._processes.append(one)
        return one

    def run(self) -> None:
        self._main.acquire()
        following = self._following()
        if following is not None:
            self._wake(following)
            self._main.acquire()
        self._main.release()
        self.running, self._over = None, False

    def fault(self, what: str) -> None:
        self.told.append((self.calls, "FAULT", what))
        self.faults.append(what)

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr(self.told).encode()).hexdigest()

    def _decided(self, number: str, draw: Callable[[], Decision | None]) -> Decision | None:
        decision = draw() if self._given is None else self._given.get(number)
        if decision is not None:
            self.decisions[number] = decision
        return decision

    def _gap(self) -> int:
        return 1 + int(self._decides.expovariate(1 / self.chances.calls))

    def _drawn(self) -> Decision | None:
        lot = self._decides.random()
        for sort in ("kill", "stop", "power") if self._left > 0 else ():
            lot -= getattr(self.chances, sort)
            if lot < 0:
                self._left -= 1
                return sort, round(self._decides.expovariate(1 / self.chances.seconds), 3)
        others = [one.pid for one in self._processes if one is not self.running and one.wakes <= self.now]
        return ("next", self._decides.choice(others)) if others else None

    def _enact(self, me: Process, sort: str, value: float) -> None:
        if sort == "next":
            for other in self._processes:
                if other.pid == value:
                    self._hand_over(me, other)
        elif sort == "stop":
            for one in self._of(me):
                one.wakes = max(one.wakes, self.now + value)
            self._pass_on(me)
        else:
            for one in self._processes if sort == "power" else self._of(me):
                one.dead, one.wakes, one.pause = True, self.now, value
            if sort == "power":
                self.told.append((self.calls, "POWER", "lost"))
                for lose in self.power_lost:
                    lose()
            raise Killed

    def _pass_on(self, me: Process) -> None:
        following = self._following()
        assert following is not None, "the one that passes on has not ended"
        self._hand_over(me, following)

    def _of(self, me: Process) -> list[Process]:
        first = me.owner or me
        return [one for one in self._processes if one is first or one.owner is first]

    def _hand_over(self, me: Process, to: Process) -> None:
        if to is not me:
            self._wake(to)
            me.baton.acquire()
        if me.dead:
            raise Killed

    def _wake(self, to: Process) -> None:
        self.running = to
        if to.begun:
            to.baton.release()
        else:
            to.begun = True
            _thread.start_new_thread(self._played, (to,))

    def _following(self) -> Process | None:
        """Whose turn it is: one that is awake; if none is, the clock goes on to the next that wakes."""
        if not self._over and all(one.serves for one in self._processes):
            self._end()
        if not self._processes:
            return None
        awake = [one for one in self._processes if one.wakes <= self.now]
        if not awake:
            awake = [min(self._processes, key=lambda one: one.wakes)]
            self.now = awake[0].wakes
        self._passes += 1
        if len(awake) == 1:
            return awake[0]
        decision = self._decided(f"pass {self._passes}", lambda: ("next", self._decides.choice(awake).pid))
        return next((one for one in awake if decision and one.pid == decision[1]), awake[0])

    def _end(self) -> None:
        self._over = True
        for one in self._processes:
            one.dead, one.wakes = True, self.now

    def _played(self, one: Process) -> None:
        try:
            if not one.dead:
                one.play()
        except Killed:
            pass
        except Exception:  # noqa: BLE001  # whatever the product raises is looked for
            self.fault(f"{one.name}: {traceback.format_exc()[-1500:]}")
        one.ended = True
        self._processes.remove(one)
        for other in self._processes:
            if other.owner is one:
                other.dead, other.wakes = True, self.now
        if one.dead and one.restarts and not self._over:
            self.begin(one.name, one.play, after=one.pause, restarts=one.restarts - 1, serves=one.serves)
        following = self._following()
        if following is None:
            self._main.release()
        else:
            self._wake(following)
