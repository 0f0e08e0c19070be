"""The page of what faults came to, from the results of a run."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Tried(NamedTuple):
    """A trial and its outcome: ``right``, ``stopped`` or ``wrong``."""

    kind: str
    step: str
    fault: str
    seed: int
    outcome: str

    @property
    def name(self) -> str:
        """That of the trial."""
        return f"{self.kind}: {self.step}: {self.fault}: {self.seed}"


#: What a kind is, for the page.
KINDS = {
    "kill": "SIGKILL of the process right before or right after one of its file events",
    "kill driver": "SIGKILL of the Python driver while Spark writes; Spark goes on writing beside the next attempt",
    "kill worker": "SIGKILL of all Python workers of Spark",
    "kill all": "SIGKILL of driver, JVM and Python workers",
    "kill JVM": "SIGKILL of the JVM while its driver lives on",
    "kill Airflow": "SIGKILL of Airflow's processes while a run goes on; servers are started again",
    "twice": "two attempts of one step at once",
    "beside": "another run of the job, or a prune of its states, while a run goes on",
    "pause": "SIGSTOP of an attempt; its successor goes on; then it wakes",
    "full disk": "a file system of a few pages, or a limit on the length of files; then there is room again",
    "source": "an input file that changes; it is restored if the run stopped",
    "clock": "times that make no sense",
    "damage": "a file of the run directory is damaged, and stays so",
    "tampering": "a run directory is changed on purpose, and stays so",
}
#: The kinds of trials of tables, which have a part of the page for themselves.
KINDS_OF_TABLES = {
    "kill publisher": "SIGKILL of the process right before a system call that writes, or before a request that does",
    "wire": "a proxy before the object store does something to one request of a run",
    "outage": "a proxy before the object store fails all requests from one on; then the store is back",
}

_HEAD = """# Faults

`make faults` breaks runs in every way we know and writes this page from what happened. `make test` does a short form of
it. Nothing in the product knows of these trials: Python's audit hook tells a launcher about every file that a step
opens, links, renames or removes below the run directory and the output folder, and the launcher sends the signal.

Each trial begins with a run directory as it was before a step and does one thing to that step. Then it goes on as
Airflow does: it tries the step again, then those after it. An old result of the day is published beforehand, so
every reader in between must see the old one or the new one, whole.

- **right**: the result equals what plain Python computes from the input, the ledger balances, and nothing else is among
  the published files. With Spark, a trial on a stage or on the merge is judged by the merged result, and one in 25 goes
  on to the publication; without Spark, all do.
- **stopped**: the run ended with one sentence (`... expected ..., but got ...`), and the published files are
  unchanged.
- **wrong**: anything else.

Steps named *no Spark* belong to runs in which plain Python writes what Spark would write, so that a trial takes a
fraction of a second. Plans, decisions, commits, checks of the input and the publication are the product's own in all of
them.

A stage named *shared* is shared by several Spark clusters: the fault hits one of them, and another one finishes the
stage. Paths below `owner/` and `leases/` are records of who holds a step, or a virtual task of a shared stage.

Steps named *window* belong to a run with a window of two days, of which the first one has states of an earlier run, and
a file that came late. Paths below `states/` are those of the kept states. After each trial every version of a part must
stand for just the rows of the files that it names, whoever has written it. Damage hits a file of the kept states: the
run reduces the part anew, or stops.

Each trial of the kind *kill Airflow* has a running Airflow, with its LocalExecutor and a Spark Connect server, and one
run in it. If the run succeeds by itself, it is *right*; if it fails with a sentence in the task's log, and is right
after it was cleared, it is *stopped*. Readers read the published day from the trigger on. Airflow's own waits (for
heartbeats, orphans and the queue) are shortened to seconds.

`python -m tests.faults --seed N` repeats a trial.

Not tried: a wall clock that jumps while a step runs (no step reads one; only retention and warm starts look at the age
of files), and the death of executors on other machines.
"""


#: How the part about tables begins.
OF_TABLES = "# Tables and object stores"

_HEAD_OF_TABLES = """
`python -m tests.faults --only tables --table docs/faults.md` breaks runs whose result goes into an Iceberg or a Delta
table, and writes this part of the page alone; `make faults` writes all of it. Two days are published in the table
beforehand, and the run is to replace one of them. Plain Python writes the result as Spark would, and audits what is
staged; staging, the record of it, publication and rollback are the product's own. The leases of steps are left out
here: they are tried above, and on an object store in `tests/leases`.

- *On a disk* the process is traced: the kernel stops it before each system call that makes, writes, renames, links or
  removes a file below the data root, whether Python, SQLite (the catalog), Arrow or deltalake calls, and the tracer
  kills it there. What is there before one call is what was there after the one before. A call that is the same as an
  earlier one has its number behind it.
- *In a bucket* the run directory and the table are on an S3 server (localbucket) behind a proxy; the catalog of an
  Iceberg table is SQLite on the disk. The process is killed before each request that writes; the proxy loses requests
  and answers, cuts answers, answers too late (1.5 seconds; clients wait for 1) or by 500, 503 and, to a write, 409. Of
  reads that are alike the first is hit. Clients are less patient than as shipped: three tries of a request within
  5 seconds. With an outage, the run must end with its sentence within 60 seconds.

After a fault readers look: each day is whole, as it was or as it has to be, and no other day has changed. Then the
steps are done again on a wire that works. It is **right** if both days then have just their rows, each once; if the
table's history has one publication of the run, and the run's record and the store of turns name it; and if at most one
staged snapshot is left, which a later publication removes once it is a week old. *Stopped* is a run that ended with one
sentence first. Who is killed while going back (*rollback*) looks before going back again.
"""


def of_tables(tried: Sequence[Tried], left: int, day: dt.date) -> str:
    """The part of the page about tables.

    Args:
        tried: the trials, those of other kinds among them.
        left: trials that were not tried, as the time was up.
        day: of the run.
    """
    page = [f"{OF_TABLES}\n{_HEAD_OF_TABLES}", f"Run on {day}.\n"]
    return "\n".join([*page, *_counts(tried, left, KINDS_OF_TABLES)]) + "\n"


def table(tried: Sequence[Tried], left: int = 0) -> str:
    """The page, without the part about tables.

    Args:
        tried: the trials; of one that was repeated the last time counts.
        left: trials that were not tried, as the time was up.
    """
    return "\n".join([_HEAD, *_counts(tried, left, KINDS)]) + "\n"


def _counts(tried: Sequence[Tried], left: int, kinds: Mapping[str, str]) -> list[str]:
    """Totals, a row for each kind, and one for each fault."""
    last = {one.name: one for one in tried if one.kind in kinds}.values()
    rows: dict[tuple[str, str, str], list[Tried]] = defaultdict(list)
    for one in last:
        rows[one.kind, one.step, one.fault].append(one)
    outcomes = Counter(one.outcome for one in last)
    page = list[str]()
    page.append(
        f"**{len(last):,} trials of {len(rows):,} different faults: {outcomes['right']:,} right, "
        f"{outcomes['stopped']:,} stopped, {outcomes['wrong']:,} wrong.**\n"
    )
    if left:
        page.append(f"{left:,} more were not tried in this run.\n")
    page.append("| kind | what it is | faults | trials | right | stopped | wrong |\n|---|---|--:|--:|--:|--:|--:|")
    for kind, words in kinds.items():
        of = [one for one in last if one.kind == kind]
        counts = Counter(one.outcome for one in of)
        faults = len({(one.step, one.fault) for one in of})
        page.append(f"| {kind} | {words} | {faults} | {len(of)} | {_counted(counts)} |")
    page.append("\n## Each of them\n")
    page.append("| kind | step | fault | seeds | trials | right | stopped | wrong |\n|---|---|---|---|--:|--:|--:|--:|")
    order = list(kinds)
    for (kind, step, fault), of in sorted(rows.items(), key=lambda row: (order.index(row[0][0]), row[1][0].seed)):
        counts = Counter(one.outcome for one in of)
        page.append(f"| {kind} | {step} | {_cell(fault)} | {_seeds(of)} | {len(of)} | {_counted(counts)} |")
    return page


def _counted(counts: Counter[str]) -> str:
    return " | ".join(str(counts[outcome]) for outcome in ("right", "stopped", "wrong"))


def _cell(fault: str) -> str:
    return fault.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


def _seeds(of: Sequence[Tried]) -> str:
    seeds = sorted(one.seed for one in of)
    together = len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1
    return f"{seeds[0]} to {seeds[-1]}" if together else ", ".join(map(str, seeds))
