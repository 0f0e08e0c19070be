"""What goes wrong around a step: no room on the disk, an input that changes, a clock that jumps."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.faults.harness import Harness, Outcome
from tests.faults.steps import JOBS, Step
from tests.faults.trial import Trial
from tests.faults.world import chance_of

_PAGE = 4096
#: No document of the small run is smaller than what a file may have then; a sentence in a log is.
_ROOM_BYTES = 1_500
_FAR_SECONDS = 400 * 24 * 3600


def trials(h: Harness) -> Iterator[Trial]:
    seeds = h.seeds(2_000)
    yield from _disks(h, seeds)
    for fault, change in _CHANGES.items():
        for step in (h.step("stage-1"), h.step("stage-2")):
            yield Trial("source", step.name, fault, next(seeds), partial(_changed, step, change), h.spark)
    for step in h.tried_steps():
        for fault, moment in (("all files are of 1970", 0.0), ("all files are of 2100", 4.1e9)):
            yield Trial("clock", step.name, fault, next(seeds), partial(_dated, step, moment), step.spark)
    for slug in ("prepare", "stage-2") if h.spark and _own_clock() else ():
        step, fault = h.step(slug), "the time since start-up is 400 days ahead"
        yield Trial("clock", step.name, fault, next(seeds), partial(_ahead, step), spark=True)


def _disks(h: Harness, seeds: Iterator[int]) -> Iterator[Trial]:
    fault = "no room for all that it writes"
    for step in h.tried_steps():
        # Most of what a step writes is documents of one or a few pages.
        for pages in _PAGES_FOR_SPARK if step.spark else range(12):
            if h.world.has_disk:
                act = partial(_full, step, pages * _PAGE)
                yield Trial("full disk", step.name, fault, next(seeds), act, step.spark)
        if not step.spark:
            act = partial(_limited, step)
            yield Trial("full disk", step.name, "files may not grow beyond 1,500 bytes", next(seeds), act)


_PAGES_FOR_SPARK = (0, 4, 12, 30)


def _full(step: Step, left_bytes: int, h: Harness, seed: int) -> Outcome:
    h.begin(step)
    ballast = h.world.fill_disk(left_bytes)
    h.check_failure(step, h.attempt(step).ended())
    h.idle()
    ballast.unlink()
    return h.must_recover(step, seed)


def _limited(step: Step, h: Harness, seed: int) -> Outcome:
    h.begin(step)
    h.check_failure(step, h.attempt(step, room=_ROOM_BYTES).ended())
    return h.must_recover(step, seed)


def _rewritten(file: Path) -> None:
    other = next(path for path in sorted(file.parent.iterdir()) if path != file)
    file.write_bytes(other.read_bytes())


def _longer(file: Path) -> None:
    with file.open("ab") as out:
        out.write(b"more")


def _folder_instead(file: Path) -> None:
    file.unlink()
    file.mkdir()


#: What becomes of a source file, by its name in the table.
_CHANGES: dict[str, Callable[[Path], object]] = {
    "a source file is rewritten between waves": _rewritten,
    "a source file grows between waves": _longer,
    "a source file is emptied between waves": lambda file: file.write_bytes(b""),
    "a source file disappears between waves": Path.unlink,
    "a source file becomes a folder between waves": _folder_instead,
    "a source file is written again as it was": os.utime,
    "a source file comes in addition": lambda file: shutil.copy(file, file.with_name("part-999.parquet")),
}


def _changed(step: Step, change: Callable[[Path], object], h: Harness, seed: int) -> Outcome:
    """Some file changes, of a wave that has been admitted or of one that has not; then it is brought back."""
    h.begin(step)
    try:
        change(chance_of(seed).choice(sorted(h.world.input.iterdir())))
        ended = h.attempt(step).ended()
        h.check_failure(step, ended)
        if ended.code == 0:
            # It had been read before, or was never listed: that the run goes on must not change its result.
            return h.must_recover(step, seed)
    finally:
        h.world.restore_input()
    h.must_recover(step, seed)
    return "stopped"


def _dated(step: Step, moment: float, h: Harness, seed: int) -> Outcome:
    """As files look to one whose clock has jumped since they were written."""
    h.begin(step)
    for path in h.world.folder.parent.rglob("*"):
        os.utime(path, (moment, moment))
    return h.must_recover(step, seed)


def _own_clock() -> bool:
    """Whether a process may have a clock of its own here; only that since start-up, no wall clock."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    asked = subprocess.run([unshare, "--time", "--monotonic", "1", "true"], check=False, capture_output=True)
    return asked.returncode == 0


def _ahead(step: Step, h: Harness, seed: int) -> Outcome:
    h.begin(step)
    far = str(_FAR_SECONDS)
    clock = ["unshare", "--time", "--fork", "--monotonic", far, "--boottime", far]
    entry = [sys.executable, str(JOBS / step.script), *step.argv(h.world)]
    environment = {**os.environ, "SKEWLESS_DRIVER_MEMORY": "1g"}
    done = subprocess.run([*clock, *entry], check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return h.must_recover(step, seed)
