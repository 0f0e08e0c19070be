"""``python -m tests.planted``: plant each fault of the tables in a copy of the code, and run the test that must fail.

Ends with 1 if a fault survives, no longer applies, or could not be judged.
"""

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.planted.copy import Copy, Outcome, Verdict
from tests.planted.table import Fault, planted

AT_A_TIME = 2


def main(only: str | None) -> int:
    """Judge the faults and print the survivors."""
    began = time.monotonic()
    faults = [fault for fault in planted() if only is None or only in fault.name]
    if not faults:
        _tell(f"no planted fault has {only!r} in its name")
        return 1
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copies = [Copy(Path(folder, str(number))) for number in range(AT_A_TIME)]
        stale = list(filter(None, (_stale(fault, copies[0]) for fault in faults)))
        tests = sorted({fault.test for fault in faults})
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            halves = [tests[number::AT_A_TIME] for number in range(min(AT_A_TIME, len(tests)))]
            wrong = [] if stale else [line for lines in pool.map(Copy.unbroken, copies, halves) for line in lines]
            if stale or wrong:
                _tell(*stale, *(f"does not pass on the code as it is: {line}" for line in wrong))
                return 1
            free: SimpleQueue[Copy] = SimpleQueue()
            for copy in copies:
                free.put(copy)

            def judged(fault: Fault) -> Outcome:
                copy = free.get()
                try:
                    return copy.judge(fault)
                finally:
                    free.put(copy)

            left = []
            for fault, outcome in zip(faults, pool.map(judged, faults), strict=True):
                _tell(f"{outcome.verdict.value:8} {fault.name}: {outcome.words}")
                if outcome.verdict is not Verdict.KILLED:
                    left.append(fault)
    _tell(f"{len(faults)} planted faults, {len(left)} left alive, {time.monotonic() - began:.0f} s")
    _tell(*(f"left alive: {fault.name} ({fault.file}), not seen by {fault.test}" for fault in left))
    return 1 if left else 0


def _stale(fault: Fault, copy: Copy) -> str | None:
    try:
        fault.applied((copy.root / fault.file).read_text())
    except (ValueError, OSError) as error:
        return f"no longer applies: {error}"
    return None if fault.has_test(copy.root) else f"{fault.name}: there is no test {fault.test}"


def _tell(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("--only", help="judge those whose name has this in it")
    sys.exit(main(parser.parse_args().only))
