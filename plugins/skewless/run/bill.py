"""Bills of runs, read from the times of their steps, and the price of a core."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from skewless.documents.bill import RunBill, Savings
from skewless.documents.job import Job
from skewless.documents.steps import StepBill, StepTimes
from skewless.errors import SkewlessError
from skewless.run.directory import QUALITY_STEP, RESULT_STEP, RunDirectory, stage_step
from skewless.run.folder import folders_in, folders_of_jobs
from skewless.run.objects.location import as_written
from skewless.run.step_names import COMPARE, COMPARISON_STEP
from skewless.run.step_times import AGAIN, TIMES
from skewless.run.storage import Storage
from skewless.spec.rates import RATES, Rates

#: What steps of Spark are called in their times, and in the run directory.
_PLACES = {"merge": RESULT_STEP, "validate": QUALITY_STEP, COMPARE.name: COMPARISON_STEP}


class Night(NamedTuple):
    """A run with its bill.

    Attributes:
        job: the name of the folder of its job's runs.
    """

    job: str
    run: str
    date: str
    bill: RunBill
    savings: Savings | None


def rates_of(root: str) -> Rates | None:
    """The price of a core by the file at the data root; None without one.

    Raises:
        SpecError: it has an unknown field or a wrong value.
    """
    place = Storage(root)
    if not place.exists(RATES):
        return None
    return Rates.parse(place.text_of(RATES).decode(errors="replace"), place.path(RATES))


def bill_of(run: RunDirectory) -> RunBill:
    """The bill of a run so far.

    Of several tries of a step, that one counts whose attempt has committed; all others are lost. Clusters that share a
    stage each have a bill, which counts if they ended well.
    """
    counted, lost, known = list[tuple[str, StepBill]](), list[tuple[str, StepBill]](), set[str]()
    for times, again in sorted(_times(run), key=lambda one: one[0].started):
        if times.bill is None:
            continue
        known.update(times.bill.attempts)
        counts = not again if " on " in times.step else _is_committed(run, times.step, times.bill)
        (counted if counts else lost).append((times.step, times.bill))
    stages = run.committed_stages()
    places = [*map(stage_step, range(stages + 1)), *_PLACES.values()]
    begun = {folder.rpartition("/")[2] for place in places for folder in _attempts(run, place)}
    return RunBill(tuple(counted), tuple(lost), len(begun - known))


def nights(runs_folder: str, job: str | None = None, since: dt.date | None = None) -> Iterator[Night]:
    """The runs below a folder of runs that have a bill, job by job, each by its folder.

    Raises:
        RunDirectoryError: the folder cannot be opened.
    """
    fs, folders = folders_of_jobs(runs_folder)
    for folder in folders:
        name = folder.rpartition("/")[2]
        for place in folders_in(fs, folder) if job in {None, name} else ():
            with suppress(SkewlessError, OSError, LookupError):
                run = RunDirectory(as_written(fs, runs_folder, place))
                date = str(run.fields("job.json", Job)["date"])
                if since is None or date >= since.isoformat():
                    bill = bill_of(run)
                    if bill.steps or bill.lost:
                        yield Night(name, place.rpartition("/")[2], date, bill, run.savings())


def _times(run: RunDirectory) -> Iterator[tuple[StepTimes, bool]]:
    """The times of all tries, and whether they are those of a further one."""
    for folder in (TIMES, f"{TIMES}/{AGAIN}"):
        for path in _listed(run, folder):
            name = path.rpartition("/")[2]
            if name.endswith(".json"):
                with suppress(SkewlessError):
                    yield run.read(f"{folder}/{name}", StepTimes), folder != TIMES


def _is_committed(run: RunDirectory, step: str, bill: StepBill) -> bool:
    number = step.removeprefix("stage ")
    commit = run.commit_of(stage_step(int(number)) if number.isdecimal() else _PLACES.get(step, step))
    return commit is not None and commit.attempt in bill.attempts


def _attempts(run: RunDirectory, step: str) -> list[str]:
    return folders_in(run.fs, f"{run.root}/{step}/attempts")


def _listed(run: RunDirectory, folder: str) -> list[str]:
    try:
        return sorted(map(str, run.fs.ls(f"{run.root}/{folder}", detail=False)))
    except OSError:
        return []
