"""What the installed Spark lacks, and whether it can be ours at all. Nothing else asks for a version of Spark.

Imports nothing of PySpark at its head: it judges an installation that may not import. pip lays the files of
pyspark-client, for which Airflow's Spark provider asks, over those of pyspark, of whatever version. ``pip check`` calls
the outcome good, but it cannot run.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

#: The first Spark that has ``repartitionById`` and the merges of all sketches; pyproject.toml names the same.
LOWEST = (4, 1)
#: By aggregate, the first Spark that can merge its states, if not the lowest (``approx_top_k_combine`` of 4.1
#: and 4.2 throws).
FIRST_SPARK = {"approx_top_k": (4, 3)}
_VERSION = re.compile(r"__version__[^'\"]*['\"]((\d+)\.(\d+)\.\d+)")
_JAR = re.compile(r"spark-core_[\d.]+-(\d+\.\d+\.\d+)")


def unfit_spark(package: Path | None = None) -> str:
    """One sentence if PySpark cannot be ours; else empty.

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


def lacking_aggregate(function: str) -> tuple[str, str] | None:
    """The Spark that an aggregate needs, and the one that is here, where this one cannot merge its states."""
    from pyspark import __version__ as version  # noqa: PLC0415  # see above

    first = FIRST_SPARK.get(function, LOWEST)
    if tuple(map(int, version.split(".")[:2])) >= first:
        return None
    return f"Spark {first[0]}.{first[1]} or newer for {function}", f"Spark {version}"


def collect_union() -> Callable[[str], Column]:
    """The union of sets: Spark's own from 4.3, else an expression that gives equal sets."""
    from pyspark.sql import functions as F  # noqa: PLC0415  # see above

    return getattr(F, "collect_union", lambda name: F.array_distinct(F.flatten(F.collect_list(name))))


def arrow_schema(schema: StructType) -> pa.Schema:
    """A schema of Spark's as Arrow's, its moments in UTC: 4.1 has them so, later versions take the zone by name."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415  # see above

    by_name = "timezone" in inspect.signature(to_arrow_schema).parameters
    zone: dict[str, Any] = {"timezone": "UTC"} if by_name else {}
    return to_arrow_schema(schema, **zone)
