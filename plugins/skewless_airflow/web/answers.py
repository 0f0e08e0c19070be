"""The answers of ``/api/v1`` as types: the schema of the API is made from them, and tests check answers against it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from skewless_airflow.web.views.history import RunLine
from skewless_airflow.web.views.jobs import JobLine
from skewless_airflow.web.views.parts_over_time import Delay, Night
from skewless_airflow.web.views.quality import QualityView
from skewless_airflow.web.views.run import LedgerView, RunView
from skewless_airflow.web.views.what_if import WhatIfView


class Refusal(BaseModel):
    """Why there is no answer, in one sentence."""

    model_config = ConfigDict(extra="forbid")

    error: str = Field(min_length=1)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Literal[1]


class Dags(_Answer):
    """The jobs that the user may read."""

    dags: tuple[JobLine, ...]


class Runs(_Answer):
    """The latest runs of a DAG, newest first; ``total`` is how many there are in all."""

    dag_id: str
    total: int = Field(ge=0)
    runs: tuple[RunLine, ...]


class Parts(_Answer):
    """The latest runs of a DAG with a window, newest first, of ``total``, and how late rows have come in them."""

    dag_id: str
    total: int = Field(ge=0)
    runs: tuple[Night, ...]
    delays: tuple[Delay, ...]


class _OfRun(_Answer):
    dag_id: str
    run_id: str


class Run(_OfRun):
    """A run as it stands."""

    airflow_state: str | None
    state: str
    run: RunView


class LedgerSoFar(_OfRun):
    """The ledger as far as the run has come."""

    balanced: bool
    ledger: LedgerView


class Quality(_OfRun):
    """The verdict on the result."""

    quality: QualityView


class WhatIf(_OfRun):
    """A run under other policies."""

    what_if: WhatIfView


#: The errors that any route may answer with.
_REFUSALS = {
    401: "Not logged in.",
    403: "The user has no permission to read this.",
    404: "There is no such DAG, run or document.",
    422: "A part of the address is not valid.",
}


def answers(good: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The answers of a route, for its schema."""
    refused: dict[int | str, dict[str, Any]] = {
        code: {"model": Refusal, "description": words} for code, words in _REFUSALS.items()
    }
    return {200: {"model": good, "description": (good.__doc__ or "").partition("\n")[0]}, **refused}
