"""What a spec says of its DAG, seen where it arrives: at the DAG, at spark-submit, and at receivers of notifiers."""

from __future__ import annotations

import datetime as dt
import email
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from airflow.sdk import DAG, Context
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.serialization.serialized_objects import DagSerialization
from fastapi import Request

from skewless.documents.steps import Failure
from skewless.errors import SpecError
from skewless.run.directory import RunDirectory
from skewless.spec.spec import JobSpec
from skewless_airflow import adaptive_aggregation, build_dag
from skewless_airflow.dags.catalog import build_restating_dag
from skewless_airflow.observability import notifiers
from skewless_airflow.observability.links import skew_page
from skewless_airflow.operators.spark_step import SkewlessSparkOperator
from skewless_airflow.run_store import run_location
from skewless_airflow.web.rendering.template import page
from skewless_airflow.web.views.quality import histories, observed_line, read_quality
from tests import airflow_setting
from tests.airflow.test_dag_structure import SPEC
from tests.airflow.web_scenario import Moments, synthetic_run

pytestmark = airflow_setting.IN_PROCESS

WHOLE = {
    **SPEC,
    "schedule": {"cron": "0 2 * * *"},
    "airflow": {
        "owner": "team-data", "tags": ["clicks", "nightly"], "retries": 5, "retry_delay_seconds": 300, "queue": "big",
        "priority": 10, "deadline_minutes": 120, "timeout_minutes": 240,
        "on_failure": [{"kind": "email", "to": ["a@b.c"]}], "on_success": [{"kind": "email", "to": ["a@b.c"]}],
    },
    "spark": {
        "conn_id": "spark_east", "pool": "spark",
        "conf": {"spark.a": "b", "spark.n": 4, "spark.t": True},
        "environment": {"ZONE": "east"}, "driver_memory": "3g",
    },
}  # fmt: skip


def test_each_field_arrives_at_the_dag_and_its_tasks() -> None:
    dag = build_dag(JobSpec.model_validate(WHOLE))
    assert dag.tags == {"skewless", "clicks", "nightly"}
    assert dag.dagrun_timeout == dt.timedelta(minutes=240)
    (late,) = [dag.deadline] if isinstance(dag.deadline, DeadlineAlert) else dag.deadline or []
    assert (late.interval, late.reference) == (dt.timedelta(minutes=120), DeadlineReference.DAGRUN_QUEUED_AT)
    assert callable(dag.on_failure_callback)
    assert callable(dag.on_success_callback)
    for task in dag.tasks:
        assert (task.owner, task.retries, task.retry_delay) == ("team-data", 5, dt.timedelta(seconds=300))
        assert (task.queue, task.priority_weight) == ("big", 10)
        assert task.pool == ("spark" if isinstance(task, SkewlessSparkOperator) else "default_pool")


def test_a_group_in_a_dag_of_ones_own_and_the_dag_that_restates_have_what_is_of_their_tasks() -> None:
    spec = JobSpec.model_validate({**WHOLE, "input": {"path": "in/{date}"}, "window": 2})
    with DAG("mine", schedule=None, default_args={"queue": "mine"}) as dag:
        adaptive_aggregation(spec)
    assert {(task.owner, task.queue, task.retries) for task in dag.tasks} == {("team-data", "mine", 5)}
    with DAG("plain", schedule=None) as plain:
        adaptive_aggregation(JobSpec.model_validate(SPEC))
    assert {task.owner for task in plain.tasks} == {"airflow"}, "the DAG's own"
    restate = build_restating_dag(spec, "small.yaml", auto_register=False)
    assert {(task.owner, task.queue, task.priority_weight) for task in restate.tasks} == {("team-data", "big", 10)}
    assert callable(restate.on_failure_callback)


def test_each_field_of_spark_arrives_at_spark_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"conn_type": "spark", "host": "spark://east:7077", "extra": {"deploy-mode": "client"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_EAST", json.dumps(given))
    dag = build_dag(JobSpec.model_validate(WHOLE), default_args={"conf": {"spark.c": "d"}})
    step = dag.get_task("merge")
    assert isinstance(step, SkewlessSparkOperator)
    asked = step.step_of(RunDirectory("/nowhere"), Context())
    words = asked.command()
    assert words[:3] == ["spark-submit", "--master", "spark://east:7077"]
    assert {"spark.a=b", "spark.n=4", "spark.t=true", "spark.c=d", "spark.driver.memory=2g"} <= set(words), (
        "the size comes with the run's options"
    )
    assert words[words.index("--deploy-mode") + 1] == "client"
    assert asked.variables == {"ZONE": "east"}


def test_a_runs_documents_have_nothing_of_it_so_it_may_change_meanwhile() -> None:
    spec = JobSpec.model_validate(WHOLE)
    plain = JobSpec.model_validate({**SPEC, "schedule": WHOLE["schedule"], "spark": {"driver_memory": "3g"}})
    assert spec.model_dump_json() == plain.model_dump_json()
    assert spec != plain
    assert spec.of_run == plain


# Notifiers, each at a receiver on this machine.


class Received:
    """What a server was sent."""

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.posts: list[tuple[str, Any]] = []


def _received(handler: socketserver.BaseRequestHandler) -> Received:
    found: Received = vars(handler.server)["received"]
    return found


class Smtp(socketserver.StreamRequestHandler):
    """As much of SMTP as sends one mail."""

    def handle(self) -> None:
        self._say("220 here")
        for line in self.rfile:
            word = line[:4].upper()
            if word == b"EHLO":
                self._say("250 here")
            elif word == b"DATA":
                self._say("354 go on")
                lines = list(iter(self.rfile.readline, b".\r\n"))
                _received(self).mails.append(email.message_from_bytes(b"".join(lines)))
                self._say("250 taken")
            elif word == b"QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 good")

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class Http(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        _received(self).posts.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    """Receivers of mails and of requests, to which Airflow's default connections lead."""
    found = Received()

    mails, posts = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Smtp), ThreadingHTTPServer(("127.0.0.1", 0), Http)
    for server in (mails, posts):
        vars(server)["received"] = found
        threading.Thread(target=server.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{posts.server_address[1]}"
    for name, conn in {
        "smtp_default": {
            "conn_type": "smtp", "host": "127.0.0.1", "port": mails.server_address[1],
            "extra": {"disable_ssl": True, "disable_tls": True, "from_email": "skewless@example.org"},
        },
        "slack_default": {"conn_type": "slackwebhook", "host": at, "password": "T1/B2/secret"},
        "portal": {"conn_type": "http", "host": at},
    }.items():  # fmt: skip
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(conn))
    yield found
    for server in (mails, posts):
        server.shutdown()
        server.server_close()


NIGHT: Any = {"dag_run": SimpleNamespace(dag_id="small", run_id="r")}


def _told(received: Received, kind: str) -> list[str]:
    if kind == "email":
        return [
            cast("bytes", part.get_payload(decode=True)).decode()
            for mail in received.mails
            for part in mail.walk()
            if not part.is_multipart()
        ]
    return [body["text"] for _, body in received.posts]


@pytest.fixture
def failed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run that failed, with a reason that looks like a template and like markup."""
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    run = RunDirectory(run_location("small", "r"))
    reason = "page <b>{{ 7 * 7 }}</b> is null."
    run.write_once("failures/validate-2-0a1b2c3d.json", Failure(exit_code=3, sentence=reason))
    return reason


def _notifier(kind: str) -> dict[str, Any]:
    more: dict[str, dict[str, Any]] = {
        "email": {"to": ["a@b.c", "d@e.f"]},
        "webhook": {"conn_id": "portal", "endpoint": "runs/new"},
    }
    return {"kind": kind, **more.get(kind, {})}


def _failed(dag: DAG) -> None:
    assert callable(dag.on_failure_callback)
    dag.on_failure_callback(NIGHT)


def _succeeded(dag: DAG) -> None:
    assert callable(dag.on_success_callback)
    dag.on_success_callback(NIGHT)


def _late(dag: DAG) -> None:
    """As Airflow's executor runs what a deadline calls, from what is stored of the DAG."""
    (stored,) = DagSerialization.to_dict(dag)["dag"]["deadline"]
    called = stored["callback"]["__data__"]
    kwargs = {**called["kwargs"], "context": {"dag_run": {"dag_id": "small", "dag_run_id": "r"}}}
    module, _, name = called["path"].rpartition(".")
    getattr(import_module(module), name)(**kwargs)


def test_a_published_run_that_warns_says_so_in_its_message_and_on_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    night = Moments(run_location("small", "r"), synthetic_run()).prepare().stages().merge()
    night.validate(success=False, severity="quarantine")
    facts = notifiers.run_facts_of(NIGHT, "succeeded")
    assert facts["sentence"].startswith(
        "Job small, run r, succeeded: 3 keys in quarantine, of 70 rows of the input; quarantined: occurrences: values "
        "between, max_value=5 (1 of 400 values unexpected; in /page/1: 60,000; "
    )
    found = read_quality(night.run)
    assert found is not None
    assert (found.success, found.failed, found.held) == (True, (), 3)
    titles = [title for title, _ in found.sections]
    assert titles[0] == "Warnings and quarantine"
    request = Request({"type": "http", "path": "/skewless/dags/small/runs/r/quality", "headers": []})
    shown = page(
        request, "quality.html", dag_id="small", run_id="r", group="", job=None, quality=found, going_on=False,
        history=histories(found.checks, []), observed_line=observed_line, bands=[],
    ).body.decode()  # fmt: skip
    assert "<strong>Quarantine:</strong> 3 keys in quarantine, of 70 rows of the input." in shown
    assert "! quarantined</span>" in shown
    assert "Nothing was published" not in shown


@pytest.mark.usefixtures("failed_run")
@pytest.mark.parametrize("kind", ["email", "slack", "webhook"])
@pytest.mark.parametrize(
    ("field", "happen", "words"),
    [
        ("on_failure", _failed, "failed: validate: page <b>{{ 7 * 7 }}</b> is null."),
        ("on_success", _succeeded, "succeeded."),
        ("deadline", _late, "is late."),
    ],
)
def test_a_notifier_tells_its_receiver(
    received: Received, kind: str, field: str, happen: Callable[[DAG], None], words: str
) -> None:
    given = [_notifier(kind)]
    airflow = {"deadline_minutes": 5, "on_failure": given} if field == "deadline" else {field: given}
    happen(build_dag(JobSpec.model_validate({**SPEC, "airflow": airflow})))
    sentence = f"Job small, run r, {words} {skew_page('small', 'r')}"
    (text,) = _told(received, kind)
    if kind == "email":
        assert text == f"<p>{sentence.replace('<', '&lt;').replace('>', '&gt;')}</p>"
        (mail,) = received.mails
        assert (mail["From"], mail["To"]) == ("skewless@example.org", "a@b.c, d@e.f")
        assert mail["Subject"] == f"Skewless: small {words.partition(':')[0].removesuffix('.')}"
    else:
        assert text == sentence
        ((path, body),) = received.posts
        assert path == {"slack": "/T1/B2/secret", "webhook": "/runs/new"}[kind]
        if kind == "webhook":
            assert (body["job"], body["run"], body["page"]) == ("small", "r", skew_page("small", "r"))


@pytest.mark.usefixtures("failed_run")
def test_who_cannot_be_told_keeps_nobody_else_from_it(received: Received) -> None:
    given = [
        {"kind": "email", "to": ["a@b.c"], "conn_id": "nowhere"},
        {"kind": "email", "to": ["a@b.c"], "message": "{{ outcome.job }}!"},
    ]
    dag = build_dag(JobSpec.model_validate({**SPEC, "airflow": {"on_failure": given}}))
    with pytest.raises(Exception, match="SMTP connection is not found"):
        _failed(dag)
    assert _told(received, "email") == ["<p>small!</p>"]


def test_a_notifier_whose_provider_is_not_installed_is_refused_when_the_dag_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = notifiers.NOTIFIERS["slack"]._replace(module="airflow.providers.gone.notifications.gone")
    monkeypatch.setattr(notifiers, "NOTIFIERS", {**notifiers.NOTIFIERS, "slack": gone})
    spec = JobSpec.model_validate({**SPEC, "airflow": {"on_success": [{"kind": "slack"}]}})
    with pytest.raises(
        SpecError,
        match="notifier slack: expected the package apache-airflow-providers-slack, but got none; pip install",
    ):
        build_dag(spec)


@pytest.mark.parametrize(
    ("section", "given", "words"),
    [
        ("airflow", {"on_failure": [{"kind": "airflow.providers.smtp.SmtpNotifier"}]}, "'email', 'slack' or 'webhook'"),
        ("airflow", {"on_failure": [{"kind": "email"}]}, "expected addresses in to, with kind email, but got none"),
        ("airflow", {"on_failure": [{"kind": "slack", "to": ["a@b.c"]}]}, "expected to only with kind email"),
        (
            "spark",
            {"conf": {"spark.hadoop.fs.s3a.secret.key": "x"}},
            "expected no secrets: they belong into the connection",
        ),
        ("spark", {"environment": {"STORE": "redis://me:pass@host/0"}}, "expected no secrets"),
        (
            "spark",
            {"conf": {"spark.master": "yarn"}},
            "expected no spark.master, which is the connection of spark.conn_id",
        ),
    ],
    ids=["class", "nobody", "field-of-another-kind", "secret-name", "secret-value", "master"],
)
def test_what_a_spec_may_not_say_of_its_dag_is_refused_in_words(
    tmp_path: Path, section: str, given: dict[str, Any], words: str
) -> None:
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({**SPEC, section: given}))
    with pytest.raises(SpecError) as refused:
        build_dag(tmp_path / "small.yaml")
    assert words in str(refused.value)
