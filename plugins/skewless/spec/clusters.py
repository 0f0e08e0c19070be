"""The Spark clusters of a job: how large their applications are, and how several of them share a run by leases."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from skewless.document import Frozen, unmet
from skewless.errors import SpecError

#: What ``store`` says for a folder of the run directory.
FILES = "files"


#: As Java reads it, from a mebibyte up.
MEMORY = r"^[1-9][0-9]{0,6}[mgMG]$"


def require_client_mode(mode: object, where: str) -> None:
    """Refuse to have drivers on machines of the cluster: a step is followed, and ended, where it was submitted."""
    if mode not in {None, "", "client"}:
        raise SpecError(where, "the deploy mode client", repr(mode)[:80], "use client")


class SparkSizing(Frozen):
    """How large the Spark application of a step is; what is not given is left to the connection and to Spark."""

    driver_memory: str | None = Field(
        default=None, pattern=MEMORY, description="Memory of the driver, like 2g.", examples=["4g"]
    )
    executor_memory: str | None = Field(
        default=None, pattern=MEMORY, description="Memory of each executor, like 4g; local Spark has none.",
        examples=["8g"],
    )  # fmt: skip
    executor_cores: int | None = Field(default=None, ge=1, le=1024, description="Cores of each executor.", examples=[4])
    cores: int | None = Field(
        default=None, ge=1, le=100_000, description="Cores of all executors together, on a standalone cluster.",
        examples=[64],
    )  # fmt: skip


class Sharing(Frozen):
    """What leases are like, and which Spark clusters share a run: those of a DAG, or those that a command names."""

    connections: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,49}$")], ...] = Field(
        default=(),
        max_length=16,
        description="In a DAG: connections of further Spark clusters; each takes part in every stage, beside that of "
        "the steps.",
        examples=[["spark_east", "spark_west"]],
    )
    store: str = Field(
        default=FILES,
        pattern=rf"^({FILES}|(rediss?|unix)://[^@#\s]+)$",
        description="Where the leases are kept: files, in a folder of each step; or the address of a Redis, without "
        "name and password.",
        examples=["redis://leases:6379/0"],
    )
    lease_seconds: float = Field(
        default=8,
        ge=0.2,
        le=3600,
        description="The normal lease: within it a cluster that joins has its share. One that is silent for four times "
        "as long has lost its tasks to the others; so has an attempt at a step, shared or not, to the next attempt.",
        examples=[30],
    )

    @field_validator("connections")
    @classmethod
    def _each_once(cls, connections: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(connections)) < len(connections):
            raise unmet("each connection once", str(list(connections))[:120])
        return connections
