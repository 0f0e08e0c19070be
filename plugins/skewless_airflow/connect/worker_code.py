"""The code that Spark's Python workers import, and a stamp that tells whether it has changed.

Under spark-submit every step has workers of its own. A server reuses its workers with the modules that they have
imported, so a server that is older than the code is replaced.
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
    """The folders of all packages that workers may import; none of them is imported here."""
    registered = (one.module.partition(".")[0] for group in _REGISTERED for one in entry_points(group=group))
    found = []
    for name in sorted({*_OURS, *registered}):
        spec = importlib.util.find_spec(name)
        found += [Path(folder) for folder in (spec.submodule_search_locations or () if spec else ())]
        if spec and spec.origin and not spec.submodule_search_locations:
            found.append(Path(spec.origin))
    return found


def code_stamp(places: Iterable[Path]) -> str:
    """A text that changes whenever a source file is written, added or removed.

    It uses ctime: installers set mtime to the time when the package was built.
    """
    stamp = hashlib.sha256()
    for file in sorted(path for place in places for path in ([place] if place.is_file() else place.rglob("*.py"))):
        stamp.update(f"{file}\0{file.stat().st_ctime_ns}\n".encode())
    return stamp.hexdigest()
