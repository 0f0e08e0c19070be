"""The last word of a step that failed, left for whoever started it."""

from __future__ import annotations

from pydantic import Field

from skewless.document import Document


class Failure(Document):
    """Why a Spark entry ended with an error.

    spark-submit passes on an exit code and a few hundred lines of log. Whoever started it wants
    the one sentence, so the entry leaves it as a document; none means that the driver was killed.

    Attributes:
        exit_code: what the entry ends with: 2 bad spec or input, 3 data quality failed, 1 anything else.
        sentence: the error in one sentence.
    """

    exit_code: int = Field(ge=1, le=255)
    sentence: str


def failure_document(name: str) -> str:
    """Where the failure of a try is written, below the run directory; each try has a name of its own."""
    return f"failures/{name}.json"
