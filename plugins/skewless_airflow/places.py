"""Where things are: the Spark entries in the installed package; catalog and data root as the environment says."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from skewless.errors import SpecError


def spark_entry(name: str) -> Path:
    """The file of a Spark entry, like ``run_stage.py``, for spark-submit.

    It is found in ``skewless_spark`` as that is installed here. Nothing of that package is imported.
    """
    package = importlib.util.find_spec("skewless_spark")
    if package is None or not package.submodule_search_locations:
        raise SpecError("skewless_spark", "a package that this Python can import", "none", "install skewless here, too")
    return Path(package.submodule_search_locations[0]) / "entries" / name


def catalog_folder() -> Path:
    """The folder of job specs: ``$SKEWLESS_CATALOG``, else ``jobs/catalog`` below the current folder.

    Raises:
        SpecError: it does not exist.
    """
    return _folder("SKEWLESS_CATALOG", "jobs/catalog", "a folder of job specs")


def data_root() -> str:
    """Where relative paths of specs start and runs are kept: ``$SKEWLESS_ROOT``, a path or a URL.

    Without the variable it is ``data`` below the current folder.

    Raises:
        SpecError: the variable is not set, and there is no such folder.
    """
    named = os.environ.get("SKEWLESS_ROOT", "").rstrip("/")
    return named or str(_folder("SKEWLESS_ROOT", "data", "a folder or a URL for inputs, runs and results"))


def _folder(variable: str, default: str, what: str) -> Path:
    named = os.environ.get(variable)
    folder = Path(named or default).absolute()
    if folder.is_dir():
        return folder
    came = f"no folder {folder}" if named else f"none, and there is no folder {folder}"
    raise SpecError(f"variable {variable}", what, came, f"set {variable}")
