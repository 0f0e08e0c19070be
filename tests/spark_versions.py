"""``make test-versions``: the quick Spark tests on each version of Spark and each Java, and a table of outcomes."""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.conftest import UNTIL

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.5.9", "4.0.5", "4.1.4", "4.2.1", "4.3.0")
JAVAS = ("17", "21")
#: The cells of the sample, two in turn by day: those that were seen green with its files. 4.3.0 on 17 is left out, as
#: `make test` runs it.
SAMPLE = (("3.5.9", "17"), ("4.1.4", "17"), ("4.0.5", "21"), ("4.2.1", "21"))
SAMPLE_FILES = [f"tests/spark/test_{name}.py" for name in ("stand_ins", "native_aggregates", "texts", "pipeline")]
#: What a sample may take of CI's time, with making environments; when its second cell begins at the latest; what a cell
#: has for its tests at least.
SAMPLE_SECONDS, SECOND_SECONDS, LEAST_SECONDS = 270, 150, 100
_REFUSED = (
    "from skewless_spark.session.versions import AGGREGATES, lacking_aggregate\n"
    "print(', '.join(filter(lacking_aggregate, AGGREGATES)))"
)
#: PySpark 3.5 and 4.0 leave sockets to the collector, and ask `distutils` for versions.
_WARNINGS = ("-W", "ignore::pytest.PytestUnraisableExceptionWarning", "-W", "ignore:distutils:DeprecationWarning")


class Outcome(NamedTuple):
    """What the tests of a version came to, and the aggregates that it refuses."""

    passed: int
    failed: int
    skipped: int
    refused: str


def with_spark(version: str, java: str, *words: object) -> list[str]:
    """A command in the environment of a version, which is made if it is not there."""
    return [str(ROOT / ".ci" / "with-spark.sh"), version, java, *map(str, words)]


def is_made(version: str) -> bool:
    return (ROOT / ".spark-versions" / version / "stamp").exists()


def tested(version: str, java: str, files: list[str], until: float) -> Outcome:
    """Run the quick Spark tests, or those of some files, and print what they print; what fails once more, alone."""
    cache = f"cache_dir={ROOT / '.spark-versions' / version / 'cache'}"
    command = ["python", "-m", "pytest", "-m", "not long", "-q", "-o", cache, *_WARNINGS, *(files or ["tests/spark"])]
    counts, code = _counted(
        version, java, *command, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", until=until
    )
    failed = counts["failed"] + counts["error"]
    if failed:
        again, code = _counted(version, java, *command, "--last-failed", until=float("inf"))
        counts["passed"] += again["passed"]
        failed = again["failed"] + again["error"]
    said = subprocess.run(
        with_spark(version, java, "python", "-c", _REFUSED), capture_output=True, text=True, check=True
    )
    return Outcome(counts["passed"], failed or int(code != 0), counts["skipped"], said.stdout.strip())


def _counted(version: str, java: str, *command: str, until: float) -> tuple[dict[str, int], int]:
    last, environment = "", os.environ | {UNTIL: str(until)}
    with subprocess.Popen(
        with_spark(version, java, *command), cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout or ():
            sys.stdout.write(line)
            last = line
    counts = dict.fromkeys(("passed", "failed", "skipped", "error"), 0)
    return counts | {what: int(number) for number, what in re.findall(r"(\d+) ([a-z]+?)s?\b", last)}, process.returncode


def main() -> int:
    """Test, and print the table; 1 if a test failed, or if nothing was tested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", nargs="*", default=VERSIONS)
    parser.add_argument("--javas", nargs="*", default=JAVAS)
    parser.add_argument("--sample", action="store_true", help="two versions, in turn by day, for a few minutes")
    parser.add_argument("--files", nargs="*", default=[])
    arguments = parser.parse_args()
    began, outcomes = time.time(), {}
    cells = [(version, java) for java in arguments.javas for version in arguments.versions]
    if arguments.sample:
        turn = 2 * int(began // 86_400)
        cells = [SAMPLE[(turn + number) % len(SAMPLE)] for number in range(min(2, len(SAMPLE)))]
    for number, cell in enumerate(cells):
        if arguments.sample and number and time.time() - began > SECOND_SECONDS:
            sys.stdout.write(f"Spark {cell[0]} is left out: the time of the sample is up\n")
            break
        if subprocess.run(with_spark(*cell, "true"), check=False).returncode:
            told = f"Spark {cell[0]}, Java {cell[1]}: no environment could be made, as is said above; try again."
            if not arguments.sample:  # a machine without room for it, or without a registry, is no fault of the change
                sys.exit(told)
            sys.stdout.write(f"{told}\n")
            continue
        left = (began + SAMPLE_SECONDS - time.time()) / (len(cells) - number)
        until = time.time() + max(left, LEAST_SECONDS) if arguments.sample else float("inf")
        files = SAMPLE_FILES if arguments.sample else arguments.files
        outcomes[cell] = tested(*cell, files, until)
    lines = [("Spark", "Java", *Outcome._fields), *((*cell, *map(str, outcome)) for cell, outcome in outcomes.items())]
    sys.stdout.writelines("".join(f"{word:<9}" for word in line) + "\n" for line in lines)
    return int(any(outcome.failed or not outcome.passed for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
