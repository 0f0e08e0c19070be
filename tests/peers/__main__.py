"""``python -m tests.peers FOLDER``: read files and tables that others wrote, in every way, and print what came."""

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from skewless_spark.session.session import build_session
from tests.peers.cases import cases_in, unpacked
from tests.peers.verdict import DIFFERENT, EQUAL, TRACEBACK, as_text, verdicts
from tests.processes import JVM_OPTIONS


def main() -> int:
    """Run the command; 1 if anything is read differently or ends in a traceback."""
    parser = argparse.ArgumentParser(prog="make peers", description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder of files and tables, or of archives of them")
    parser.add_argument("--only", default="", help="a part of the names")
    parser.add_argument("--all", action="store_true", help="print what is equal, too")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM_OPTIONS)
    with tempfile.TemporaryDirectory() as place:
        folder = unpacked(given.folder, Path(place))
        spark = build_session("peers", "local[2]")
        spark.sparkContext.setLogLevel("OFF")  # broken files are expected
        for case in cases_in(folder):
            if given.only not in case.name:
                continue
            for verdict in verdicts(spark, case):
                counts[verdict.kind] += 1
                if given.all or verdict.kind != EQUAL:
                    print(as_text(verdict), flush=True)  # noqa: T201  # this is a command
        spark.stop()
    print(", ".join(f"{number:,} {kind}" for kind, number in sorted(counts.items())) or "nothing was found")  # noqa: T201
    return 1 if counts[DIFFERENT] or counts[TRACEBACK] or not counts else 0


if __name__ == "__main__":
    sys.exit(main())
