"""Where things are: the checkout, the Spark entries, the catalog, the data root."""

from __future__ import annotations

import os
from pathlib import Path

#: The checkout that this package runs from: it is installed editable, entries and specs stay outside of it.
PROJECT = Path(__file__).resolve().parents[2]

#: The thin spark-submit entries.
JOBS = PROJECT / "jobs"


def catalog_folder() -> Path:
    """The job specs, ``$SKEWLESS_CATALOG`` or the one of the checkout."""
    return Path(os.environ.get("SKEWLESS_CATALOG") or JOBS / "catalog")


def data_root() -> str:
    """Where relative paths of specs start and runs are kept: ``$SKEWLESS_ROOT``, a path or a URL."""
    return (os.environ.get("SKEWLESS_ROOT") or str(PROJECT / "data")).rstrip("/")
