"""A step whose driver runs on the cluster: on YARN and on Kubernetes, submitted and followed by Spark's provider.

Such a driver does not end with its task. After a worker was lost, the next try finds the application that the try
before has submitted, since the provider keeps its id in Airflow's task state, and waits for that one in place of
submitting a second one. The driver's own log stays on the cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException

from skewless.errors import SpecError
from skewless.run.folder import RUN_GROUP
from skewless_airflow.runners.step import Step

#: Where a connection names the server that knows of YARN's applications.
_YARN = SparkSubmitHook._YARN_RM_WEBAPP_ADDRESS_EXTRA_KEY  # noqa: SLF001


def runner_of(step: Step) -> ClusterStep | None:
    """The runner of a step whose connection has the deploy mode ``cluster``.

    Raises:
        SpecError: its master has no drivers on the cluster, or the connection lacks what they are followed by.
    """
    hook = step.hook
    if not step.on_cluster:
        return None
    if hook._is_kubernetes:  # noqa: SLF001  # the hook tells of its connection in no other way
        needed, hint = "namespace", "name the namespace of the drivers' pods"
        given = hook._connection["namespace"]  # noqa: SLF001
    elif hook._is_yarn:  # noqa: SLF001
        needed, hint = _YARN, "write the address of the resource manager, like http://rm:8088"
        given = hook.get_connection(hook._conn_id).extra_dejson.get(_YARN)  # noqa: SLF001
    else:
        required = "the deploy mode client, because Spark runs drivers in Python only on YARN and Kubernetes"
        raise SpecError(step.where, required, f"'cluster' for {step.master}", "leave deploy-mode out")
    if not given:
        required = f"{needed}, by which drivers on the cluster are followed"
        raise SpecError(f"{step.where}, extra", required, "none", hint)
    hook._yarn_track_via_rm_api, hook._track_driver_via_k8s_api = hook._is_yarn, hook._is_kubernetes  # noqa: SLF001
    if group := os.environ.get(RUN_GROUP):
        hook._env_vars = {RUN_GROUP: group, **(hook._env_vars or {})}  # noqa: SLF001
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
