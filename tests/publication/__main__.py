"""``python -m tests.publication``: four libraries read a day that is published again and again; what they got.

Ends with 1 if a read was torn, a second try was not whole, or less than 95 % of the reads were whole.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.publication.libraries import LIBRARIES
from tests.publication.oracle import Publisher, oracle

WHOLE = 0.95


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reads", type=int, default=3000, help="of each library")
    parser.add_argument("--every", type=float, default=5.0, help="seconds from publication to publication")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        publisher = Publisher(Path(place))
        tallies = oracle(publisher, list(LIBRARIES), given.reads, every_seconds=given.every)
    print(f"{publisher.versions - 1} publications")
    for name, tally in tallies.items():
        print(f"{name}: {tally}")
    good = all(
        not tally.reads["torn"] and set(tally.retries) <= {"whole"} and tally.whole >= WHOLE
        for tally in tallies.values()
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
