"""Nights of a job whose workers are killed: ``python -m tests.killed_workers RUNNER FOLDER KILLS``.

The operators, hooks and triggers are those of Airflow's providers and ours. Of Airflow there is what matters here: each
try of a task, and each trigger, is a process of its own. One that was killed is begun again: a task from its start, a
trigger with what it was given. The kill comes by SIGKILL at a moment that a seed draws: before or after a request is
answered, or when a process has done all and has not told it yet. The steps are run by our own entry, one after the
other, in a Spark session that stays: that stands for the cluster.

By ``spark-submit`` the driver is a real one, and the kill comes at any time.
"""

import contextlib
import datetime as dt
import importlib
import json
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

JOB, DAY = "killed_words", dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
COUNTS = {"self": 90, "if": 30, "": 2, **{f"word-{n}": 1 + n % 9 for n in range(20)}}
SPARK_STEPS = ("prepare", "stage_00.run", "merge", "validate")
STEPS = ("prepare", "stage_00.run", "stage_01.plan", "merge", "validate", "publish")
#: Of a try that fails, and of nothing that is killed.
MOST_FAILURES = 3
#: What a real driver takes, and what it has to end after its task.
DRIVER_SECONDS, LAST_SECONDS = 8.0, 10.0
#: Of a run or an application, in requests.
_NAMES = re.compile(r"\?.*|skewless-killed[\w-]*|(?<=/)\d+(?=/|$)|(?<=applications/)\w+|(?<=jobruns/)\w+")
#: With this variable the first application of each step ends at once, without a word.
FIRST_FAILS = "SKEWLESS_FIRST_FAILS"
_NOTHING: Mapping[str, Any] = {}


class LostError(Exception):
    """Who asked is no more."""


class Moments:
    """Kills the process that works, at the moments that are drawn: rather at one at which none was killed yet."""

    def __init__(self, folder: Path, seed: str, kills: int) -> None:
        self._worker, self._draws, self._left = folder / "worker", random.Random(seed), kills
        self._lock, self.killed = threading.Lock(), Counter[str]()

    def __call__(self, moment: str) -> None:
        moment = _NAMES.sub("*", moment)
        with self._lock:
            self.killed[moment] += 0
            chance = 0.5 if self.killed[moment] == min(self.killed.values()) else 0.05
            if self._left and self._worker.exists() and self._draws.random() < chance:
                self._left -= 1
                self.killed[moment] += 1
                with contextlib.suppress(ProcessLookupError):  # the trigger of a task that is over
                    os.kill(int(self._worker.read_text()), signal.SIGKILL)
                raise LostError(moment)


class Process:
    """One of the other roles of this module, which answers a line with a line."""

    def __init__(self, log: Path, *words: str, **variables: str) -> None:
        command = [sys.executable, "-m", "tests.killed_workers", *words]
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command, env={**os.environ, **variables}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out,
                text=True,
            )  # fmt: skip
        self._lock = threading.Lock()
        self.close = self._process.communicate

    def ask(self, question: Any) -> Any:
        with self._lock:
            assert self._process.stdin
            assert self._process.stdout
            print(json.dumps(question), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())

    def begin(self, application: Any) -> None:
        def run() -> None:
            application.code = self.ask(application.words)

        threading.Thread(target=run, daemon=True).start()


def answer_lines(make: Callable[[], Callable[[Any], Any]]) -> None:
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is imported may have something to say
    act = make()
    for line in sys.stdin:
        print(json.dumps(act(json.loads(line))), file=lines, flush=True)


def run_step(words: list[str]) -> int:
    from skewless_spark.entries.pipeline import main

    if FIRST_FAILS in os.environ and re.search(r"-1-[0-9a-f]{8}$", words[-1]):  # by the name of its failure
        return 1
    try:
        main(words)
    except SystemExit as err:
        return int(err.code or 0)
    return 0


def host(runner: str, folder: Path, kills: int) -> dict[str, Any]:
    """Run nights until so many workers were killed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tests.stand_in_livy import json_server
    from tests.stand_in_services import spark_submit, words_of

    for place in ("root/words", "bin"):
        (folder / place).mkdir(parents=True)
    words = [word for word, rows in COUNTS.items() for _ in range(rows)]
    pq.write_table(pa.table({"word": words}), folder / "root" / "words" / "0.parquet")
    moments, engine = Moments(folder, runner, kills), Process(folder / "spark.log", "spark")
    service = _service(runner, engine, folder, moments)

    def answer(method: str, path: str, body: Any) -> tuple[int, Any]:
        if path in {"/moment", "/starting"}:
            moments(body if path == "/moment" else "while spark-submit starts")
            return 200, 0
        if path == "/spark-submit" and runner != "yarn":
            return 200, engine.ask(words_of(body))
        moments(f"before {method} {path}")
        answered: tuple[int, Any] = service.answer(method, path, body)
        moments(f"after {method} {path}")
        return answered

    with contextlib.ExitStack() as held:
        held.callback(engine.close)
        asked = held.enter_context(json_server(answer))
        address = held.enter_context(service.served()) if hasattr(service, "served") else asked
        if runner != "spark_submit":
            spark_submit(folder / "bin", asked, seconds=1.5 if runner == "yarn" else 0)
        submit = {**service.submit, **({"package": "file:///package"} if service.submit else {})}
        (folder / "spec.json").write_text(json.dumps({
            "name": JOB, "input": {"path": "words"}, "key": "word", "aggregates": {"n": "count"},
            "routing": {"waves": [1], "reducers": 2}, "output": {"path": "published/words", "files": 1},
            "spark": {"submit": submit, "conf": {"spark.sql.shuffle.partitions": 2}},
        }))  # fmt: skip
        variables = {
            **service.variables(address, folder), "AIRFLOW_HOME": str(folder / "airflow"), "ASKED": asked,
            "SKEWLESS_ROOT": str(folder / "root"), "SKEWLESS_RUNS": (folder / "root" / "runs").as_uri(),
            "SKEWLESS_WARM_DRIVER": "0", "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }  # fmt: skip
        tasks = Process(folder / "tasks.log", "tasks", runner, str(folder), str(kills), **variables)
        held.callback(tasks.close)
        nights = list[dict[str, Any]]()
        while sum(night["killed"] for night in nights) < kills:
            night, name = tasks.ask(len(nights)), f"date=2026-11-{len(nights) + 1:02d}"
            table = pq.read_table(folder / "root" / "published" / "words" / name, partitioning=None)
            night["right"] = dict(zip(*table.to_pydict().values(), strict=True)) == COUNTS
            replaced = (folder / "root" / "published" / ".words.skewless" / "kept" / name).iterdir()
            nights.append({**night, "published": 1 + len(list(replaced))})
    return {"nights": nights, "names": Counter(service.names), "moments": moments.killed}


def _service(runner: str, engine: Process, folder: Path, moments: Moments) -> Any:
    from tests import stand_in_services as services
    from tests.stand_in_livy import Livy

    match runner:
        case "livy":
            return Livy(folder, [str(folder / "bin" / "spark-submit")])
        case "dataproc":
            from tests.stand_in_dataproc import Dataproc

            return Dataproc(engine.begin, moments)
        case "emr_serverless":
            return services.EmrServerless(engine.begin, moments)
        case "spark_submit":
            local = {"AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"})}
            return SimpleNamespace(submit={}, names=[], variables=lambda *_: local)
    services.Kubernetes.lag = 0.5
    kinds = {"databricks": services.Databricks, "kubernetes": services.Kubernetes, "yarn": services.Yarn}
    return kinds[runner](engine.begin)


class Nights:
    """The tasks of a night, one after the other, each of them tried until it ends well."""

    def __init__(self, runner: str, folder: Path, kills: int) -> None:
        from skewless.spec import JobSpec
        from skewless_airflow.dags import build_dag
        from skewless_airflow.operators.run_tasks import PublishOperator
        from skewless_airflow.runners import kubernetes, yarn

        class Publish(PublishOperator):
            def _told(self, *_: Any) -> bool:  # which asks Airflow's database
                return False

        yarn._POLL_SECONDS = kubernetes._POLL_SECONDS = 0.2
        if runner == "dataproc":
            from tests.stand_in_dataproc import on_this_machine

            on_this_machine()
        self._folder, self._draws = folder, random.Random(runner)
        self._timed = kills if runner == "spark_submit" else 0
        self._dag = build_dag(JobSpec.model_validate_json((folder / "spec.json").read_text()))
        self._dag.get_task("publish").__class__ = Publish

    def play(self, number: int) -> Counter[str]:
        self._counts = Counter(killed=0, deferred=0, beside=0)
        for step in STEPS:
            self._try_until_done(step, DAY + dt.timedelta(days=number))
        return self._counts

    def _try_until_done(self, step: str, day: dt.datetime) -> None:
        failures, number, done = 0, 0, None
        while failures < MOST_FAILURES:
            number += 1
            done = self._process(self._attempt, step, day, number)
            while done is not None and done[0] == "deferred":
                self._counts["deferred"] += 1
                _, trigger, method, kept = done
                event = None
                while event is None:  # a trigger that was lost is begun again
                    event = self._process(_event_of, *trigger)
                done = self._process(self._attempt, step, day, number, method, {"event": event, **kept})
            if done is not None and done[0] == "done":
                return
            failures += done is not None
        raise AssertionError(f"{step} has failed: {done}")

    def _process(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """What a process of its own comes to; None if it was killed."""
        worker, outcome = self._folder / "worker", self._folder / "outcome"
        worker.unlink(missing_ok=True)
        if (pid := os.fork()) == 0:
            code = 1
            try:
                worker.with_suffix(".new").write_text(str(os.getpid()))
                worker.with_suffix(".new").rename(worker)
                done = pickle.dumps(act(*arguments))
                request = urllib.request.Request(f"{os.environ['ASKED']}/moment", b'"the end of a process"')
                urllib.request.urlopen(request).close()
                outcome.write_bytes(done)
                code = 0
            except BaseException:  # noqa: BLE001  # this process ends here
                traceback.print_exc()
            finally:
                os._exit(code)
        if self._timed and self._draws.random() < 0.6:
            until = time.monotonic() + self._draws.uniform(0, DRIVER_SECONDS)
            while time.monotonic() < until and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                time.sleep(0.01)
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        if os.WIFSIGNALED(status):
            self._timed = max(0, self._timed - 1)
            self._counts.update(killed=1, beside=self._drivers_left())
            return None
        assert status == 0, f"exit code {status}"
        return pickle.loads(outcome.read_bytes())

    def _drivers_left(self) -> int:
        """How many processes of a driver outlive its task: it would work beside the next one."""
        from tests.listening import drivers_of

        until = time.monotonic() + LAST_SECONDS
        while (left := drivers_of(str(self._folder), "pipeline.py")) and time.monotonic() < until:
            time.sleep(0.1)
        return len(left)

    def _attempt(
        self, step: str, day: dt.datetime, number: int, method: str = "execute", kept: Mapping[str, Any] = _NOTHING
    ) -> Any:
        from airflow.sdk.exceptions import AirflowException, AirflowSkipException, TaskDeferred
        from airflow.sdk.execution_time.context import OutletEventAccessors

        run = {"dag_id": JOB, "run_id": f"night-{day.day}"}
        ti = SimpleNamespace(
            **run, id=f"{number:08d}", task_id=step, try_number=number, map_index=-1, xcom_push=lambda **_: None,
            start_date=dt.datetime.now(tz=dt.UTC),
        )  # fmt: skip
        dag_run = SimpleNamespace(
            **run, run_type="manual", conf={}, partition_key=None, consumed_asset_events=(), logical_date=day,
            run_after=day,
        )  # fmt: skip
        task = self._dag.get_task(step)
        context: Any = {
            "ti": ti, "task_instance": ti, "dag": self._dag, "dag_run": dag_run, "run_id": dag_run.run_id,
            "task": task, "outlet_events": OutletEventAccessors(),
        }  # fmt: skip
        try:
            getattr(task, method)(context, **kept)
        except TaskDeferred as deferred:
            return "deferred", deferred.trigger.serialize(), deferred.method_name, deferred.kwargs or {}
        except AirflowSkipException:
            return "done", "skipped"
        except AirflowException as err:
            return "failed", str(err)
        return "done", ""


def _event_of(kind: str, arguments: dict[str, Any]) -> Any:
    from tests.stand_in_services import event_of

    module, _, name = kind.rpartition(".")
    return event_of(getattr(importlib.import_module(module), name)(**arguments))


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    if role == "spark":
        answer_lines(lambda: run_step)
    elif role == "tasks":
        answer_lines(lambda: Nights(rest[0], Path(rest[1]), int(rest[2])).play)
    else:
        began = time.monotonic()
        outcome = host(role, Path(rest[0]), int(rest[1]))
        sys.stdout.write(json.dumps({**outcome, "seconds": time.monotonic() - began}) + "\n")
