"""What holds for all tests: order, time, the examples of Hypothesis, JVMs that are soon up, and the shared Airflow."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.processes import JVM_OPTIONS

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from tests.object_stores import ObjectServer


#: Folders by how long their longest file takes: two files run at a time, and the last one should be short.
LONGEST_FIRST = (
    "system", "cluster", "spark", "fuzz", "query", "leases", "airflow", "lake", "differential", "peers",
    "benchmarks", "publication", "simulation", "unit",
)  # fmt: skip

# The same examples every time; HYPOTHESIS_PROFILE=explore looks further.
settings.register_profile("fixed", derandomize=True, max_examples=15, deadline=None, database=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM_OPTIONS)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    from tests.object_stores import object_server  # most tests need none of it; the others have names of their own

    with object_server("localbucket", tmp_path_factory.mktemp("localbucket")) as server:
        yield server


def pytest_configure(config: pytest.Config) -> None:
    """Let unit tests that run alone write in memory: each document is synced, which a disk takes milliseconds for."""
    asked = [config.invocation_params.dir / one.partition("::")[0] for one in config.args]
    alone = all(path.resolve().is_relative_to(Path(__file__).parent / "unit") for path in asked)
    memory = Path("/dev/shm")
    if alone and "TMPDIR" not in os.environ and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 1 << 29:
        os.environ["TMPDIR"] = str(memory)
        tempfile.tempdir = None  # found anew, by that variable


#: With this variable, a time in seconds since 1970, no test begins after it, and files run in their turn.
UNTIL = "SKEWLESS_TESTS_UNTIL"
LEFT_OUT = "left out: the time for these tests is up"
#: Commits that are at most so much older than the last one belong to the same change.
CHANGE_SECONDS = 4 * 3600
#: A test file that no change touches has its turn at least every so many days.
TURNS = 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files by their folders, the longest first; where the time is limited, in their turn."""
    items.sort(key=lambda item: LONGEST_FIRST.index(item.path.parent.name))
    if UNTIL in os.environ:
        root = Path(__file__).parents[1]
        files = sorted({item.path.relative_to(root).as_posix() for item in items})
        order = in_turn(files, changed_files(root), int(time.time() // 86_400))
        items.sort(key=lambda item: order.index(item.path.relative_to(root).as_posix()))


def in_turn(files: Sequence[str], changed: Collection[str], day: int) -> list[str]:
    """The files that were changed, then all others, beginning at another third each day."""
    first = day % TURNS * -(-len(files) // TURNS)
    turned = [*files[first:], *files[:first]]
    return sorted(turned, key=lambda file: file not in changed)


def changed_files(root: Path) -> set[str]:
    git = ["git", "-C", str(root), "log"]
    last = subprocess.run([*git, "-1", "--format=%ct"], capture_output=True, text=True, check=False).stdout.strip()
    if not last:
        return set()
    since = f"--since={int(last) - CHANGE_SECONDS}"
    names = subprocess.run([*git, since, "--name-only", "--format="], capture_output=True, text=True, check=False)
    return set(names.stdout.splitlines())


def pytest_runtest_setup() -> None:
    if time.time() > float(os.environ.get(UNTIL, "inf")):
        pytest.skip(LEFT_OUT)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """List which files ran where the time was limited, and what was left out: a test that never runs rots."""
    if UNTIL in os.environ:
        ran = {report.nodeid.partition("::")[0] for report in terminalreporter.stats.get("passed", [])}
        terminalreporter.section(f"tests of {len(ran)} files ran")
        for file in sorted(ran):
            terminalreporter.write_line(file)
    skipped = terminalreporter.stats.get("skipped", [])
    left = [report.nodeid for report in skipped if LEFT_OUT in str(report.longrepr)]
    if left:
        terminalreporter.section(f"{len(left)} tests were left out, as the time was up")
        for name in left:
            terminalreporter.write_line(name)
