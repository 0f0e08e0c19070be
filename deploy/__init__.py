"""Ways to run Skewless: a local Airflow, a cluster as processes, images. Not part of the wheel."""

from __future__ import annotations

import os
from pathlib import Path

#: The checkout.
PROJECT = Path(__file__).resolve().parents[1]


def checkout_folders() -> dict[str, str]:
    """The variables that name catalog and data root: as they are set, or else the folders of the checkout."""
    defaults = {"SKEWLESS_CATALOG": PROJECT / "jobs" / "catalog", "SKEWLESS_ROOT": PROJECT / "data"}
    return {name: os.environ.get(name) or str(folder) for name, folder in defaults.items()}
