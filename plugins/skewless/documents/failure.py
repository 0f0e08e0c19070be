"""The last word of a step that failed, left for whoever started it."""

from __future__ import annotations

import re

from pydantic import Field

from skewless.document import Document

_TRY = re.compile(r"(.+)-(\d{1,9})-[0-9a-f]+")


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


def failed_step(path: str) -> tuple[str, int]:
    """Which step failed, without the groups around it, and in which try; 0 where the name does not say.

    >>> failed_step("failures/nightly.stage_01.run-2-0a1b2c3d.json")
    ('stage_01.run', 2)
    """
    name = path.rpartition("/")[2].removesuffix(".json")
    found = _TRY.fullmatch(name)
    return (own_name(found[1]), int(found[2])) if found else (name, 0)


def own_name(task: str) -> str:
    """A task's name without the groups around ours.

    >>> own_name("nightly.stage_01.plan"), own_name("nightly.merge")
    ('stage_01.plan', 'merge')
    """
    parts = task.split(".")
    return ".".join(parts[-2:]) if len(parts) > 1 and parts[-2].startswith("stage_") else parts[-1]
