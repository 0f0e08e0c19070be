"""``python -m tests.lake --rounds 50``: races of publishers in tables of each kind of catalog."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.lake.outputs import TABLES
from tests.lake.races import PUBLISHERS, Races


def main() -> None:
    """Run them, and print a line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    given = parser.parse_args()
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
