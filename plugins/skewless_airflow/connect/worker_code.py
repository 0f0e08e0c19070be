"""The code that Spark's Python workers import, and whether it is still that of a moment ago.

Under spark-submit every step has workers of its own. Those of a server are used again, with the modules that they have
imported: a server that is older than the code is therefore exchanged.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path

_OURS = ("skewless", "skewless_spark")
_REGISTERED = ("skewless.aggregates", "skewless.mappers")


def worker_folders() -> list[Path]:
    """The folders of all packages that a step may have its workers import; none of them is imported here."""
    registered = (one.module.partition(".")[0] for group in _REGISTERED for one in entry_points(group=group))
    found = []
    for name in sorted({*_OURS, *registered}):
        spec = importlib.util.find_spec(name)
        found += [Path(folder) for folder in (spec.submodule_search_locations or () if spec else ())]
        if spec and spec.origin and not spec.submodule_search_locations:
            found.append(Path(spec.origin))
    return found


def code_stamp(places: Iterable[Path]) -> str:
    """What is another text as soon as a source file is written, put there, or taken away.

    An installer sets the time of a file's content to that of the package's making: what counts is when the file came.
    """
    stamp = hashlib.sha256()
    for file in sorted(path for place in places for path in ([place] if place.is_file() else place.rglob("*.py"))):
        stamp.update(f"{file}\0{file.stat().st_ctime_ns}\n".encode())
    return stamp.hexdigest()
