"""A whole run: steps, stages, decisions, balance, ledger, quality, and why it did not finish."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from skewless.documents.bill import AS_IT_RAN, ERROR_WORDS, Replayed, Savings
from skewless.documents.comparison import Comparison
from skewless.documents.decision import Certificate
from skewless.documents.ledger import LedgerLine, stage_problems
from skewless.documents.step_documents import Failure, failed_step, own_name
from skewless.planner.policies import POLICIES
from skewless.publication.records import Overtaken, Publication, publication_of, record_of, superseded_by
from skewless.run.certificate import certificate_of
from skewless.run.directory import COMPARISON_STEP, RESULT_STEP, SAVINGS, RunDirectory
from skewless.run.step_names import COMPARE, PUBLISH
from skewless.run.step_times import TimeLine, times_of, waterfall
from skewless_airflow.web.runs import AirflowRun, AirflowTask, is_absence, kept_by, stamp, view_of
from skewless_airflow.web.views.job_view import JobView, WindowView, read_job, read_window, whole_job
from skewless_airflow.web.views.quality_view import QualityView, read_quality
from skewless_airflow.web.views.stage_view import (
    DecisionView,
    HotKey,
    PlanView,
    StageView,
    read_decisions,
    read_plan,
    read_stages,
    where_keys_go,
)

#: How many failed tries a page names, the latest ones.
_MOST_TRIES = 10
_WITHOUT_A_WORD = "its task failed without an error message; see its log in Airflow"
_NO_STEP = (
    "Airflow marks this run as failed, but none of these steps failed: somebody marked it by hand, or another task of "
    "the DAG failed"
)


@dataclass(frozen=True)
class StepView:
    """One task of a run: whether its work is done, and how long it took.

    Attributes:
        task: its name in the DAG, without the names of groups around it.
        seconds: of the task in Airflow, where that is known.
        spark_seconds: of the stage's Spark work, where it is a stage.
    """

    task: str
    done: bool
    words: str
    seconds: float | None
    spark_seconds: float | None

    @property
    def outside_seconds(self) -> float | None:
        """The time of the task outside the stage's Spark work."""
        if self.seconds is None or self.spark_seconds is None:
            return None
        return max(0.0, self.seconds - self.spark_seconds)


@dataclass(frozen=True)
class LedgerView:
    """The ledger as far as the run has come.

    Attributes:
        final: whether it is the validated one; before, only the stages are compared with each other.
        kept_rows: rows of the window that are not read, since states of them are kept.
    """

    lines: tuple[LedgerLine, ...]
    input_rows: int | None
    processed_rows: int
    state_rows: int | None
    problems: tuple[str, ...]
    final: bool
    kept_rows: int

    @property
    def balanced(self) -> bool:
        """Whether nothing is missing or counted twice."""
        return not self.problems


@dataclass(frozen=True)
class KeyView(HotKey):
    """A hot key, its fraction of all rows, and the tasks that it goes to."""

    share: float
    goes: str


@dataclass(frozen=True)
class TryView:
    """A try of a step that failed, and why; ``attempt`` is counted from 1, and 0 where its name does not say."""

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
    """

    step: str
    sentence: str
    final: bool

    def __str__(self) -> str:
        return f"{self.step}: {self.sentence}" if self.step else self.sentence


@dataclass(frozen=True)
class RunView:
    """The content of the page of a run.

    Attributes:
        faults: the failures that keep it from finishing; a failed try with a successful one after it is none.
        times: where the time of the steps went, as far as they recorded it.
        window: its parts, if the job has a window.
        savings: what its routing has saved, once it is published.
        comparison: with another job's result, of a run that publishes nothing.
    """

    job: JobView | None
    plan: PlanView | None
    steps: tuple[StepView, ...]
    stages: tuple[StageView, ...]
    decisions: tuple[DecisionView, ...]
    overall: Certificate | None
    keys: tuple[KeyView, ...]
    keys_epoch: int
    ledger: LedgerView | None
    quality: QualityView | None
    publication: Publication | None
    superseded: Overtaken | None
    failures: tuple[str, ...]
    faults: tuple[FaultView, ...]
    times: tuple[TimeLine, ...]
    window: WindowView | None
    savings: Savings | None
    comparison: Comparison | None

    @property
    def decision_about(self) -> dict[int, DecisionView]:
        """The decisions by the stage that they are about."""
        return {decision.stage: decision for decision in self.decisions}

    @property
    def state(self) -> str:
        """The state of the run, in a few words."""
        if self.superseded:
            return "superseded by a later run of the day"
        if self.publication:
            return "published"
        if self.comparison:
            return f"compared, {self.comparison.verdict}; nothing was published"
        if self.quality:
            return "validated" if self.quality.success else "failed validation, nothing is published"
        failed = [fault.step for fault in self.faults if fault.final and fault.step]
        if failed:
            return f"failed in {', '.join(failed)}"
        done = [step.task for step in self.steps if step.done]
        return f"committed so far: {', '.join(done)}" if done else "not prepared yet"


def read_run(run: RunDirectory, airflow: AirflowRun | None = None, tasks: Sequence[AirflowTask] = ()) -> RunView:
    """A run at any moment, from its documents and from what Airflow knows."""
    job = read_job(run)
    stages = tuple(read_stages(run)) if job else ()
    decisions = tuple(read_decisions(run, job.last_stage)) if job else ()
    quality = read_quality(run)
    epoch, keys = _keys(run, stages)
    window = read_window(run) if job else None
    steps = _steps(run, job, stages, decisions, quality, tasks, airflow)
    tries = failed_tries(run)
    unfinished = [(step.task, step.words) for step in steps if not step.done]
    return RunView(
        job=job,
        plan=read_plan(run, 0),
        steps=tuple(steps),
        stages=stages,
        decisions=decisions,
        overall=overall(run, stages) if stages else None,
        keys=keys,
        keys_epoch=epoch,
        ledger=_ledger(run, stages, quality, window.kept_rows if window else 0),
        quality=quality,
        publication=publication_of(run),
        superseded=superseded_by(run),
        failures=tuple(map(str, tries)),
        faults=read_faults(unfinished, tries, quality, airflow),
        times=tuple(waterfall(times_of(run))) if job else (),
        window=window,
        savings=read_savings(run) if job else None,
        comparison=read_comparison(run),
    )


def overall(run: RunDirectory, stages: Sequence[StageView]) -> Certificate:
    """The certificate of all stages so far: their load against the lower bound."""
    return certificate_of(whole_job(run), [stage.figures for stage in stages])


def _keys(run: RunDirectory, stages: Sequence[StageView]) -> tuple[int, tuple[KeyView, ...]]:
    if not stages:
        return 0, ()
    last = stages[-1]
    epoch, goes = where_keys_go(run, tuple(hot.key for hot in last.hottest))
    rows = max(1, last.seen)
    keys = (
        view_of(KeyView, hot, share=hot.seen / rows, goes=where) for hot, where in zip(last.hottest, goes, strict=True)
    )
    return epoch, tuple(keys)


def _ledger(
    run: RunDirectory, stages: Sequence[StageView], quality: QualityView | None, kept_rows: int
) -> LedgerView | None:
    if quality is not None:
        processed = sum(line.processed_rows for line in quality.ledger.lines)
        return view_of(LedgerView, quality.ledger, processed_rows=processed, final=True, kept_rows=kept_rows)
    if not stages:
        return None
    lines = tuple(stage.line for stage in stages)
    result = run.commit_of(RESULT_STEP)
    processed, states = sum(line.processed_rows for line in lines), result.counts.get("rows") if result else None
    return LedgerView(lines, None, processed, states, stage_problems(lines), False, kept_rows)


def _steps(
    run: RunDirectory,
    job: JobView | None,
    stages: Sequence[StageView],
    decisions: Sequence[DecisionView],
    quality: QualityView | None,
    tasks: Sequence[AirflowTask],
    airflow: AirflowRun | None,
) -> list[StepView]:
    last = max((decision.stage for decision in decisions if decision.after is None), default=None)
    known = {own_name(task.task_id): task for task in tasks}
    over = airflow is not None and not airflow.going_on

    def step(task: str, done: bool, spark_seconds: float | None = None, needed: bool = True) -> StepView:
        seen = known.get(task)
        words = "done" if done else _waiting(seen, needed, over)
        return StepView(task, done, words, seen.seconds if seen else None, spark_seconds)

    found = [step("prepare", job is not None and read_plan(run, 0) is not None)]
    decided = {decision.stage for decision in decisions}
    for stage in range((job.last_stage if job else 0) + 1):
        needed = last is None or stage < last
        if stage:
            found.append(step(f"stage_{stage:02d}.plan", stage in decided, needed=last is None or stage <= last))
        done = stage < len(stages)
        found.append(step(f"stage_{stage:02d}.run", done, stages[stage].seconds if done else None, needed))
    found.append(step("merge", stamp(run, f"{RESULT_STEP}/COMMIT.json") is not None))
    found.append(step("validate", quality is not None))
    ending = job.last_step if job else PUBLISH.name
    found.append(step(ending, _LAST_RECORDS[ending](run) is not None))
    return found


def has_stages(tasks: Sequence[AirflowTask]) -> bool:
    """Whether a run is a Skewless run, by its tasks: Airflow shows our tabs on every DAG."""
    return any(own_name(task.task_id) == "stage_00.run" for task in tasks)


def _waiting(task: AirflowTask | None, needed: bool, over: bool) -> str:
    if not needed:
        return "not needed"
    if task is not None and task.state:
        return task.state.replace("_", " ")
    return "never started" if over else "not yet"


@kept_by(SAVINGS)
def read_savings(run: RunDirectory) -> Savings:
    """What the routing of the run has saved, once that was written down."""
    return run.read(SAVINGS, Savings)


@kept_by(f"{COMPARISON_STEP}/COMMIT.json")
def read_comparison(run: RunDirectory) -> Comparison:
    """The comparison of a run, if one was committed."""
    found = run.comparison()
    if found is None:  # cannot happen: its commit was there a moment ago, and commits stay
        raise FileNotFoundError(str(run))
    return found


#: What the last step of a run leaves, by its name.
_LAST_RECORDS: Mapping[str, Callable[[RunDirectory], object]] = {PUBLISH.name: record_of, COMPARE.name: read_comparison}


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
    """The failures that keep a run from finishing, in the order of its steps; of a step that is not done, the words."""
    over = airflow is None or not airflow.going_on
    said = {one.task: one.sentence for one in tries}  # the last try's
    found = []
    if quality is not None and not quality.success:
        found.append(FaultView("validate", said.get("validate", quality.sentence), final=True))
    for step, words in unfinished:
        if step in said or words == "failed":
            found.append(FaultView(step, said.get(step, _WITHOUT_A_WORD), final=over or words == "failed"))
    if not found and unfinished and airflow is not None and airflow.state == "failed":
        found.append(FaultView("", _NO_STEP, final=True))
    return tuple(found)


@dataclass(frozen=True)
class WhatIfView:
    """A run as it ran, and under other policies, as far as documents say so.

    Attributes:
        missing: policies that nobody has replayed it under.
        command: what writes their documents.
    """

    lines: tuple[Replayed, ...]
    missing: tuple[str, ...]
    command: str
    error_words: str = ERROR_WORDS


def read_what_if(run: RunDirectory) -> WhatIfView:
    """The replays of a run that were written down: by its publication, and by ``skewless replay``."""
    written = {policy: run.replayed(policy) for policy in (AS_IT_RAN, *POLICIES)}
    missing = tuple(policy for policy, line in written.items() if line is None and policy != AS_IT_RAN)
    command = shlex.join(["skewless", "replay", str(run), "--policies", ",".join(missing)])
    return WhatIfView(tuple(line for line in written.values() if line is not None), missing, command)
