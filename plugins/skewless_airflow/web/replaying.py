"""Replays in processes of their own, with limits on time and memory.

A replay of ten thousand tasks takes a core for a minute. In a thread of the API server it would hold up all other
requests. So one process at a time computes the replays, at a low priority. Requests that ask the same question wait
for the same replay, and answers are kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, NamedTuple, cast

from skewless.errors import SkewlessError
from skewless.replay.replay import Replayed

#: The longest time for the replay of one policy; 10,000 tasks took 21 to 72 s.
LIMIT_SECONDS = 180.0
#: The largest address space of one process.
MEMORY_BYTES = 6 << 30
#: How many answers are kept.
_KEPT = 1024
_PLAYER = "skewless_airflow.web.views.what_if"
_PLUGINS = Path(__file__).parents[2]

#: A run under a policy, or why it cannot be replayed.
Answer = Replayed | str


class TooManyReplaysError(SkewlessError):
    """The queue of replays is full."""


class _LostError(SkewlessError):
    """The process has ended without an answer."""


class Question(NamedTuple):
    """A run to be replayed under a policy.

    Attributes:
        location: of the run directory.
        mark: a text that changes when another stage of it commits.
        policy: its name; "" for the run as it ran.
    """

    location: str
    mark: str
    policy: str


class Replays:
    """Replays runs, one process after the other.

    Args:
        limit_seconds: for each policy.
        memory_bytes: for each process.
        waiting: how many requests may wait for their turn.
    """

    def __init__(
        self, limit_seconds: float = LIMIT_SECONDS, memory_bytes: int = MEMORY_BYTES, waiting: int = 32
    ) -> None:
        self._limit_seconds, self._memory_bytes = limit_seconds, memory_bytes
        self._known: OrderedDict[Question, Future[Answer]] = OrderedDict()
        self._waiting: queue.Queue[list[Question]] = queue.Queue(waiting)
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None

    def ask(self, location: str, mark: str, policies: Sequence[str]) -> list[Future[Answer]]:
        """The answers about a run, in the order of the policies: known, under way, or begun by this call.

        Raises:
            TooManyReplaysError: too many others wait.
        """
        questions = [Question(location, mark, policy) for policy in policies]
        with self._lock:
            new = [one for one in dict.fromkeys(questions) if one not in self._known]
            if new:
                if self._waiting.full():
                    most = f"at most {self._waiting.maxsize} questions that wait"
                    raise TooManyReplaysError("what if", most, "one more", "ask again in some minutes")
                self._known.update((one, _under_way()) for one in new)
                self._waiting.put(new)
                self._begin()
            for one in questions:
                self._known.move_to_end(one)
            found = [self._known[one] for one in questions]
            for old in [one for one in self._known if self._known[one].done()][: max(0, len(self._known) - _KEPT)]:
                del self._known[old]
            return found

    def _begin(self) -> None:
        # A daemon thread: a server that stops does not wait for a replay.
        if self._worker is None or not self._worker.is_alive():
            self._worker = threading.Thread(target=self._work, name="what-if", daemon=True)
            self._worker.start()

    def _work(self) -> None:
        while True:
            questions = self._waiting.get()
            while questions:
                answered = 0
                try:
                    for answer in self._play(questions):
                        self._known[questions[answered]].set_result(answer)
                        answered += 1
                except (_LostError, OSError, ValueError) as err:
                    # A process that was killed leaves its question unanswered; the next one goes on after it.
                    self._known[questions[answered]].set_result(str(err))
                    answered += 1
                questions = questions[answered:]

    def _play(self, questions: Sequence[Question]) -> Iterator[Answer]:
        """The answers to some questions about one run, from one process.

        Raises:
            _LostError: it ended before it had answered, or had to be ended.
        """
        path = os.pathsep.join(filter(None, (str(_PLUGINS), os.environ.get("PYTHONPATH"))))
        with subprocess.Popen(  # noqa: S603  # our own program, and the question is no argument
            # -P: a json.py in the folder in which the server was started must not be imported.
            [sys.executable, "-P", "-m", _PLAYER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
        ) as process:
            to_it, from_it = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
            asked = {
                "location": questions[0].location,
                "policies": [one.policy for one in questions],
                "memory_bytes": self._memory_bytes,
                "seconds": round(self._limit_seconds * len(questions)) + 1,
            }
            with contextlib.suppress(BrokenPipeError):
                to_it.write(json.dumps(asked).encode())
                to_it.close()
            for _ in questions:
                late = threading.Event()
                timer = threading.Timer(self._limit_seconds, _end, (process, late))
                timer.start()
                line = from_it.readline()
                timer.cancel()
                if not line:
                    seconds = f"more than {self._limit_seconds:.0f} s"
                    came = seconds if late.is_set() else f"a process that ended with code {process.wait()}"
                    hint = "run skewless replay, which has none"
                    raise _LostError("what if", "an answer within the limits of this page", came, hint)
                yield _answer(line)


#: The replays of this API server.
REPLAYS = Replays()


def _under_way() -> Future[Answer]:
    """A future that cannot be cancelled: several requests may wait for it."""
    future: Future[Answer] = Future()
    future.set_running_or_notify_cancel()
    return future


def _end(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    process.kill()


def _answer(line: bytes) -> Answer:
    said = json.loads(line)
    return str(said["refused"]) if "refused" in said else Replayed.model_validate(said["replayed"])
