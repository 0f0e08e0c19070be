"""``python -m tests.lake --rounds 50 --reads 2500``: races of publishers in each kind of table, and readers."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.lake.outputs import TABLES
from tests.lake.races import PUBLISHERS, Races
from tests.lake.readers import READERS, read_while_published

#: Reads by each library before a new table is made, as the history of one makes each read slower than the one before.
_OF_A_TABLE = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--reads", type=int, default=2500, help="of each of two libraries, for each kind of table")
    parser.add_argument("--races", nargs="*", choices=list(TABLES), default=list(TABLES), help="kinds of table")
    given = parser.parse_args()
    for kind in READERS if given.reads else ():
        reads = versions = torn = 0
        while reads < 2 * given.reads:
            with tempfile.TemporaryDirectory() as place:
                found = read_while_published(Path(place), kind, min(_OF_A_TABLE, given.reads))
            reads, versions, torn = reads + found.reads, versions + found.versions, torn + found.torn
        sys.stdout.write(f"{kind}: {reads:,} reads of {versions:,} publications, {torn} torn\n")
        sys.stdout.flush()
        if torn:
            sys.exit(1)
    for kind in given.races if given.rounds else ():
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as place, Races(Path(place), kind) as races:
            for _ in range(given.rounds):
                races.round()
            races.require_linear()
            seconds = time.monotonic() - begun
            sys.stdout.write(
                f"{kind}: {races.rounds} rounds of {PUBLISHERS} publishers, {races.published} published, "
                f"{PUBLISHERS * races.rounds - races.published} superseded, none lost, {seconds:.0f} s\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
