"""A real process that holds one lease, driven by lines on its standard input; it writes what happens.

Run as ``python holder.py ADDRESS``, with the package on the path. The lines it takes:

    commit VALUE    under its lease, whether that still holds or not
    leave           ends in good order
"""

import logging
import sys

from skewless_leases import FencedOutError, Lease, TimeSpans, commit

PARTITION = "stages/0003"
SPANS = TimeSpans.around(0.2)


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main() -> None:
    logging.basicConfig(format="waiting: %(message)s", stream=sys.stdout)
    with Lease(sys.argv[1], PARTITION, "holder", SPANS) as lease:
        say("granted", lease.grant.fence)
        for line in sys.stdin:
            verb, *words = line.split()
            if verb == "leave":
                break
            try:
                commit(lease.store, lease.grant, words[0])
                say("committed", words[0])
            except FencedOutError as err:
                say("refused", err)


if __name__ == "__main__":
    main()
