"""Stand-ins for the services that run Spark: each holds requests to what the provider's client documents.

Whether an application runs, and how it ends, is for the test to say. They are not the services: who asks is not
checked, and nothing is kept. Livy's is in ``tests.stand_in_livy``, Dataproc's in ``tests.stand_in_dataproc``.
"""

import asyncio
import contextlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import boto3
from moto.emrserverless.models import emrserverless_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


def event_of(trigger: Any) -> Any:
    """The first event of a trigger, as the triggerer takes it."""

    async def first() -> Any:
        async with contextlib.aclosing(trigger.run()) as events:
            return (await anext(events)).payload

    return asyncio.run(first())


@dataclass
class Application:
    """What was submitted: its name, what the service was sent, the arguments of the step, and how it ended."""

    name: str
    body: Any
    words: list[str]
    code: int | None = None
    since: float = field(default_factory=time.monotonic)

    def state(self, runs: str, well: str, badly: str) -> str:
        return runs if self.code is None else badly if self.code else well


class Service:
    """Applications in the order in which they began; ``begun`` is told of each."""

    #: Of the spec's ``spark.submit``.
    submit: dict[str, Any]

    def __init__(self, begun: Callable[[Application], object] = lambda _: None) -> None:
        self.applications = list[Application]()
        self._begun = begun

    @property
    def names(self) -> list[str]:
        return [application.name for application in self.applications]

    def begin(self, name: str, body: Any, words: list[str]) -> Application:
        application = Application(name, body, words)
        self.applications.append(application)
        self._begun(application)
        return application

    def named(self, name: str) -> Application | None:
        return next((one for one in reversed(self.applications) if one.name == name), None)

    def variables(self, address: str, folder: Path) -> dict[str, str]:  # noqa: ARG002  # Kubernetes' has a file there
        """Of Airflow's environment."""
        host, port = address.removeprefix("http://").split(":")
        return self.connection(host, int(port))

    def connection(self, host: str, port: int) -> dict[str, str]:
        raise NotImplementedError

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        raise NotImplementedError


class Databricks(Service):
    """Its jobs API: a token gives the run that there is."""

    submit = {  # noqa: RUF012
        "runner": "databricks", "polling_period_seconds": 1,
        "new_cluster": {"spark_version": "18.x", "num_workers": 2, "spark_conf": {"spark.x": "y"}},
    }  # fmt: skip

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if (method, path) == ("POST", "/api/2.2/jobs/runs/submit"):
            if (run := self.named(body["idempotency_token"])) is None:
                run = self.begin(body["idempotency_token"], body, body["tasks"][0]["spark_python_task"]["parameters"])
            return 200, {"run_id": 1 + self.applications.index(run)}
        url = urlsplit(path)
        number = int(parse_qs(url.query).get("run_id", [body and body["run_id"]])[0])
        run = self.applications[number - 1]
        if (method, url.path) == ("POST", "/api/2.2/jobs/runs/cancel"):
            run.code = 1
            return 200, {}
        assert (method, url.path) == ("GET", "/api/2.2/jobs/runs/get"), path
        state = {"life_cycle_state": run.state("RUNNING", "TERMINATED", "TERMINATED"), "state_message": ""}
        if run.code is not None:
            state["result_state"] = run.state("", "SUCCESS", "FAILED")
        return 200, {"job_id": 7, "run_id": number, "run_page_url": f"https://bricks/run/{number}", "state": state}

    def connection(self, host: str, port: int) -> dict[str, str]:
        return {"AIRFLOW_CONN_DATABRICKS_DEFAULT": f"databricks://:token@{host}:{port}/http"}


class Yarn(Service):
    """Its resource manager's REST API. ``spark-submit`` is one that asks it to begin an application."""

    submit = {"runner": "yarn", "yarn_queue": "night"}  # noqa: RUF012
    _APPS = "/ws/v1/cluster/apps"

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        url = urlsplit(path)
        if (method, url.path) == ("POST", "/starting"):
            return 200, 0
        if (method, url.path) == ("POST", "/spark-submit"):
            self.begin(re.findall(r"spark\.yarn\.tags=(\S+)", " ".join(body))[0], body, words_of(body))
            return 200, 0
        if method == "PUT":
            number = int(url.path.removeprefix(self._APPS).split("_")[-1].removesuffix("/state"))
            self.applications[number].code = 1
            return 200, body
        assert (method, url.path) == ("GET", self._APPS), path
        (tag,) = parse_qs(url.query)["applicationTags"]
        found = [
            {
                "id": f"application_1_{number}", "state": one.state("RUNNING", "FINISHED", "FAILED"),
                "finalStatus": one.state("UNDEFINED", "SUCCEEDED", "FAILED"), "diagnostics": "",
            }
            for number, one in enumerate(self.applications) if one.name == tag
        ]  # fmt: skip
        return 200, {"apps": {"app": found} if found else None}

    def connection(self, host: str, port: int) -> dict[str, str]:
        extra = {"yarn_resourcemanager_webapp_address": f"http://{host}:{port}"}
        return {"AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra})}


def words_of(command: list[str]) -> list[str]:
    """The arguments of a step in a command of ``spark-submit``: what follows its file."""
    entry = next(number for number, word in enumerate(command) if word.endswith(".py"))
    return command[entry + 1 :]


#: What stands for ``spark-submit``: it starts, tells a server of its arguments, and ends as that answers.
_STUB = """#!{python} -SE
import contextlib, json, sys, time, urllib.request
def ask(path):
    words = json.dumps(sys.argv[1:]).encode()
    return json.load(urllib.request.urlopen(urllib.request.Request("{address}" + path, words)))
with contextlib.suppress(OSError):
    ask("/starting")
time.sleep(float("{seconds}"))
sys.exit(ask("/spark-submit"))
"""


def spark_submit(folder: Path, address: str, seconds: float = 0.0) -> None:
    """Write a ``spark-submit`` that submits to a stand-in, some seconds after its start."""
    (folder / "spark-submit").write_text(_STUB.format(python=sys.executable, address=address, seconds=seconds))
    (folder / "spark-submit").chmod(0o755)


class Kubernetes(Service):
    """Its API server, with a Spark Operator.

    Attributes:
        lag: the seconds after which it starts a driver.
    """

    lag = 0.0
    submit = {  # noqa: RUF012
        "runner": "kubernetes", "namespace": "night", "log_events_on_startup": False, "poll_interval": 0.2,
        "startup_check_interval_seconds": 1, "template_spec": {
            "spec": {"image": "registry/skewless:1", "sparkVersion": "4.3.0", "driver": {"cores": 1}, "executor": {}},
        },
    }  # fmt: skip
    _CUSTOM = "/apis/sparkoperator.k8s.io/v1beta2/namespaces/night/sparkapplications"
    _PODS = "/api/v1/namespaces/night/pods"

    def __init__(self, begun: Callable[[Application], object] = lambda _: None) -> None:
        super().__init__(begun)
        self.made = dict[str, Application]()

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        url = urlsplit(path)
        if url.path.startswith(self._PODS):
            return self._answer_of_pods(url.path.removeprefix(self._PODS), parse_qs(url.query))
        name = url.path.removeprefix(self._CUSTOM).removeprefix("/").removesuffix("/status")
        assert url.path.startswith(self._CUSTOM), path
        if method == "POST":
            name = body["metadata"]["name"]
            if name in self.made:
                return 409, {"kind": "Status", "reason": "AlreadyExists"}
            self.made[name] = self.begin(name, body, body["spec"]["arguments"])
            return 201, body
        if name not in self.made:
            return _GONE
        one = self.made.pop(name) if method == "DELETE" else self.made[name]
        state = one.state("RUNNING", "COMPLETED", "FAILED") if self._started(one) else "SUBMITTED"
        return 200, {**one.body, "status": {"applicationState": {"state": state}}}

    def _started(self, one: Application) -> bool:
        return time.monotonic() - one.since >= self.lag

    def _answer_of_pods(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        if not path:
            asked = dict(re.findall(r"([\w-]+)=([\w.-]+)", query["labelSelector"][0]))
            assert asked["spark-role"] == "driver"
            mine = [one for one in self.made.values() if self._labels(one)["task_id"] == asked["task_id"]]
            live = [self._pod(one) for one in mine if self._started(one) and not one.code]
            return 200, {"kind": "PodList", "apiVersion": "v1", "items": live}
        name, _, part = path.removeprefix("/").partition("/")
        if (one := self.made.get(name.removesuffix("-driver"))) is None:
            return _GONE
        return 200, "a line of the driver" if part == "log" else self._pod(one)

    def _labels(self, one: Application) -> dict[str, str]:
        return one.body["spec"]["driver"]["labels"]

    def _pod(self, one: Application) -> dict[str, Any]:
        name = "spark-kubernetes-driver"
        how = {"running": {}} if one.code is None else {"terminated": {"exitCode": one.code}}
        container = {"name": name, "state": how, "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
        return {
            "metadata": {"name": f"{one.name}-driver", "namespace": "night", "labels": self._labels(one)},
            "spec": {"containers": [{"name": name}]},
            "status": {"phase": one.state("Running", "Succeeded", "Failed"), "containerStatuses": [container]},
        }

    def variables(self, address: str, folder: Path) -> dict[str, str]:
        (config := folder / "kube.yaml").write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
            "clusters": [{"name": "k", "cluster": {"server": address}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        }))  # fmt: skip
        connection = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(config)}}
        return {"AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps(connection)}


_GONE = (404, {"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "code": 404})


class EmrServerless(Service):
    """Moto's server, with what it has been told of job runs.

    Args:
        watch: is told of each request before and after it is answered.
    """

    def __init__(
        self, begun: Callable[[Application], object] = lambda _: None, watch: Callable[[str], None] = lambda _: None
    ) -> None:
        super().__init__(begun)
        self._watch, self._moto = watch, DomainDispatcherApplication(create_backend_app)
        self._runs = list[Any]()

    def _answer(self, environ: dict[str, Any], start: Any) -> list[bytes]:
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
        self._watch(f"before {request}")
        for run, one in zip(self._runs, self.applications, strict=True):
            if one.code is not None:
                run.state = one.state("", "SUCCESS", "FAILED")
        answer = list(self._moto(environ, start))
        runs = emrserverless_backends["123456789012"]["eu-west-1"].job_runs.get(self.submit["application_id"], ())
        for run in runs[1 + len(self._runs) :]:
            run.state = "RUNNING"
            self._runs.append(run)
            self.begin(str(run.name), run, cast("Any", run).job_driver["sparkSubmit"]["entryPointArguments"])
        self._watch(f"after {request}")
        return answer

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        """The address of its server."""
        self.submit = {"application_id": ""}
        server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
            client = boto3.client("emr-serverless", endpoint_url=address, region_name="eu-west-1", **keys)
            ident = client.create_application(name="a", releaseLabel="emr-7.13.0", type="SPARK", clientToken="t")
            role, ident = "arn:aws:iam::123456789012:role/spark", ident["applicationId"]
            # Moto lists the runs of an application only once it has had one.
            client.start_job_run(applicationId=ident, clientToken="first", executionRoleArn=role, name="another")
            self.submit = {
                "runner": "emr_serverless",
                "application_id": ident,
                "execution_role_arn": role,
                "waiter_delay": 1,
            }
            yield address
        finally:
            server.shutdown()

    def connection(self, host: str, port: int) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_DEFAULT_REGION": "eu-west-1", "AIRFLOW_CONN_AWS_DEFAULT": "aws://",
        }  # fmt: skip
