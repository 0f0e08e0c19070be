"""Runs of a DAG in a local Airflow, for benchmarks: how long each of its tasks took."""

from __future__ import annotations

from collections.abc import Mapping

from deploy.local.rest import AirflowRest

RUN_SECONDS = 400.0


def run_to_end(
    rest: AirflowRest, dag: str, conf: Mapping[str, str], run_id: str | None = None
) -> list[tuple[str, float, float]]:
    """Run a DAG to its end.

    Args:
        rest: the Airflow.
        dag: the id of the DAG, which is not paused.
        conf: of the run.
        run_id: of the run; Airflow chooses one otherwise.

    Returns:
        Id, begin and end of each task that ran, in seconds since 1970.

    Raises:
        RuntimeError: the run failed.
        TimeoutError: it takes too long.
    """
    run = rest.trigger(dag, run_id, conf=dict(conf))
    state = rest.await_end(dag, run, RUN_SECONDS)
    if state != "success":
        raise RuntimeError(f"run {run} of {dag} ended as {state}; its tasks: {rest.states(dag, run)}")
    return [(one.task, *one.span) for one in rest.tasks(dag, run) if one.state == "success" and one.span]
