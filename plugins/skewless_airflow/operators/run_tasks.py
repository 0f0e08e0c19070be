"""The tasks of a run beside its stages: prepare, plan and publish; and the one that finds stale results."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import structlog
from airflow.sdk import Asset, AssetAlias, BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.execution_time.context import InletEventsAccessors
from pydantic import JsonValue

from skewless.errors import SpecError
from skewless.run.step_names import SPEC_DOCUMENT
from skewless.spec import JobSpec
from skewless.spec.reading import with_options
from skewless_airflow.observability.links import (
    DecisionLink,
    QualityReportLink,
    SkewReportLink,
    push_links,
    quality_page,
    skew_page,
)
from skewless_airflow.operators import end_with_sentence, ending
from skewless_airflow.operators.spark_step import SkewlessSparkOperator
from skewless_airflow.partitions import final_asset, parts_asset
from skewless_airflow.run_store import data_root, part_of_run, run_directory
from skewless_airflow.trigger_form import DATE, HOUR, Choice, chosen

if TYPE_CHECKING:
    from skewless.documents.nights import Finality
    from skewless.documents.stage_report import Decision
    from skewless.run.directory import RunDirectory


log = structlog.get_logger(__name__)


class PlanStageOperator(BaseOperator):
    """Decides about one stage, from 1, by the documents of the previous one, and logs the reason."""

    operator_extra_links = (SkewReportLink(), DecisionLink())

    def __init__(self, *, stage: int, group: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stage, self.group = stage, group

    def execute(self, context: Context) -> None:
        """Decide, write it down, and skip the stage when it is not needed."""
        from skewless.planner.planner import plan_next_stage
        from skewless.run.step_times import timed_step
        from skewless_airflow.observability.metrics import emit_stage

        push_links(context)
        with end_with_sentence(context, self.group):
            run = run_directory(context["dag_run"], self.group)
            ended = _ended_before(run, self.stage)
            if ended is not None:
                raise AirflowSkipException(f"stage {ended.stage - 1} was the last: {ended.sentence}")
            begun = time.monotonic_ns()
            with timed_step(run, f"decision {self.stage}", time.time):
                report, decision = run.report(self.stage - 1, tails=False), run.decide(self.stage, plan_next_stage)
            emit_stage(run, report, decision, time.monotonic_ns() - begun, self.dag_id)
        log.info("Decision about stage %s, policy %s: %s", decision.stage, decision.policy, decision.sentence)
        if decision.next_plan is None:
            raise AirflowSkipException(decision.sentence)


def _ended_before(run: RunDirectory, stage: int) -> Decision | None:
    for earlier in range(1, stage):
        if not run.exists(f"decisions/{earlier:04d}.json"):
            return None
        decision = run.decision(earlier)
        if decision.next_plan is None:
            return decision
    return None


class PrepareOperator(SkewlessSparkOperator):
    """Freezes the spec, lists the input and writes plan 0.

    The conf of the run is checked before Spark starts, and once more in the job.

    Args:
        spec: the spec; the DAG has stages for its waves.
        spec_path: its file; without one the spec itself is sent, as a document of the run directory.
        form: whether the DAG has the spec's trigger form, so that the run's conf chooses among its options.
    """

    def __init__(self, *, spec: JobSpec, spec_path: str = "", form: bool = False, **kwargs: Any) -> None:
        super().__init__(spark_step="prepare", **kwargs)
        self.spec, self.spec_path, self.form = spec, spec_path, form

    def arguments(self, context: Context, run: RunDirectory) -> list[str]:
        """The spec, the options, the day, and where relative paths start."""
        choice = self.choice(context)
        with_options(self.spec, choice.options, f"trigger form of {self.dag_id}")  # or refused, before Spark starts
        # A driver on the cluster sees no file of this machine.
        sent = not self.spec_path or not self.spark.on_spark_submit
        if sent:
            from skewless.documents.job import SentSpec

            run.write_once(SPEC_DOCUMENT, SentSpec(spec=self.spec))
        schedule = self.spec.schedule.of_dag(scheduled=context["dag"].timetable.can_be_scheduled)
        part = choice.part or part_of_run(context["dag_run"], schedule, f"asset events of {self.dag_id}")
        log.info("this run computes %s", part)
        if choice.options:
            log.info("chosen for this run", **choice.options)
        return [
            *(() if sent else ("--spec", self.spec_path)),
            *("--date", part.date.isoformat(), *(("--hour", part.hour) if part.hour else ()), "--root", data_root()),
            *("--options", json.dumps(choice.options), "--most-waves", str(len(self.spec.routing.waves))),
        ]

    def choice(self, context: Context) -> Choice:
        """What the conf of the run chooses; a ``SpecError`` if the conf does not fit the trigger form."""
        if not self.form:
            return Choice(None, {})
        dag_run, where = context["dag_run"], f"trigger form of {self.dag_id}"
        choice = chosen(dag_run.conf or {}, context["dag"].params, self.spec, where)
        if choice.part is not None and dag_run.run_type == "backfill":
            # All runs of the range would publish that day, each over the one before.
            raise SpecError(
                f"{where}, field date", "no date for a backfill, whose runs have their own", str(choice.part)
            )
        return choice

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """What the run reads, for OpenLineage's provider."""
        from skewless_airflow.observability.lineage import input_lineage

        return input_lineage(run_directory(task_instance, self.group))

    def verify(self, run: RunDirectory) -> None:
        """Require the two documents of ``prepare``, the job and plan 0."""
        from skewless.columns import column
        from skewless.documents.job import Job
        from skewless.routing.plan import RoutingPlan

        job, plan = run.read("job.json", Job), run.read("plans/0000.json", RoutingPlan)
        log.info(
            "prepared",
            rows=job.rows,
            files=len(set(column(job.units, "path"))),
            waves=len(job.waves),
            tasks=len(plan.tasks),
            part=str(job.part),
        )


#: The params of the DAG that restates: the first and the last day of published results to look at.
FIRST, LAST = "from", "to"


class FindStaleOperator(BaseOperator):
    """Returns the id and the conf of a run of the job's DAG for each result that is not up to date, oldest first.

    An id stays the same until the result is replaced or the input changes, so that no run is triggered twice.
    """

    def __init__(self, *, spec_path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec_path = spec_path

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Ask ``skewless restate --dry-run``, which imports Spark's Python, in a process of its own."""
        with end_with_sentence(context):
            command = [sys.executable, "-P", "-m", "skewless_cli.main", "restate", self.spec_path]
            command += ["--dry-run", "--json", "--root", data_root(), "--from", str(context["params"][FIRST])]
        if last := context["params"].get(LAST):
            command += ["--to", str(last)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own command
        if done.returncode:
            before, _, sentence = done.stderr.strip().rpartition("\n")
            if before:
                log.warning(before)
            raise ending(done.returncode, sentence.removeprefix("skewless: "), context)
        runs = []
        for result in json.loads(done.stdout)["results"]:
            log.info("a result is not up to date", part=result["part"], reasons=result["reasons"])
            conf = {name: result[name] for name in (DATE, HOUR) if result[name]}
            runs.append({"trigger_run_id": result["run_name"], "conf": conf})
        return runs


class PublishOperator(BaseOperator):
    """Publishes the validated result and emits the asset event that other DAGs wait for.

    Its outlet is an alias: Airflow would emit an event of the asset itself whenever the task succeeds. With the alias
    each published run has one event, also if it is cleared, and a run that a later run of the day superseded has none.
    The same holds of the asset of its parts, whose event has the part as its partition key. As a task can give the
    event of an alias no key, that one is an outlet itself, and is left out where there is nothing to tell. In a run
    with a partition key Airflow gives it to the event of the alias, too, which then starts partitioned DAGs only.
    A third asset has an event for each day that has become final, if the job can tell.

    Args:
        final: whether it can: it has a window of days.
    """

    operator_extra_links = (SkewReportLink(), QualityReportLink())

    def __init__(self, *, asset: Asset, group: str = "", final: bool = False, **kwargs: Any) -> None:
        self.alias = AssetAlias(name=asset.name)
        self.parts, self.final = parts_asset(asset.name), final_asset(asset.name) if final else None
        super().__init__(outlets=[self.alias, self.parts, *([self.final] if self.final else [])], **kwargs)
        self.asset, self.group = asset, group

    def execute(self, context: Context) -> None:
        """Publish, and put path, counts, quality, balance and links into the asset event."""
        from skewless.publication.records import record_of, state_of
        from skewless.run.step_times import run_facts, timed_step
        from skewless_airflow.observability.metrics import emit_result
        from skewless_lake.publication import keep_night, keep_savings, publish_run

        push_links(context)
        self.outlets = [self.alias]
        dag_run = context["dag_run"]
        with end_with_sentence(context, self.group):
            run = run_directory(dag_run, self.group)
            again = record_of(run) is not None
            with timed_step(run, "publish", time.time):
                now = dt.datetime.now(tz=dt.UTC)
                published = publish_run(run, now)
                savings, finality = keep_savings(run), keep_night(run, now)
            if (over := published.superseded) is not None:
                log.warning(
                    "superseded: a later run of the day has published", path=published.path, turn=published.turn,
                    by=over.by.run, in_turn=over.turn,
                )  # fmt: skip
                return
            state = state_of(run)
            facts: dict[str, JsonValue] = {
                "state": state.word, "state_words": state.sentence, "published_rows": published.published_rows,
                "withheld_rows": published.withheld_rows,
                "rows": published.rows, "keys": published.keys, "path": published.path,
                "run": str(run), "turn": published.turn, **run_facts(run),
                **({} if published.snapshot is None else {"snapshot": published.snapshot}),
            }  # fmt: skip
        log.info("published", **facts)
        if savings is not None:
            log.info(savings.sentence)
        for sentence in finality.sentences if finality is not None else ():
            log.info(sentence)
        outlets = []
        if again and self._told(dag_run, self.asset):
            log.info("the asset event of this run exists already, so none is added")
        else:
            emit_result(published, self.dag_id)
            outlets = self._tell(context, run, facts)
        if self.final is not None and finality is not None and finality.final:
            outlets += self._tell_final(context, run, finality, self.final)
        self.outlets = [self.alias, *outlets]

    def _tell(self, context: Context, run: RunDirectory, facts: dict[str, JsonValue]) -> list[Asset]:
        """Add the events of the result and of its part; the assets beside the alias that have one."""
        dag_run = context["dag_run"]
        facts["links"] = {
            "skew": skew_page(dag_run.dag_id, dag_run.run_id),
            "quality": quality_page(dag_run.dag_id, dag_run.run_id),
        }
        context["outlet_events"][self.alias].add(self.asset, extra=facts)
        told = context["outlet_events"][self.parts]
        if not hasattr(told, "add_partitions"):  # before Airflow 3.3
            log.warning("%s has no event: before 3.3, Airflow gives events no partition keys", self.parts.name)
            return []
        told.extra = facts
        told.add_partitions(run.job().part.name)
        return [self.parts]

    def _tell_final(self, context: Context, run: RunDirectory, finality: Finality, asset: Asset) -> list[Asset]:
        told = context["outlet_events"][asset]
        if not hasattr(told, "add_partitions") or self._told(context["dag_run"], asset):
            return []
        days: list[JsonValue] = [one.model_dump(mode="json", include={"part", "delay"}) for one in finality.final]
        told.extra = {"run": str(run), "final": days}
        told.add_partitions([one.part for one in finality.final])
        return [asset]

    def _told(self, dag_run: Any, asset: Asset) -> bool:
        """Whether the run has its event of an asset: Airflow writes it together with the success of the task."""
        events = InletEventsAccessors(inlets=[asset])[asset]
        mine = (dag_run.dag_id, dag_run.run_id, self.task_id)
        return any((one.source_dag_id, one.source_run_id, one.source_task_id) == mine for one in events)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """What the run has read and written, for OpenLineage's provider."""
        from skewless_airflow.observability.lineage import published_lineage

        return published_lineage(run_directory(task_instance, self.group))
