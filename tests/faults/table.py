"""The page of what faults came to, from the results of a run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
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
    "kill": "SIGKILL of the process right before or right after an event of its own",
    "kill driver": "SIGKILL of the Python driver while Spark writes, and goes on writing beside the next attempt",
    "kill worker": "SIGKILL of all Python workers of Spark",
    "kill all": "SIGKILL of driver, JVM and Python workers",
    "kill JVM": "SIGKILL of the JVM below a driver that lives",
    "kill Airflow": "SIGKILL of processes of Airflow that is up, at work on a run; what is a server is started again",
    "twice": "two attempts of one step at once",
    "pause": "SIGSTOP of an attempt; its successor goes on; then it wakes",
    "full disk": "a file system of a few pages, or a limit to the length of files; then there is room again",
    "source": "an input file that changes; brought back where that stopped the run",
    "clock": "times that make no sense",
    "damage": "a file of the run directory that is not as it was written, and stays so",
    "tampering": "a run directory that was changed on purpose, and stays so",
}

_HEAD = """# Faults

What `make faults` did to runs, and what they came to. The page is written by it, from a real run; a short form is part
of `make test`. Nothing in the product knows of it: Python's audit hook tells a launcher of every file that a step
opens, links, renames or removes below the run directory and the output folder, and the launcher sends the signal.

Each trial begins with a run directory as it was before a step, does one thing to that step, and then goes on as
Airflow does: it tries the step again, then those after it. Published before is an old result of the day, so that every
reader in between must see the old one or the new one, whole.

- **right**: the run came to the result that plain Python computes from the input, its ledger balanced, and nothing else
  was to be seen among what is published. With Spark, what happens to a stage or to the merge is judged by the merged
  result; one trial in 25 goes on to the publication all the same, and without Spark each of them does.
- **stopped**: it ended with one sentence (`... expected ..., but got ...`), and what was published was untouched.
- **wrong**: anything else.

Steps named *no Spark* belong to runs in which plain Python writes what Spark writes, so that a trial takes a fraction
of a second; plans, decisions, commits, checks of the input and the publication are the product's own in all of them.

A stage named *shared* is one that several Spark clusters share: one of them is struck, and another one ends it. Paths
below `owner/` and `leases/` are records of who holds a step, or a virtual task of a shared stage.

Trials of the kind *kill Airflow* have a whole Airflow that is up, with its LocalExecutor and a Spark Connect server,
and one run in it for each trial: `success` by itself is *right*; failed, with a sentence in the task's log, and right
once it was cleared, is *stopped*. Readers look at the published day from the trigger on. Airflow's own waits (for
heartbeats, orphans and the queue) are shortened to seconds.

`python -m tests.faults --seed N` repeats a trial.

Not tried here: a wall clock that jumps while a step runs (no step reads one; ages of files are looked at by retention
and warm starts alone), and the death of executors on other machines.
"""


def table(tried: Sequence[Tried], left: int = 0) -> str:
    """The page.

    Args:
        tried: the trials; of one that was repeated the last time counts.
        left: trials that were not tried, as the time was up.
    """
    last = {one.name: one for one in tried}.values()
    rows: dict[tuple[str, str, str], list[Tried]] = defaultdict(list)
    for one in last:
        rows[one.kind, one.step, one.fault].append(one)
    outcomes = Counter(one.outcome for one in last)
    page = [_HEAD]
    page.append(
        f"**{len(last):,} trials of {len(rows):,} different faults: {outcomes['right']:,} right, "
        f"{outcomes['stopped']:,} stopped, {outcomes['wrong']:,} wrong.**\n"
    )
    if left:
        page.append(f"{left:,} more were not tried in this run.\n")
    page.append("| kind | what it is | faults | trials | right | stopped | wrong |\n|---|---|--:|--:|--:|--:|--:|")
    for kind, words in KINDS.items():
        of = [one for one in last if one.kind == kind]
        counts = Counter(one.outcome for one in of)
        faults = len({(one.step, one.fault) for one in of})
        page.append(f"| {kind} | {words} | {faults} | {len(of)} | {_counted(counts)} |")
    page.append("\n## Each of them\n")
    page.append("| kind | step | fault | seeds | trials | right | stopped | wrong |\n|---|---|---|---|--:|--:|--:|--:|")
    order = list(KINDS)
    for (kind, step, fault), of in sorted(rows.items(), key=lambda row: (order.index(row[0][0]), row[1][0].seed)):
        counts = Counter(one.outcome for one in of)
        page.append(f"| {kind} | {step} | {_cell(fault)} | {_seeds(of)} | {len(of)} | {_counted(counts)} |")
    return "\n".join(page) + "\n"


def _counted(counts: Counter[str]) -> str:
    return " | ".join(str(counts[outcome]) for outcome in ("right", "stopped", "wrong"))


def _cell(fault: str) -> str:
    return fault.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


def _seeds(of: Sequence[Tried]) -> str:
    seeds = sorted(one.seed for one in of)
    together = len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1
    return f"{seeds[0]} to {seeds[-1]}" if together else ", ".join(map(str, seeds))
