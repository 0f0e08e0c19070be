"""A whole run: steps, stages, decisions, balance, ledger, quality, and why it did not finish."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from skewless.bounds import certificate_of
from skewless.documents.ledger import LedgerLine, stage_problems
from skewless.documents.quality import Comparison, State
from skewless.documents.stage_report import Certificate
from skewless.documents.step_documents import (
    AS_IT_RAN,
    ERROR_WORDS,
    Failure,
    Replayed,
    Savings,
    StepTimes,
    failed_step,
    own_name,
)
from skewless.planner.policies import POLICIES
from skewless.publication.records import PUBLISHED, Overtaken, Publication, publication_of, record_of, state_of
from skewless.run.directory import COMPARISON_STEP, QUALITY_STEP, RESULT_STEP, SAVINGS, RunDirectory
from skewless.run.step_names import COMPARE, PUBLISH
from skewless.run.step_times import TIMES, TimeLine, times_of, times_of_step, waterfall, work_seconds
from skewless_airflow.web.runs import AirflowRun, AirflowTask, is_absence, kept_by, stamp, view_of
from skewless_airflow.web.views.job_view import JobView, WindowView, read_job, read_window, whole_job
from skewless_airflow.web.views.quality_view import QualityView, read_quality
from skewless_airflow.web.views.stage_view import (
    DecisionView,
    HotKey,
    PlanView,
    StageView,
    decided_stages,
    of_stages,
    read_decision,
    read_plan,
    read_stage,
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
    """One task of a run: whether its work is done, and how long it took."""

    task: str
    """Its name in the DAG, without the names of groups around it; ``task_id`` with them, "" where Airflow does not know
    it."""
    task_id: str
    done: bool
    words: str
    state: str
    """``good`` if its work is done and holds, ``bad`` if it failed, else ""."""
    seconds: float | None
    """Of the task in Airflow, where that is known."""
    start: float | None
    """Seconds after the first step began."""
    work_seconds: float | None
    """Of the step, from its begin to its end, as it measured itself; None where it did not."""

    @property
    def outside_seconds(self) -> float | None:
        """The time of the task outside the step: of Airflow, and of processes that start."""
        if self.seconds is None or self.work_seconds is None:
            return None
        return max(0.0, self.seconds - self.work_seconds)


@dataclass(frozen=True)
class LedgerView:
    """The ledger as far as the run has come."""

    lines: tuple[LedgerLine, ...]
    input_rows: int | None
    processed_rows: int
    state_rows: int | None
    problems: tuple[str, ...]
    final: bool
    """Whether it is the validated one; before, only the stages are compared with each other."""
    kept_rows: int
    """Rows of the window that are not read, since states of them are kept."""


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
    """A failure that keeps a run from finishing."""

    step: str
    """The task that failed, without the names of groups around it; "" if it is none of ours."""
    sentence: str
    final: bool

    def __str__(self) -> str:
        return f"{self.step}: {self.sentence}" if self.step else self.sentence


@dataclass(frozen=True)
class RunView:
    """The content of the page of a run."""

    job: JobView | None
    plan: PlanView | None
    steps: tuple[StepView, ...]
    stages: tuple[StageView, ...]
    decisions: tuple[DecisionView, ...]
    overall: Certificate | None
    keys: tuple[HotKey, ...]
    keys_epoch: int
    ledger: LedgerView | None
    quality: QualityView | None
    publication: Publication | None
    superseded: Overtaken | None
    stands: State
    failures: tuple[str, ...]
    faults: tuple[FaultView, ...]
    """The failures that keep it from finishing; a failed try with a successful one after it is none."""
    going_on: bool
    """Whether Airflow says that it has not ended."""
    work_seconds: float | None
    """Of all steps together, as they measured themselves."""
    times: tuple[TimeLine, ...]
    """Where the time of the steps went, as far as they recorded it."""
    window: WindowView | None
    """Its parts, if the job has a window."""
    savings: Savings | None
    """What its routing has saved, once it is published."""
    comparison: Comparison | None
    """With another job's result, of a run that publishes nothing."""

    @property
    def hot_sentence(self) -> str:
        """Which of the keys that are named have at least a hundredth of the rows each, in words."""
        if not self.stages or not self.job or not self.stages[-1].hottest:
            return ""
        seen, name = self.stages[-1].seen, ", ".join(self.job.key)
        hot = [key.seen for key in self.stages[-1].hottest if key.seen >= seen / 100]
        if not hot:
            return f"No value of {name} that is named has a hundredth of the {seen:,} rows."
        occur = f"value of {name} occurs" if len(hot) == 1 else f"values of {name} occur"
        return f"{len(hot):,} {occur} at least {hot[-1]:,} times: {sum(hot) / seen:.1%} of the {seen:,} rows."

    @property
    def state(self) -> str:
        """The state of the run, in a few words."""
        failed = [fault.step for fault in self.faults if fault.final and fault.step]
        if failed and self.quality is None:
            return f"failed in {', '.join(failed)}"
        if self.quality or self.stands.word not in {"failed", "unfinished"}:
            return self.stands.sentence
        done = [step.task for step in self.steps if step.done]
        so_far = "committed so far" if self.going_on else "ended, and committed"
        return f"{so_far}: {', '.join(done)}" if done else f"not prepared{' yet' if self.going_on else ''}"


def read_run(run: RunDirectory, airflow: AirflowRun | None = None, tasks: Sequence[AirflowTask] = ()) -> RunView:
    """A run at any moment, from its documents and from what Airflow knows."""
    job = read_job(run)
    stages = tuple(of_stages(run, read_stage)) if job else ()
    decided = decided_stages(run, job.last_stage) if job else []
    decisions = tuple(decision for stage in decided if (decision := read_decision(run, stage)))
    quality = read_quality(run)
    epoch, keys = _keys(run, stages)
    window, record = read_window(run) if job else None, record_of(run)
    going_on, times = airflow is not None and airflow.going_on, read_times(run) if job else []
    tries = failed_tries(run)
    steps = _steps(run, job, stages, decisions, quality, tasks, times, tries, going_on=going_on)
    unfinished = [
        (step.task, step.words) for step in steps if not step.done and (step.task != "validate" or not quality)
    ]
    return RunView(
        job=job, plan=read_plan(run, 0), steps=tuple(steps), stages=stages, decisions=decisions,
        overall=certificate_of(whole_job(run), [stage.figures for stage in stages]) if stages else None,
        keys=keys, keys_epoch=epoch, quality=quality,
        ledger=_ledger(run, stages, quality, window.kept_rows if window else 0),
        publication=publication_of(run), superseded=record.superseded if record else None, stands=read_state(run)[0],
        failures=tuple(map(str, tries)), faults=read_faults(unfinished, tries, quality, airflow), going_on=going_on,
        work_seconds=work_seconds(times), times=tuple(waterfall(times)), window=window,
        savings=read_savings(run) if job else None, comparison=read_comparison(run),
    )  # fmt: skip


def read_state(run: RunDirectory) -> tuple[State, bool]:
    """How a run stands by its documents, and whether it was published, read anew only if one of them has changed."""
    documents = (PUBLISHED, f"{QUALITY_STEP}/COMMIT.json", f"{COMPARISON_STEP}/COMMIT.json", "failures")
    return _state(run.path(""), *(stamp(run, name) for name in documents))


@lru_cache(maxsize=8192)
def _state(location: str, *_marks: str | None) -> tuple[State, bool]:
    run = RunDirectory(location)
    return state_of(run), publication_of(run) is not None


def _keys(run: RunDirectory, stages: Sequence[StageView]) -> tuple[int, tuple[HotKey, ...]]:
    if not stages:
        return 0, ()
    hottest = stages[-1].hottest
    epoch, goes = where_keys_go(run, tuple(hot.key for hot in hottest))
    return epoch, tuple(replace(hot, goes=where) for hot, where in zip(hottest, goes, strict=True))


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
    times: Sequence[StepTimes],
    tries: Sequence[TryView],
    *,
    going_on: bool,
) -> list[StepView]:
    last = max((decision.stage for decision in decisions if decision.after is None), default=None)
    known = {own_name(task.task_id): task for task in tasks}
    measured = {one.step: one for one in times}
    broken = {"validate"} if quality is not None and not quality.success else set[str]()
    broken |= set() if going_on else {one.task for one in tries}

    def step(task: str, done: bool, name: str = "", needed: bool = True) -> StepView:
        seen, own = known.get(task), measured.get(name or task)
        words = "done" if done else "failed" if task in broken else _waiting(seen, needed, going_on)
        state = "bad" if words == "failed" else "good" if done else ""
        start, work = (own.started - times[0].started, own.seconds) if own else (None, None)
        return StepView(
            task, seen.task_id if seen else "", done, words, state, seen.seconds if seen else None, start, work
        )

    found = [step("prepare", job is not None and read_plan(run, 0) is not None)]
    decided = {decision.stage for decision in decisions}
    for stage in range((job.last_stage if job else 0) + 1):
        needed = last is None or stage < last
        if stage:
            planned = last is None or stage <= last
            found.append(step(f"stage_{stage:02d}.plan", stage in decided, f"decision {stage}", planned))
        found.append(step(f"stage_{stage:02d}.run", stage < len(stages), f"stage {stage}", needed))
    found.append(step("merge", stamp(run, f"{RESULT_STEP}/COMMIT.json") is not None))
    found.append(step("validate", quality is not None and quality.success))
    ending = job.last_step if job else PUBLISH.name
    found.append(step(ending, _LAST_RECORDS[ending](run) is not None))
    return found


def has_stages(tasks: Sequence[AirflowTask]) -> bool:
    """Whether a run is a Skewless run, by its tasks: Airflow shows our tabs on every DAG."""
    return any(own_name(task.task_id) == "stage_00.run" for task in tasks)


def _waiting(task: AirflowTask | None, needed: bool, going_on: bool) -> str:
    if not needed:
        return "not needed"
    if task is not None and task.state:
        return task.state.replace("_", " ")
    return "not yet" if going_on else "not done"


@kept_by(f"{TIMES}/{{}}.json", most=8192)
def _kept_times(run: RunDirectory, name: str) -> StepTimes | None:
    return times_of_step(run, name.replace("-", " "))


def read_times(run: RunDirectory) -> list[StepTimes]:
    """The times of the steps of a run, each document read once."""
    return times_of(run, lambda run, step: _kept_times(run, step.replace(" ", "-")))


@kept_by(SAVINGS)
def read_savings(run: RunDirectory) -> Savings:
    """What the routing of the run has saved, once that was written down."""
    return run.read(SAVINGS, Savings)


@kept_by(f"{COMPARISON_STEP}/COMMIT.json")
def read_comparison(run: RunDirectory) -> Comparison:
    """The comparison of a run, if one was committed."""
    if (found := run.comparison()) is None:  # retention has removed the run since
        raise FileNotFoundError(str(run))
    return found


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
    """A run as it ran, and under other policies, as far as documents say so."""

    lines: tuple[Replayed, ...]
    missing: tuple[str, ...]
    """Policies that nobody has replayed it under."""
    command: str
    error_words: str = ERROR_WORDS


def read_what_if(run: RunDirectory) -> WhatIfView:
    """The replays of a run that were written down: by its publication, and by ``skewless replay``."""
    written = {policy: run.replayed(policy) for policy in (AS_IT_RAN, *POLICIES)}
    missing = tuple(policy for policy, line in written.items() if line is None and policy != AS_IT_RAN)
    command = shlex.join(["skewless", "replay", str(run), "--policies", ",".join(missing)])
    return WhatIfView(tuple(line for line in written.values() if line is not None), missing, command)
