"""A Spark step as its task asks for it, and what runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import Connection

#: Where a connection names the server that knows of YARN's applications.
YARN_SERVER = "yarn_resourcemanager_webapp_address"


@dataclass(frozen=True)
class Target:
    """Where a step's connection has it run.

    Attributes:
        master: Spark's, as the provider reads it from the connection.
        on_cluster: whether the driver is to run on a machine of the cluster.
        yarn_server: what is asked for YARN's applications.
    """

    conn_id: str
    master: str
    on_cluster: bool
    namespace: str
    yarn_server: str

    @classmethod
    def of(cls, connection: Connection, deploy_mode: str | None, conf: Mapping[str, str]) -> Target:
        """What a connection says, and the settings of a task beside it."""
        host, port, extra = connection.host or "", connection.port, connection.extra_dejson
        named = connection.conn_type == "spark" and host and ("://" in host or not port)
        master = (host if named else f"{connection.conn_type}://{host}") + (f":{port}" if port else "")
        mode = deploy_mode or extra.get("deploy-mode")
        namespace = conf.get("spark.kubernetes.namespace") or extra.get("namespace") or ""
        return cls(connection.conn_id, master, mode == "cluster", namespace, extra.get(YARN_SERVER) or "")

    @property
    def on_yarn(self) -> bool:
        """Whether the cluster is one of YARN."""
        return "yarn" in self.master

    @property
    def on_kubernetes(self) -> bool:
        """Whether the cluster is one of Kubernetes."""
        return "k8s" in self.master

    @property
    def where(self) -> str:
        """The connection, for an error."""
        return f"connection {self.conn_id}"


@dataclass(frozen=True)
class Step:
    """A Spark step that a task asks for: the file that runs steps, and its arguments; the first names the step.

    Attributes:
        variables: of the environment, beside those of the task.
        follow_ups: whether the task has commands that are run after it.
        hook: the task's connection, with all settings of the task; it can build the command for spark-submit.
        last: whether the run has no Spark step after this one.
        follow: has the provider submit the step, or find what an earlier try has submitted, and wait for its end.
    """

    entry: str
    arguments: tuple[str, ...]
    run_dir: str
    dag_id: str
    target: Target
    conf: Mapping[str, str]
    variables: Mapping[str, str]
    follow_ups: bool
    hook: SparkSubmitHook
    last: bool
    follow: Callable[[], object]
    cancel: Callable[[], object]

    def command(self) -> list[str]:
        """The words of spark-submit; the last ones are the entry and the arguments."""
        return list(map(str, self.hook._build_spark_submit_command(self.entry)))  # noqa: SLF001  # there is no other way

    def follow_up(self) -> None:
        """Run what the task wants to be run after its step."""
        self.hook._run_post_submit_commands()  # noqa: SLF001


class StepRunner(Protocol):
    """A step that is run: started, followed, ended with its task."""

    def lines(self) -> Iterator[str]:
        """Start the step; what it says, line by line, until it ends."""

    def failure(self) -> str:
        """Why the step failed, in a few words, once it has ended; empty if it ended well."""

    def stop(self) -> int:
        """End the step with all that it has started, unless it has ended; returns how many processes there were."""

    def close(self) -> None:
        """Let go of the step, which ends if it has not."""
