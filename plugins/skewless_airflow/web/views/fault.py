"""Why a run did not finish: the steps that failed, each with its error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skewless.documents.steps import Failure, failed_step
from skewless.run.directory import RunDirectory
from skewless_airflow.web.airflow_runs import AirflowRun
from skewless_airflow.web.run_folders import is_absence
from skewless_airflow.web.views.quality import QualityView

#: How many failed tries a page names, the latest ones.
_MOST_TRIES = 10
_WITHOUT_A_WORD = "its task failed without an error message; see its log in Airflow"
_NO_STEP = (
    "Airflow marks this run as failed, but none of these steps failed: somebody marked it by hand, or another task of "
    "the DAG failed"
)


@dataclass(frozen=True)
class TryView:
    """A try of a step that failed.

    Attributes:
        task: of the step, as its DAG has it.
        attempt: which try it was, from 1; 0 where its name does not say.
        sentence: why.
    """

    task: str
    attempt: int
    sentence: str

    def __str__(self) -> str:
        return f"{self.task}{f', try {self.attempt}' if self.attempt else ''}: {self.sentence}"


@dataclass(frozen=True)
class FaultView:
    """A failure that keeps a run from finishing.

    Attributes:
        step: the task that failed, without the names of groups around it; "" if it is none of ours.
        sentence: why.
        final: whether Airflow does not try it again.
    """

    step: str
    sentence: str
    final: bool


def failed_tries(run: RunDirectory) -> tuple[TryView, ...]:
    """The errors of the latest failed tries, by step and try."""
    try:
        found = run.fs.ls(f"{run.root}/failures", detail=False)
    except OSError as err:
        if not is_absence(err):
            raise
        return ()
    names = [str(path).rpartition("/")[2] for path in found if str(path).endswith(".json")]
    latest = sorted((*failed_step(name), name) for name in names)[-_MOST_TRIES:]
    return tuple(TryView(step, turn, run.read(f"failures/{name}", Failure).sentence) for step, turn, name in latest)


def read_faults(
    unfinished: Sequence[tuple[str, str]],
    tries: Sequence[TryView],
    quality: QualityView | None,
    airflow: AirflowRun | None,
) -> tuple[FaultView, ...]:
    """The failures that keep a run from finishing, in the order of its steps.

    Args:
        unfinished: the steps that are not done, each with its state in words.
        tries: those that failed.
        quality: the quality report, if there is one.
        airflow: the run as Airflow sees it.
    """
    over = airflow is None or not airflow.going_on
    said = {one.task: one.sentence for one in tries}  # the last try's
    found = []
    if quality is not None and not quality.success:
        broken = "; ".join(f"{one.name} ({one.found})" for one in quality.failed)
        sentence = f"{len(quality.failed)} of {len(quality.checks)} checks failed: {broken}"
        found.append(FaultView("validate", said.get("validate", sentence), final=True))
    for step, words in unfinished:
        if step in said or words == "failed":
            found.append(FaultView(step, said.get(step, _WITHOUT_A_WORD), final=over or words == "failed"))
    if not found and unfinished and airflow is not None and airflow.state == "failed":
        found.append(FaultView("", _NO_STEP, final=True))
    return tuple(found)
