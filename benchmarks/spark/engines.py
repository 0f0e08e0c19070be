"""Which engine a row wants, and which of them there are: the one place that says so."""

from __future__ import annotations

from typing import get_args

from skewless.spec.spec import JobSpec

#: What ``engine`` of a spec takes.
KNOWN: tuple[str, ...] = get_args(JobSpec.model_fields["engine"].annotation)


def engine_of(wanted: str) -> str:
    """The engine wanted, or ``staged`` as long as there is no such one."""
    return wanted if wanted in KNOWN else "staged"
