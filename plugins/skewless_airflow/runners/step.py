"""A Spark step as its task asks for it, and what runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook


@dataclass(frozen=True)
class Step:
    """A Spark step that a task asks for: the file that runs steps, and its arguments; the first names the step.

    Attributes:
        hook: the task's connection, with all settings of the task; it can build the command for spark-submit.
        last: whether the run has no Spark step after this one.
        follow: has the provider submit the step, or find what an earlier try has submitted, and wait for its end.
    """

    entry: str
    arguments: tuple[str, ...]
    run_dir: str
    dag_id: str
    hook: SparkSubmitHook
    last: bool
    follow: Callable[[], object]
    cancel: Callable[[], object]

    @property
    def master(self) -> str:
        """The Spark master, as the connection names it."""
        return str(self.hook._connection["master"])  # noqa: SLF001

    @property
    def on_cluster(self) -> bool:
        """Whether the connection wants the driver on a machine of the cluster."""
        return bool(self.hook._connection["deploy_mode"] == "cluster")  # noqa: SLF001

    @property
    def where(self) -> str:
        """The connection, for an error."""
        return f"connection {self.hook._conn_id}"  # noqa: SLF001


class StepRunner(Protocol):
    """A step that is run: started, followed, ended with its task."""

    def lines(self) -> Iterator[str]:
        """Start the step; what it says, line by line, until it ends.

        Raises:
            AirflowException: it cannot be started.
        """
        ...

    def failure(self) -> str:
        """Why the step failed, in a few words, once it has ended; empty if it ended well."""
        ...

    def stop(self) -> int:
        """End the step with all that it has started, unless it has ended; returns how many processes there were."""
        ...

    def close(self) -> None:
        """Let go of the step, which ends if it has not."""
        ...
