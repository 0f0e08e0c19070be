"""Histories of publication, steps, leases and nights: whatever is killed, stopped or lost, the promises hold."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skewless.run.folder import sync_file, sync_folder
from tests.simulation.history import Played, play, seeds, shrunk
from tests.simulation.machine import Machine
from tests.simulation.scenario import Scenario
from tests.simulation.world import Chances, World
from tests.tiers import mostly_long

#: The long test ends after so many seconds, as each test may take 300, and begins each day at another history.
LONG_SECONDS = 200.0


def told(one: Played) -> str:
    return f"python -m tests.simulation --only {one.seed!r}\n{one.faults}\n{shrunk(one).decisions}"


@pytest.mark.parametrize("first", [0, 125, 250, 375])
def test_no_history_breaks_a_promise(first: int) -> None:
    for seed in seeds(first, 125):
        one = play(seed)
        assert not one.faults, told(one)


@pytest.mark.long
def test_no_history_of_a_hundred_thousand_breaks_a_promise_as_far_as_the_time_reaches() -> None:
    until, day = time.monotonic() + LONG_SECONDS, int(time.time() // 86_400)
    for seed in seeds(500 + day % 50 * 2_000, 100_000):
        one = play(seed)
        assert not one.faults, told(one)
        if time.monotonic() > until:
            break


DIGESTS = """
from tests.simulation.history import play, seeds
for seed in seeds(20, 10): print(play(seed).digest)
"""


def test_a_seed_gives_the_same_history_in_each_process_and_from_its_decisions() -> None:
    played = [play(seed) for seed in seeds(20, 10)]
    for hashes in "17":
        again = subprocess.run(
            [sys.executable, "-c", DIGESTS], env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True, text=True, check=True,
        ).stdout.split()  # fmt: skip
        assert again == [one.digest for one in played]
    for one in played:
        assert play(one.seed, one.decisions).digest == one.digest


class Careless(Scenario):
    """Two processes that add to a number in a file, each of them without a look at the other."""

    lasts = True

    def begin(self) -> None:
        self.path = Path("/sim/number")
        self.path.write_text("0")
        for name in "ab":
            self.world.begin(name, self.add, restarts=0)

    def add(self) -> None:
        for _ in range(3):
            number = int(self.path.read_text())
            self.path.write_text(str(number + 1))
            self.path.stat()

    def end(self) -> None:
        self.require(self.path.read_text() == "6", f"six were added, and it is {self.path.read_text()}")


def test_what_is_careless_is_found_and_shrunk_to_the_decisions_that_matter() -> None:
    scenarios = {"careless": Careless}
    failed = [one for number in range(30) if (one := play(f"careless {number}", None, scenarios)).faults]
    assert len(failed) > 10
    few = [shrunk(one, scenarios) for one in failed]
    assert all(one.faults for one in few)
    assert min(len(one.decisions) for one in few) <= 2
    assert sum(len(one.decisions) for one in few) < sum(len(one.decisions) for one in failed)


def _calls(draws: random.Random, root: Path) -> list[Callable[[], Any]]:
    """Some calls of file systems on some paths; each gives what it finds."""
    names = [root / "a", root / "b", root / "a" / "c", root / "b" / "c", root / "a" / "c" / "d"]
    one, other = draws.choice(names), draws.choice(names)
    return [
        one.mkdir, one.rmdir, one.unlink, lambda: one.rename(other) and None, lambda: os.link(one, other),
        lambda: sorted(path.name for path in one.iterdir()), lambda: one.write_bytes(b"text"), one.read_bytes,
        one.is_dir, one.exists, lambda: one.open("xb").close(), lambda: one.stat().st_size if one.is_file() else None,
        lambda: sorted(entry.name for entry in os.scandir(one) if entry.is_dir()),
        lambda: sorted(str(path.relative_to(root)) for path in root.rglob("*")),
    ]  # fmt: skip


def _outcomes(seed: int, root: Path) -> list[object]:
    draws, outcomes = random.Random(seed), list[object]()
    root.mkdir(parents=True)
    for _ in range(60):
        try:
            outcomes.append(draws.choice(_calls(draws, root))())
        except OSError as err:
            outcomes.append(type(err).__name__)
    return outcomes


@pytest.mark.parametrize("seed", mostly_long(range(200), *range(40)))
def test_the_simulated_disk_does_what_the_real_one_does(tmp_path: Path, seed: int) -> None:
    machine = Machine(World("disk", Chances()))
    with machine.on():
        simulated = _outcomes(seed, Path("/sim/disk"))
    assert simulated == _outcomes(seed, tmp_path / "disk")


@pytest.mark.parametrize(("synced", "left"), [(True, {"whole"}), (False, {"whole", "who", "", None})])
def test_a_loss_of_power_leaves_what_was_synced_and_anything_of_the_rest(synced: bool, left: set[str | None]) -> None:
    seen = set()
    for number in range(40):
        machine = Machine(World(f"power {number}", Chances()))
        with machine.on():
            path = Path("/sim/folder/file")
            path.parent.mkdir()
            path.with_name("draft").write_text("whole"[:5])
            if synced:
                sync_file(path.with_name("draft"))
            path.with_name("draft").rename(path)
            if synced:
                sync_folder(path.parent)
            machine.disk.lose_power()
            seen.add(path.read_text() if path.exists() else None)
    assert seen <= left | {"wh"}
    assert synced or len(seen) > 2
