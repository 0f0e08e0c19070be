"""A Spark step as its task asks for it, and what runs it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import Connection


def master_of(connection: Connection) -> str:
    """Spark's master, as the provider reads it from a connection."""
    host, port = connection.host or "", connection.port
    named = connection.conn_type == "spark" and host and ("://" in host or not port)
    return (host if named else f"{connection.conn_type}://{host}") + (f":{port}" if port else "")


@dataclass(frozen=True)
class Step:
    """A Spark step that a task asks for: the file that runs steps, and its arguments; the first names the step."""

    entry: str
    arguments: tuple[str, ...]
    run_dir: str
    dag_id: str
    conn_id: str
    master: str
    deploy_mode: str
    """As the task or the connection has it; empty if neither says."""
    conf: Mapping[str, str]
    """Spark's settings."""
    variables: Mapping[str, str]
    """Of the environment, beside those of the task."""
    follow_ups: bool
    """Whether the task has commands that are run after it."""
    hook: SparkSubmitHook
    """The task's connection, with all settings of the task; it can build the command for spark-submit."""
    last: bool
    """Whether the run has no Spark step after this one."""

    def command(self) -> list[str]:
        """The words of spark-submit; the last ones are the entry and the arguments."""
        return list(map(str, self.hook._build_spark_submit_command(self.entry)))  # noqa: SLF001  # there is no other way


class StepRunner(Protocol):
    """A step that is run: started, followed, ended with its task."""

    attempt: str
    """By which the step names its failure, if not by its task's try."""

    def lines(self) -> Iterator[str]:
        """Start the step; what it says, line by line, until it ends."""

    def failure(self) -> str:
        """Why the step failed, in a few words, once it has ended; empty if it ended well."""

    def stop(self) -> int:
        """End the step with all that it has started, unless it has ended; returns how many processes there were."""

    def close(self) -> None:
        """Let go of the step, which ends if it has not."""
