"""The last task of a run: it publishes the result and emits the asset event."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any

import structlog
from airflow.sdk import Asset, AssetAlias, BaseOperator, Context
from airflow.sdk.execution_time.context import InletEventsAccessors
from pydantic import JsonValue

from skewless_airflow.observability.links import QualityReportLink, SkewReportLink, push_links, quality_page, skew_page
from skewless_airflow.operators import end_with_sentence
from skewless_airflow.partitions import final_asset, parts_asset
from skewless_airflow.run_store import run_directory

if TYPE_CHECKING:
    from skewless.documents.nights import Finality
    from skewless.run.directory import RunDirectory


log = structlog.get_logger(__name__)


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
        from skewless.publication.records import record_of
        from skewless.run.step_times import timed_step
        from skewless.run.summary import run_facts
        from skewless_airflow.observability.metrics import emit_result
        from skewless_lake.publication import keep_night, publish_run
        from skewless_lake.replays import keep_savings

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
            facts: dict[str, JsonValue] = {
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
        """Add an event for each day that has become final by this run, unless it has them already."""
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
