"""A run in figures, from its documents: its bill, and its verdict, balance and stages."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from pydantic import Field, JsonValue, ValidationError

from skewless.bounds import run_certificate
from skewless.document import Frozen, sentence_of
from skewless.documents.job import Job
from skewless.documents.ledger import balance
from skewless.documents.step_documents import RunBill, Savings, StepBill, StepTimes
from skewless.errors import SkewlessError, SpecError
from skewless.run.directory import QUALITY_STEP, RESULT_STEP, RunDirectory, stage_step
from skewless.run.folder import folders_in, folders_of_jobs
from skewless.run.objects.location import as_written
from skewless.run.step_names import COMPARE, COMPARISON_STEP
from skewless.run.step_times import AGAIN, TIMES
from skewless.run.storage import Storage
from skewless.spec.reading import mapping_of

#: What steps of Spark are called in their times, and in the run directory.
_PLACES = {"merge": RESULT_STEP, "validate": QUALITY_STEP, COMPARE.name: COMPARISON_STEP}
#: The file with the price of a core, for all jobs below its data root.
RATES = "costs.yaml"


class Rates(Frozen):
    """The price of a core.

    Attributes:
        core_hour: of one core for an hour.
        currency: in which, by ISO 4217, like EUR.
    """

    core_hour: float = Field(strict=True, gt=0, le=1_000_000)
    currency: str = Field(pattern=r"^[A-Z]{3}$")

    def price(self, core_seconds: float) -> float:
        """What so many core-seconds cost."""
        return core_seconds / 3600.0 * self.core_hour


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
    where = place.path(RATES)
    try:
        return Rates.model_validate(mapping_of(place.text_of(RATES).decode(errors="replace"), where))
    except ValidationError as err:
        raise sentence_of(err, Rates, where, SpecError) from None


def bill_of(run: RunDirectory) -> RunBill:
    """The bill of a run so far.

    Of several tries of a step, that one counts whose attempt has committed; all others are lost. Clusters that share a
    stage each have a bill, which counts if they ended well.
    """
    counted, lost, known = list[tuple[str, StepBill]](), list[tuple[str, StepBill]](), set[str]()
    for times, again in sorted(_tries(run), key=lambda entry: entry[0].started):
        if times.bill is None:
            continue
        known.update(times.bill.attempts)
        counts = not again if " on " in times.step else _is_committed(run, times.step, times.bill)
        (counted if counts else lost).append((times.step, times.bill))
    stages = run.committed_stages()
    places = [*map(stage_step, range(stages + 1)), *_PLACES.values()]
    attempts = (folder for place in places for folder in folders_in(run.fs, f"{run.root}/{place}/attempts"))
    begun = {folder.rpartition("/")[2] for folder in attempts}
    return RunBill(tuple(counted), tuple(lost), len(begun - known))


def nights(runs_folder: str, job: str | None = None, since: dt.date | None = None) -> Iterator[Night]:
    """The runs below a folder of runs that have a bill, job by job, each by its folder."""
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


def _tries(run: RunDirectory) -> Iterator[tuple[StepTimes, bool]]:
    for folder in (TIMES, f"{TIMES}/{AGAIN}"):
        with suppress(OSError):
            for path in sorted(map(str, run.fs.ls(f"{run.root}/{folder}", detail=False))):
                if path.endswith(".json"):
                    with suppress(SkewlessError):
                        yield run.read(f"{folder}/{path.rpartition('/')[2]}", StepTimes), folder != TIMES


def _is_committed(run: RunDirectory, step: str, bill: StepBill) -> bool:
    number = step.removeprefix("stage ")
    commit = run.commit_of(stage_step(int(number)) if number.isdecimal() else _PLACES.get(step, step))
    return commit is not None and commit.attempt in bill.attempts


def run_facts(run: RunDirectory) -> dict[str, JsonValue]:
    """Quality verdict, balance and stages of a validated run, as JSON values.

    ``balance.max_over_mean`` is the sum of the stages' makespans over the fair share of all rows,
    1 at best; ``balance.gap`` is the distance from the bound, relative to it. Both are null where
    ``balance.conclusion`` says that nothing was measured.
    """
    job, reports, quality = run.job(), run.reports(), run.quality()
    whole, result = run_certificate(job, reports), run.commit_of(RESULT_STEP)
    ledger = balance(job, reports, result.count("rows") if result else 0, run.part_lines())
    checks, table = quality.checks if quality else (), job.source.pinned
    return {
        "date": job.date.isoformat(),
        **({"hour": job.hour} if job.hour else {}),
        **({"input_table": table.name, "input_snapshot": table.snapshot} if table else {}),
        "policy": job.spec.routing.policy.name,
        "stages": len(reports),
        "forwarded_rows": sum(report.forwarded_rows for report in reports),
        "quality": {
            "passed": bool(quality and quality.success),
            "verdict": quality.verdict.sentence if quality else "none yet",
            "expectations": len(checks),
            "failed": sum(one.fails for one in checks),
            "warnings": [*quality.warnings(len(job.spec.quality.expectations), values=False)] if quality else [],
            "quarantined_keys": quality.quarantined_keys if quality else 0,
            "ledger_balanced": ledger.balanced,
        },
        "balance": {
            "max_over_mean": whole.over_fair and round(whole.over_fair, 4),
            "gap": whole.gap and round(whole.gap, 4),
            "conclusion": whole.conclusion,
        },
    }
