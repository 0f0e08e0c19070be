"""A real worker process, driven by lines on its standard input; it writes what happens as lines of JSON.

Run as ``python player.py ADDRESS NAME``, with the package on the path. The lines it takes:

    commit PARTITION VALUE     under the grant that it last had, whether it still holds or not
    commit_on PARTITION        the same, again and again, 0 1 2 ..., until the fence stops it
    burn SECONDS               computes all the time, in Python
    leave                      ends in good order
"""

from __future__ import annotations

import itertools
import json
import sys
import time

from skewless_leases.balancing.worker import Worker
from skewless_leases.lease_errors import FencedOutError
from skewless_leases.liveness.spans import TimeSpans
from skewless_leases.ownership.fence import Grant

PARTITIONS = [f"p{number}" for number in range(6)]
SPANS = TimeSpans(normal_lease=0.2, maximum_lease=0.8, maximum_shutdown=0.2, minimum_grab=0.1, held_delay=0.004)
#: A beat in a bucket is some requests of a server that wants the processor, too.
SPANS_IN_A_BUCKET = TimeSpans(
    normal_lease=1.0, maximum_lease=4.0, maximum_shutdown=1.0, minimum_grab=0.5, held_delay=0.02
)


def spans_at(address: str) -> TimeSpans:
    return SPANS_IN_A_BUCKET if address.startswith("s3://") else SPANS


def say(**event: object) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


class Told:
    def __init__(self) -> None:
        self.last: dict[str, Grant] = {}

    def granted(self, grant: Grant) -> None:
        self.last[grant.partition] = grant
        say(event="granted", partition=grant.partition, fence=grant.fence)

    def asked_back(self, grant: Grant) -> bool:
        say(event="asked_back", partition=grant.partition, fence=grant.fence)
        return True

    def lost(self, grant: Grant) -> None:
        say(event="lost", partition=grant.partition, fence=grant.fence)


def burn(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(10_000))
    say(event="burnt")


def commit_on(worker: Worker, grant: Grant) -> None:
    for number in itertools.count():
        try:
            worker.commit(grant, str(number))
        except FencedOutError as err:
            say(event="refused", after=number, why=str(err))
            return


def main() -> None:
    address, name = sys.argv[1:3]
    told, spans = Told(), spans_at(address)
    with Worker(address, name, room=100, partitions=lambda _: PARTITIONS, spans=spans, work=told) as worker:
        say(event="begun", name=worker.name)
        for line in sys.stdin:
            match line.split():
                case ["commit", partition, value]:
                    try:
                        worker.commit(told.last[partition], value)
                        say(event="committed", partition=partition)
                    except FencedOutError as err:
                        say(event="refused", why=str(err))
                case ["commit_on", partition]:
                    commit_on(worker, told.last[partition])
                case ["burn", seconds]:
                    burn(float(seconds))
                case _:
                    break
    say(event="left")


if __name__ == "__main__":
    main()
