"""``python -m tests.simulation``: play many histories, and tell which break a promise, and by what.

With ``--only "publication 17"`` one is played again, and each of its calls is told.
"""

import argparse
import sys
import time

from tests.simulation.history import Played, play, seeds, shrunk

_TELL_SECONDS = 30.0


def main() -> int:
    """Returns 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the number of the first history")
    parser.add_argument("--only", help="one history, such as 'publication 17'")
    parser.add_argument("--faults", type=int, default=3, help="end after so many that break a promise")
    asked = parser.parse_args()
    if asked.only:
        one = play(asked.only)
        _tell(*(f"{number:6} {who}: {what}" for number, who, what in one.told), *_words(one))
        return bool(one.faults)
    began = last = time.monotonic()
    broken, calls, number = 0, 0, 0
    for number, seed in enumerate(seeds(asked.seed, asked.histories), start=1):
        one = play(seed)
        calls += len(one.told)
        if one.faults:
            broken += 1
            _tell(*_words(shrunk(one)), f"again: python -m tests.simulation --only {seed!r}", "")
        if time.monotonic() - last > _TELL_SECONDS:
            last = time.monotonic()
            _tell(f"{number:,} histories, {calls:,} calls, {last - began:.0f} s, {broken} broken")
        if broken >= asked.faults:
            break
    _tell(f"{number:,} histories, {calls:,} calls, {time.monotonic() - began:.0f} s, {broken} broken")
    return bool(broken)


def _words(one: Played) -> list[str]:
    decided = [f"  at {at}: {sort} {value:g}" for at, (sort, value) in one.decisions.items()]
    return [f"{one.seed}: {fault}" for fault in one.faults] + ["decided:", *decided]


def _tell(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
