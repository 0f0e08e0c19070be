"""A real API server in this process, its users, its DAGs, and run directories at every moment of a run's life."""

import dataclasses
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import yaml
from fastapi.testclient import TestClient

from benchmarks.simulation import Simulation
from skewless.documents.commit import CommittedFile
from skewless.documents.ledger import balance
from skewless.documents.nights import Band, Bands
from skewless.documents.quality import Check, Comparison, DifferingKey, FailingKey, QualityReport, Quarantine, Sides
from skewless.documents.stage_report import Decision
from skewless.documents.step_documents import AS_IT_RAN, PLAIN, Savings, Span, StepBill, StepTimes
from skewless.planner.first_plan import first_plan
from skewless.planner.planner import plan_next_stage
from skewless.publication.records import Overtaken, Publication
from skewless.run.directory import (
    COMPARISON_REPORT,
    COMPARISON_STEP,
    QUALITY_REPORT,
    QUALITY_STEP,
    RESULT_STEP,
    SAVINGS,
    RunDirectory,
    stage_step,
)
from skewless.spec.result import Expectation, Quality
from skewless.spec.spec import Shadow
from skewless_lake.publication import replayed
from tests import airflow_setting
from tests.airflow.test_dag_structure import SPEC
from tests.unit import synthetic

#: A key as somebody with bad intentions would write it into the data.
EVIL = "<img src=x onerror=alert(1)>"
#: What the viewer must never see a trace of.
FORBIDDEN_DAG, DAG = "forbidden", "nightly"
#: Somebody's DAG that has nothing to do with us.
OTHER_DAG = "other"
#: May read DAGs, but not their runs; runs, but not their tasks.
NO_RUNS, NO_TASKS = "noruns", "notasks"
USERS = {"admin": "admin", "viewer": "viewer", "nobody": "", NO_RUNS: "viewer", NO_TASKS: "viewer"}


def band(figure: str, value: float, middle: float = 100.0) -> Band:
    low, high = 0.8 * middle, 1.2 * middle
    return Band(
        figure=figure, share=False, value=value, low=low, middle=middle, high=high, nights=30,
        outcome="passed" if low <= value <= high else "warned",
    )  # fmt: skip


@contextmanager
def served(folder: Path) -> Iterator[dict[str, TestClient]]:
    """Airflow's whole API app with our plugin, and a client for each user, by name; "" has no login."""
    passwords = {name: secrets.token_urlsafe(12) for name in USERS}
    password_file = folder / "passwords.json"
    password_file.write_text(json.dumps(passwords))
    settings = {
        "AIRFLOW__CORE__AUTH_MANAGER": "tests.airflow.web_auth.SomeDenied",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in USERS.items()),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(password_file),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(64),
        "SKEWLESS_ROOT": str(folder / "root"),
        "SKEWLESS_CATALOG": str(folder),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        from airflow.api_fastapi.app import create_app, purge_cached_app

        try:
            app = create_app()
            clients: dict[str, TestClient] = {"": TestClient(app, raise_server_exceptions=False)}
            for name, password in passwords.items():
                clients[name] = TestClient(app, raise_server_exceptions=False)
                answer = clients[name].post("/auth/token", json={"username": name, "password": password})
                clients[name].headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
            yield clients
        finally:
            purge_cached_app()


def make_dags(folder: Path) -> None:
    """Two jobs and a stranger, as Airflow's DAG processor would enter them into its database."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db

    lines = ["# airflow", "from skewless_airflow.dags import build_dag"]
    for name in (DAG, FORBIDDEN_DAG):
        path = folder / f"{name}.yaml"
        nightly = {**SPEC, "name": name, "schedule": {"cron": "0 2 * * *"}, "description": f"About {EVIL}"}
        path.write_text(yaml.safe_dump(nightly))
        lines.append(f"{name} = build_dag({str(path)!r})")
    lines += [
        "from airflow.sdk import DAG, BaseOperator",
        f"with DAG({OTHER_DAG!r}, schedule=None) as other:",
        "    BaseOperator(task_id='prepare')",
    ]
    (airflow_setting.DAGS / "web.py").write_text("\n".join(lines))
    manager = DagBundlesManager()
    manager.sync_bundles_to_db()
    for bundle in manager.get_all_dag_bundles():
        bundle.initialize()
        bag = BundleDagBag(dag_folder=bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
        assert not bag.import_errors
        sync_bag_to_db(bag, bundle.name, bundle.version)


def trigger(client: TestClient, dag_id: str, run_id: str, state: str | None = None) -> None:
    body = {"dag_run_id": run_id, "logical_date": None}
    answer = client.post(f"/api/v2/dags/{dag_id}/dagRuns", json=body)
    assert answer.status_code == 200, answer.text
    if state is not None:
        assert client.patch(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}", json={"state": state}).status_code == 200


def synthetic_run(keys: int = 400, rows: int = 20_000, **routing: Any) -> Simulation:
    counts = synthetic.zipf_rows(keys, 1.3, rows)
    run = synthetic.simulated(counts, waves=(1, 4, 15), **{"reducers": 4, **routing})
    run.texts = [EVIL, "", "line\nend", *list(run.texts)[3:]]
    return run.play()


def large_run(tasks: int, keys: int, stages: int = 3) -> Simulation:
    """The documents of a run with so many tasks and head keys; its counts are not those of any rows."""
    frozen = synthetic.job([1_000_000, 4_000_000, 15_000_000], reducers=tasks, head_limit=keys, stage_overhead=0)
    run, plan = Simulation(frozen, [], np.zeros(0, dtype=np.int64)), first_plan(frozen)
    each = {f"key-{number}": 1 + 5_000_000 // (1 + number) for number in range(keys)}
    left = {key: rows // 2 for key, rows in each.items()}
    admitted, over = sum(each.values()), sum(left.values())
    for stage in range(stages):
        run.plans.append(plan)
        seen = {key: rows * (stage + 1) for key, rows in each.items()}
        came = over if stage else 0
        counts = {"admitted_rows": admitted, "backlog_in_rows": came, "processed_rows": admitted + came - over}
        report = synthetic.report(plan, seen, left)
        each_task, more = divmod(counts["processed_rows"], len(plan.tasks))
        loads = [
            load.model_copy(update={"queued_rows": load.queued_rows + rows, "processed_rows": rows})
            for load, rows in ((load, each_task + (at < more)) for at, load in enumerate(report.tasks))
        ]
        run.reports.append(report.model_copy(update={**counts, "tasks": tuple(loads)}))
        run.decisions.append(plan_next_stage(frozen, plan, run.reports[-1], run.reports[:-1]))
        following = run.decisions[-1].next_plan
        if following is None:
            break
        plan = following
    return run


#: What the spec of each run expects, beside what every run is held to.
_OWN = Expectation(type="expect_column_values_to_be_between", kwargs={"column": "occurrences", "max_value": 5})


class Moments:
    """Writes a simulated run into a run directory step by step, as the Spark steps would."""

    def __init__(self, location: str, simulation: Simulation) -> None:
        self.run, self.simulation = RunDirectory(location), simulation

    def prepare(self) -> "Moments":
        job = self.simulation.job
        spec = job.spec.model_copy(update={"quality": Quality(expectations=(_OWN,))})
        self.run.write_once("job.json", job.model_copy(update={"spec": spec}))
        self.run.write_once("plans/0000.json", self.simulation.plans[0])
        return self

    def stages(self, count: int | None = None) -> "Moments":
        for report in self.simulation.reports[:count]:
            attempt = self.run.new_attempt(stage_step(report.stage))
            attempt.write("report.json", report)
            attempt.commit([], {"processed_rows": report.processed_rows})
            decision: Decision = self.simulation.decisions[report.stage]
            self.run.enact(decision.model_copy(update={"sentence": f"{decision.sentence} {EVIL}"}))
        return self

    def times(self) -> "Moments":
        spans = (
            Span(name=f"run the query {EVIL}", start=1.0, seconds=2.0),
            Span(name="Spark job", start=1.5, seconds=1.0, tasks=24),
        )
        for step in (
            StepTimes(step="prepare", started=10.0, seconds=2.0),
            StepTimes(step="stage 0", started=13.0, seconds=4.0, spans=spans, bill=self._bill()),
        ):
            self.run.write_once(f"times/{step.step.replace(' ', '-')}.json", step)
        return self

    def _bill(self) -> StepBill:
        return StepBill(
            attempts=(self.run.committed(stage_step(0)).attempt,), cores=4, tasks=24, held_seconds=1_600.0,
            used_seconds=111.0, skew_seconds=222.0,
            shuffle_bytes=1_000, spilled_bytes=0,
        )  # fmt: skip

    def merge(self) -> "Moments":
        rows = sum(report.processed_rows for report in self.simulation.reports)
        counts = {"rows": rows, "keys": len(self.simulation.texts)}
        attempt = self.run.new_attempt(RESULT_STEP)
        files = [
            CommittedFile(kind="result", path=f"{attempt.folder}/part.parquet", rows=1, size_bytes=1, checksum="0" * 64)
        ]
        attempt.commit(files, counts)
        return self

    def validate(self, success: bool = True, severity: Literal["fail", "quarantine"] = "fail") -> "Moments":
        """The verdict; of severity quarantine, three keys are left out."""
        rows = sum(report.processed_rows for report in self.simulation.reports)
        ledger = balance(self.simulation.job, self.simulation.reports, rows)
        attempt = self.run.new_attempt(QUALITY_STEP)
        checks = (
            _check("ledger", "ledger_balances", "", True, f"{rows:,} rows of input"),
            *[_check("result", "expect_column_values_to_not_be_null", "key", True, "0 of 400 values unexpected")] * 2,
            _check(
                "result", "expect_column_values_to_be_between", "occurrences", success,
                f"1 of 400 values unexpected, for example ({EVIL}): 7",
            ).model_copy(
                update={
                    "keys": () if success else (FailingKey(key="/page/1", found="60,000"), FailingKey(key=EVIL)),
                    "required": "max_value=5", "severity": severity,
                }
            ),
        )  # fmt: skip
        bands = Bands(nights=30, checks=(band("rows", 90.0), band(f"mean of {EVIL}", 200.0)))
        left_out = Quarantine(keys=3, rows=70) if severity == "quarantine" else None
        good = success or left_out is not None
        report = QualityReport(success=good, keys=400, checks=checks, ledger=ledger, quarantine=left_out, bands=bands)
        attempt.write(QUALITY_REPORT, report)
        attempt.commit([], {"checks": len(checks), "failed": int(not success)})
        return self

    def compare(self, differ: int = 0) -> "Moments":
        """The comparison with another job's result instead of a publication."""
        spec = self.simulation.job.spec.model_copy(update={"shadow": Shadow.model_validate({"with": "old/{date}"})})
        self.simulation = dataclasses.replace(
            self.simulation, job=self.simulation.job.model_copy(update={"spec": spec})
        )
        self.prepare().stages().merge().validate()
        key = DifferingKey(key={"word": EVIL}, columns={"occurrences": Sides(here="7", there=EVIL)})
        found = Comparison(
            beside="old/2026-11-20", keys=400, differ=differ, only_here=0, only_there=0, twice_there=0,
            columns={"occurrences": differ}, within_error=(), lacking=(), types={}, more=(), examples=(key,) * differ,
            tolerance=1e-9, seconds=1.5,
        )  # fmt: skip
        attempt = self.run.new_attempt(COMPARISON_STEP)
        attempt.write(COMPARISON_REPORT, found)
        attempt.commit([], {"keys": found.keys, "differ": found.differ})
        saved = Savings(
            sentence="", policy="adaptive", over_bound=1.04, against_over_bound=1.58, seconds=30.0, against_seconds=90.0
        )
        self.run.write_once(SAVINGS, saved)
        return self

    def publish(self, superseded: Overtaken | None = None, snapshot: int | None = None) -> "Moments":
        """The record of the publication, or by whom it was superseded; with a snapshot, of a table."""
        path = "/out/date=2026-11-20" if snapshot is None else "iceberg://lake.marts.clicks/date=2026-11-20"
        record = Publication(path=path, rows=1, keys=1, turn=1, superseded=superseded, snapshot=snapshot)
        self.run.write_once("publish/published.json", record)
        found = Savings(sentence=f"Plain hashing would have made {EVIL} 1.5 times as long.", policy="adaptive")
        self.run.write_once(SAVINGS, found)
        for policy in (AS_IT_RAN, PLAIN):
            replayed(self.run, policy)
        return self


def _check(subject: str, expectation: str, column: str, success: bool, found: str) -> Check:
    return Check(subject=subject, expectation=expectation, column=column, success=success, observed="", found=found)
