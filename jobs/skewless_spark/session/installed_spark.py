"""Whether the installed PySpark can be ours: one that is new enough, with files that belong to its jars.

pip lays the files of pyspark-client, for which Airflow's Spark provider asks, over those of pyspark, of whatever
version. ``pip check`` calls the outcome good, but it cannot run.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

#: The first Spark with ``collect_union``, by which sets are merged. Older ones have answered otherwise, or not at all.
LOWEST = (4, 3)
_VERSION = re.compile(r"__version__[^'\"]*['\"]((\d+)\.(\d+)\.\d+)")
_JAR = re.compile(r"spark-core_[\d.]+-(\d+\.\d+\.\d+)")


def unfit_spark(package: Path | None = None) -> str:
    """One sentence if PySpark cannot be ours; else empty. Imports nothing of it, as that may fail.

    Args:
        package: the folder of the package; the one that Python would import, if None.
    """
    if package is None:
        found = importlib.util.find_spec("pyspark")
        if found is None or found.origin is None:
            return ""
        package = Path(found.origin).parent
    version = package / "version.py"
    files = _VERSION.search(version.read_text(encoding="utf-8")) if version.exists() else None
    if files is None:
        return ""
    # The Spark of a cluster has its jars elsewhere.
    jars = next(filter(None, (_JAR.match(jar.name) for jar in (package / "jars").glob("spark-core_*.jar"))), None)
    if jars is not None and files[1] != jars[1]:
        return (
            f"pyspark: expected the files of pyspark {jars[1]}, but got those of {files[1]}, which pyspark-client has "
            f"laid over them; run pip install --force-reinstall --no-deps pyspark=={jars[1]}."
        )
    if (int(files[2]), int(files[3])) < LOWEST:
        return f"pyspark: expected Spark {LOWEST[0]}.{LOWEST[1]} or newer, but got Spark {files[1]}; take a newer one."
    return ""
