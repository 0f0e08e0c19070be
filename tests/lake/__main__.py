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


def main() -> None:
    """Run them, and print a line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--reads", type=int, default=2500, help="of each of two libraries, for each kind of table")
    given = parser.parse_args()
    for kind in READERS:
        with tempfile.TemporaryDirectory() as place:
            found = read_while_published(Path(place), kind, given.reads)
        sys.stdout.write(f"{kind}: {found.reads:,} reads of {found.versions:,} publications, {found.torn} torn\n")
        sys.stdout.flush()
        if found.torn:
            sys.exit(1)
    for kind in TABLES:
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
