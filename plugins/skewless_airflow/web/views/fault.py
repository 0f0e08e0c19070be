"""Why a run did not come to its end: the steps that failed, each with its sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skewless.documents.failure import Failure, failed_step
from skewless.run.directory import RunDirectory
from skewless_airflow.web.airflow_runs import AirflowRun
from skewless_airflow.web.run_folders import is_absence
from skewless_airflow.web.views.quality import QualityView

#: Tries that a page names, the latest of them.
_MOST_TRIES = 10
_WITHOUT_A_WORD = "its task failed and left no sentence: its log in Airflow says more"
_NO_STEP = "Airflow says that this run failed, and none of these steps did: somebody marked it, or another task failed"


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
    """What keeps a run from its end.

    Attributes:
        step: the task that failed, without the names of groups around it; "" if it is none of ours.
        sentence: why.
        final: whether nobody tries it again.
    """

    step: str
    sentence: str
    final: bool


def failed_tries(run: RunDirectory) -> tuple[TryView, ...]:
    """The last words of tries that failed, by step and try."""
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
    """What keeps a run from its end, in the order of its steps.

    Args:
        unfinished: the steps whose work is not done, each with its state in words.
        tries: that failed.
        quality: the verdict, if there is one.
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
