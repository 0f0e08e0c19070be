"""What Airflow is to know of a job's DAG beside its schedule: who owns it, how it is tried again, who is told of what.

Nothing of it shapes what a run computes, so it is no part of a run's documents: it may change while a run goes on.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, WithJsonSchema, model_validator

from skewless.document import Frozen, Tagged, one_of, unmet

#: The id of a connection of Airflow, where addresses and secrets are.
ConnectionId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,199}$")]

_Minutes = Annotated[int, Field(ge=1, le=100_000)]

#: The kinds of notifiers, with the fields that not all of them have.
NOTIFIER_FIELDS: dict[str, tuple[str, ...]] = {"email": ("to",), "slack": (), "webhook": ("endpoint",)}


class Notifier(Tagged):
    """Who is told, by one of Airflow's notifiers: a mail over SMTP, a message to Slack's webhook, or a POST of JSON."""

    TAG, WORD = "kind", "kind"
    FIELDS_OF: ClassVar = NOTIFIER_FIELDS

    kind: Annotated[
        str, one_of(NOTIFIER_FIELDS), WithJsonSchema({"enum": [*NOTIFIER_FIELDS], "type": "string"})
    ] = Field(description="How.", examples=["slack"])  # fmt: skip
    conn_id: ConnectionId | None = Field(
        default=None,
        description="Connection of Airflow with the server and its secrets; by default smtp_default, "
        "slack_default or http_default.",
        examples=["team_mail"],
    )
    to: tuple[Annotated[str, Field(min_length=3, max_length=320)], ...] = Field(
        default=(), max_length=50, description="Addresses.", examples=[["data@example.org"]]
    )
    endpoint: str = Field(
        default="", max_length=1000, description="Path below the address of the connection.", examples=["hooks/data"]
    )
    message: str = Field(
        default="{{ outcome.sentence }}",
        description="Template of Airflow. Of a run, outcome has job, run, event, reason, page and sentence; a webhook "
        "gets all of them beside it.",
        examples=["{{ outcome.job }}: {{ outcome.reason }}"],
    )

    @model_validator(mode="after")
    def _has_somebody_to_write_to(self) -> Self:
        if self.kind == "email" and not self.to:
            raise unmet("addresses in to, with kind email", "none")
        return self


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
    retry_delay_seconds: int = Field(
        default=10, ge=0, le=86_400, description="Seconds between two tries.", examples=[300]
    )  # fmt: skip
    queue: str | None = Field(
        default=None, min_length=1, max_length=200,
        description="Queue of the executor for the tasks; by default the executor's own.",
        examples=["spark"],
    )  # fmt: skip
    priority: int = Field(
        default=1, ge=1, le=1_000_000, description="Weight of its tasks where many wait.", examples=[10]
    )  # fmt: skip
    on_failure: tuple[Notifier, ...] = Field(
        default=(), max_length=16, description="Who is told of a failed run, and of one that is late.",
        examples=[[{"kind": "email", "to": ["data@example.org"]}]],
    )  # fmt: skip
    on_success: tuple[Notifier, ...] = Field(
        default=(), max_length=16, description="Who is told of a run that ended well.",
        examples=[[{"kind": "webhook", "conn_id": "portal", "endpoint": "runs"}]],
    )  # fmt: skip
    deadline_minutes: _Minutes | None = Field(
        default=None, description="A run is late so many minutes after it was queued; it goes on.", examples=[120]
    )
    timeout_minutes: _Minutes | None = Field(
        default=None, description="A run fails if it takes so many minutes from its start.", examples=[240]
    )

    @property
    def notifiers(self) -> tuple[Notifier, ...]:
        """All of them."""
        return (*self.on_failure, *self.on_success)
