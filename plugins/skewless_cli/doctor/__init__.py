"""``skewless doctor``: whether all that a job needs is here, each thing in one line, good or with its remedy.

A new check is a function from ``Surroundings`` to its findings, and a line in ``CHECKS``. None needs an extra.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from skewless_cli.doctor import airflow, catalog, installation, places
from skewless_cli.doctor.finding import Finding, Surroundings

__all__ = ["CHECKS", "Finding", "Surroundings", "examine"]

#: In the order of their lines.
CHECKS: Sequence[Callable[[Surroundings], Iterable[Finding]]] = (
    installation.check_python,
    installation.check_java,
    installation.check_packages,
    installation.check_pyspark,
    installation.check_submit,
    places.check_places,
    airflow.check_airflow,
    catalog.check_catalog,
)


def examine(asked: Surroundings) -> Iterator[Finding]:
    """All findings, each as soon as it is known."""
    for check in CHECKS:
        yield from check(asked)
