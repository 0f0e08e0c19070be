"""A step whose driver runs on the cluster: on YARN and on Kubernetes, submitted and followed by Spark's provider.

Such a driver does not end with its task. After a worker was lost, the next try finds the application that the try
before has submitted, since the provider keeps its id in Airflow's task state, and waits for that one in place of
submitting a second one. The driver's own log stays on the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow.sdk.exceptions import AirflowException

from skewless.errors import SpecError
from skewless_airflow.runners.step import YARN_SERVER, Step


def runner_of(step: Step) -> ClusterStep | None:
    """The runner of a step whose connection has the deploy mode ``cluster``.

    Raises:
        SpecError: its master has no drivers on the cluster, or the connection lacks what they are followed by.
    """
    target = step.target
    if not target.on_cluster:
        return None
    if target.on_kubernetes:
        needed, value, hint = "namespace", target.namespace, "name the namespace of the drivers' pods"
    elif target.on_yarn:
        needed, value = YARN_SERVER, target.yarn_server
        hint = "write the address of the resource manager, like http://rm:8088"
    else:
        required = "the deploy mode client, because Spark runs drivers in Python only on YARN and Kubernetes"
        raise SpecError(target.where, required, f"'cluster' for {target.master}", "leave deploy-mode out")
    if not value:
        required = f"{needed}, by which drivers on the cluster are followed"
        raise SpecError(f"{target.where}, extra", required, "none", hint)
    return ClusterStep(step)


class ClusterStep:
    """A step that the provider submits, or finds again, and follows."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._failure: str | None = None

    def lines(self) -> Iterator[str]:
        """Submit the step, unless an earlier try has, and wait until it has ended; its lines stay on the cluster."""
        yield from ()
        try:
            self._step.follow()
        except (RuntimeError, ValueError, AirflowException) as err:
            self._failure = str(err)
        else:
            self._failure = ""

    def failure(self) -> str:
        """What the provider says of an application that failed; empty if it ended well."""
        return "the step has not ended" if self._failure is None else self._failure

    def stop(self) -> int:
        """Have the cluster end the application, unless it has ended; returns how many there were."""
        if self._failure is not None:
            return 0
        self._step.cancel()
        return 1

    def close(self) -> None:
        """Let go of the step. Its application goes on: the next try finds it."""
