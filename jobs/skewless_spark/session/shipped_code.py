"""This project as a zip for workers that have not installed it: its packages and its entry points."""

from __future__ import annotations

import importlib.metadata
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

import skewless
import skewless_spark

_NAME = "skewless"
_PACKAGES = (skewless, skewless_spark)
#: The files by which ``importlib.metadata`` finds the entry points of a package.
_FACTS = ("METADATA", "entry_points.txt")


def ship(session: SparkSession) -> None:
    """Send the code of this project to a server, for the Python workers of this session.

    Args:
        session: a session of a Spark Connect server.
    """
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / f"{_NAME}.zip"
        write_archive(archive)
        cast("Any", session).addArtifacts(str(archive), pyfile=True)


def write_archive(archive: Path) -> None:
    """Write the zip. It has no entry points of other packages."""
    distribution = importlib.metadata.distribution(_NAME)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for path, name in _sources():
            out.write(path, name)
        for fact in _FACTS:
            out.writestr(f"{_NAME}-{distribution.version}.dist-info/{fact}", distribution.read_text(fact) or "")


def _sources() -> Iterator[tuple[Path, str]]:
    for package in _PACKAGES:
        folder = Path(str(package.__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            yield path, str(path.relative_to(folder.parent))
