"""What Airflow is to know of a job's DAG beside its schedule: who owns it, how it is tried again.

Nothing of it shapes what a run computes, so it is no part of a run's documents: it may change while a run goes on.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from skewless.document import Frozen

#: The id of a connection of Airflow, where addresses and secrets are.
ConnectionId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,199}$")]


class AirflowSettings(Frozen):
    """What Airflow knows of the DAG of the job and of its tasks; `default_args` of a DAG in Python go before it."""

    owner: str | None = Field(
        default=None, min_length=1, max_length=100,
        description="Owner of the tasks; by default skewless, in a DAG of your own the DAG's.",
        examples=["team-data"],
    )  # fmt: skip
    tags: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = Field(
        default=(), max_length=50, description="Tags of the DAG, beside skewless.", examples=[["clicks", "nightly"]]
    )
    retries: int = Field(
        default=2, ge=0, le=100, description="How often a failed task is tried again.", examples=[5]
    )  # fmt: skip
    queue: str | None = Field(
        default=None, min_length=1, max_length=200,
        description="Queue of the executor for the tasks; by default the executor's own.",
        examples=["spark"],
    )  # fmt: skip
