"""What metrics say of a stage and of a result, as they arrive in OpenTelemetry and at a StatsD server; a dashboard."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from airflow.sdk._shared.observability.metrics.otel_logger import SafeOtelLogger
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from skewless.documents.stage_report import Decision, StageReport
from skewless.documents.step_documents import StepTimes
from skewless.publication.records import Publication
from skewless.run.directory import RunDirectory
from skewless_airflow.observability.metrics import emit_result, emit_stage
from tests.airflow.recorded_run import record
from tests.airflow_setting import PROJECT
from tests.unit.synthetic import simulated, zipf_rows

_PREFIX = "airflow."
_PAGE = (PROJECT / "docs" / "operate.md").read_text(encoding="utf-8")
#: As the page names them.
_GAUGES = re.findall(r"`(skewless\.\w+)`", _PAGE.partition("**Metrics**")[2].partition("**Lineage.**")[0])


class Decided(NamedTuple):
    run: RunDirectory
    report: StageReport
    decision: Decision

    def emit(self) -> None:
        emit_stage(self.run, self.report, self.decision, 12_345_678_901, "small")


@pytest.fixture
def decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Decided:
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    played = simulated(zipf_rows(200, 1.2, 5_000), waves=(1, 3), reducers=4).play()
    run = record(played, "small")
    run.write_once("times/stage-0.json", StepTimes(step="stage 0", started=1.0, seconds=2.5))
    return Decided(run, played.reports[0], played.decisions[0])


@pytest.fixture
def received() -> Iterator[InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    factory: Any = lambda: SafeOtelLogger(provider)  # noqa: E731  # which Airflow's own types do not count as a logger
    stats.initialize(factory=factory, export_legacy_names=False)
    yield reader
    provider.shutdown()
    stats.initialize(factory=get_stats_factory(), export_legacy_names=True)


def test_a_stage_and_a_result_are_told_with_their_tags(decided: Decided, received: InMemoryMetricReader) -> None:
    decided.emit()
    emit_result(Publication(path="marts/small", rows=5_000, keys=200, turn=1), "small")
    data = received.get_metrics_data()
    assert data is not None
    found = {
        metric.name: [(point.value, dict(point.attributes or {})) for point in metric.data.data_points]  # type: ignore[union-attr]
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }
    report, next_plan = decided.report, decided.decision.next_plan
    assert next_plan is not None
    committed = decided.run.committed("stages/0000")
    told = {
        "task_count": len(next_plan.tasks),
        "plan_generation_ns": 12_345_678_901,
        "input_consumption_ns": 2_500_000_000,
        "disk_usage": sum(file.size_bytes for file in committed.files),
        "processed": report.processed_rows,
        "backlog": report.backlog_rows,
        "forwarded": report.forwarded_rows,
        "max_over_mean": report.max_over_mean,
    }
    of_stage, of_result = {"dag_id": "small", "stage": "1"}, {"dag_id": "small"}
    assert found == {
        **{f"airflow.skewless.{name}": [(value, of_stage)] for name, value in told.items()},
        "airflow.skewless.published_rows": [(5_000, of_result)],
        "airflow.skewless.published_keys": [(200, of_result)],
    }
    assert sorted(name.removeprefix(_PREFIX) for name in found) == sorted(_GAUGES)
    assert committed.files, "or a disk that is used shows nothing"


def test_what_was_not_measured_is_not_told(decided: Decided, received: InMemoryMetricReader) -> None:
    Path(decided.run.path("times/stage-0.json")).unlink()
    decided.emit()
    data = received.get_metrics_data()
    assert data is not None
    names = {metric.name for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    assert "airflow.skewless.processed" in names
    assert "airflow.skewless.input_consumption_ns" not in names


def test_the_dashboard_shows_every_gauge_and_no_other() -> None:
    board = json.loads((PROJECT / "deploy" / "grafana" / "skewless.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [one["query"] for one in board["templating"]["list"] if one["name"] == "dag_id"]
    shown = {name for text in asked for name in re.findall(r"\bairflow_\w+", text)}
    assert shown == {f"{_PREFIX}{name}".replace(".", "_") for name in _GAUGES}
    assert all("{dag_id=~" in text for text in asked[:-1])
