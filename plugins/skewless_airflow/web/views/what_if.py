"""A run replayed under other policies; as a program, the process that computes the replays.

A replay of ten thousand tasks takes a core for a minute. In a thread of the API server it would hold up all other
requests. So one process at a time computes the replays, at a low priority and with limits on time and memory. Requests
that ask the same question wait for the same replay, and answers are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import resource
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from skewless.errors import SkewlessError
from skewless.replay.replay import ERROR_WORDS, Replayed, as_it_ran, replay
from skewless.run.directory import RunDirectory, stage_step
from skewless_airflow.web.run_folders import stamp
from skewless_airflow.web.views.stage import whole_job

#: The longest time for the replay of one policy; 10,000 tasks took 21 to 72 s.
LIMIT_SECONDS = 180.0
#: The largest address space of one process.
MEMORY_BYTES = 6 << 30
#: How many answers are kept.
_KEPT = 1024
_PLAYER = "skewless_airflow.web.views.what_if"
_PLUGINS = Path(__file__).parents[3]

#: A run under a policy, or why it cannot be replayed.
Answer = Replayed | str


class TooManyReplaysError(SkewlessError):
    """The queue of replays is full."""


class _LostError(SkewlessError):
    """The process has ended without an answer."""


class Question(NamedTuple):
    """A run to be replayed under a policy; "" is the run as it ran.

    Its ``mark`` is a text that changes when another stage of it commits.
    """

    location: str
    mark: str
    policy: str


class Replays:
    """Replays runs, one process after the other; so many requests may wait for their turn.

    The limit on seconds is for each policy, the limit on memory for each process.
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
                said = json.loads(line)
                yield str(said["refused"]) if "refused" in said else Replayed.model_validate(said["replayed"])


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


@dataclass(frozen=True)
class WhatIfView:
    """The run as it ran, and as it would have gone under each policy.

    Attributes:
        refused: policies that cannot be replayed, each with the reason.
        fault: why nothing can be replayed; "" if it can.
        pending: the policies whose replay is not done; "" is the run as it ran.
        error_words: how large the error of the figures may be.
    """

    lines: tuple[Replayed, ...]
    refused: tuple[tuple[str, str], ...]
    fault: str = ""
    pending: tuple[str, ...] = ()
    error_words: str = ERROR_WORDS


async def read_what_if(run: RunDirectory, policies: Sequence[str], patience_seconds: float | None = None) -> WhatIfView:
    """Replay a run without holding up other requests; answers are cached, because documents do not change.

    What is not done after ``patience_seconds`` is pending; without a limit all replays are awaited.

    Raises:
        TooManyReplaysError: too many requests wait already.
    """
    mark = await asyncio.to_thread(_mark, run)
    if mark is None:
        return WhatIfView((), (), "This run has no committed stage yet: there is nothing to replay.")
    asked = ("", *policies)
    answers = REPLAYS.ask(run.path(""), mark, asked)
    await asyncio.wait([asyncio.wrap_future(one) for one in answers], timeout=patience_seconds)
    pending = tuple(policy for policy, one in zip(asked, answers, strict=True) if not one.done())
    known = {policy: one.result() for policy, one in zip(asked, answers, strict=True) if one.done()}
    if isinstance(fault := known.get(""), str):
        return WhatIfView((), (), fault)
    lines = tuple(one for one in known.values() if isinstance(one, Replayed))
    refused = tuple((policy, one) for policy, one in known.items() if isinstance(one, str))
    return WhatIfView(lines, refused, pending=pending)


def _mark(run: RunDirectory) -> str | None:
    """A text that changes when another stage commits."""
    stages = run.committed_stages()
    return f"{stages} {stamp(run, f'{stage_step(stages - 1)}/COMMIT.json')}" if stages else None


def _as_it_ran(run: RunDirectory) -> Replayed:
    reports = run.reports()
    plans = [run.plan(report.stage) for report in reports]
    stages = (report.stage + 1 for report in reports)
    said = [run.decision(stage).sentence for stage in stages if run.exists(f"decisions/{stage:04d}.json")]
    return as_it_ran(whole_job(run), plans, reports, said)


def main() -> None:
    """Answer the request on standard input with a line of JSON for each policy, in their order."""
    asked = json.load(sys.stdin)
    os.nice(10)  # pages come first
    resource.setrlimit(resource.RLIMIT_AS, (asked["memory_bytes"], asked["memory_bytes"]))
    resource.setrlimit(resource.RLIMIT_CPU, (asked["seconds"], asked["seconds"]))  # also if the server has ended
    run = RunDirectory(asked["location"])
    for policy in asked["policies"]:
        said: dict[str, Any]
        try:
            found = (
                replay(whole_job(run), run.reports(), policy, run.first_plan_of(policy)) if policy else _as_it_ran(run)
            )
            said = {"replayed": found.model_dump(mode="json")}
        except SkewlessError as err:
            said = {"refused": str(err)}
        except MemoryError:
            limit = f"at most {asked['memory_bytes'] >> 30} GiB of memory"
            said = {"refused": f"what if: expected {limit}, but got more; run skewless replay."}
        sys.stdout.write(f"{json.dumps(said)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # whoever asked has ended
        main()
