"""Importing Great Expectations without what it imports for other databases, and for expectations that we refuse.

These are half of what its import takes, five seconds of a core beside the stage.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: What only expectations import that ``expectations.REFUSED`` names, or that are not allowed.
POSTPONED = ("altair", "scipy.stats")
#: What is optional: to Great Expectations clients of other systems, to ``jsonschema`` formats that nothing here names.
LEFT_OUT = frozenset({
    "azure", "boto3", "botocore", "google", "pyspark.ml", "pyspark.sql.connect", "rfc3987_syntax", "snowflake",
    "sqlalchemy",
})  # fmt: skip


class _Postponed(ModuleType):
    """Stands for a module, which is imported when one of its attributes is asked for.

    ``importlib.util.LazyLoader`` does not serve: its module is imported by the next ``import`` that names it.
    """

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


class _LeftOut:
    """Says to one thread that what is optional is not installed; another may import it meanwhile."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, *_: object) -> None:
        """Refuse a module, or leave it to other finders."""
        if name in LEFT_OUT and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is left out", name=name)


@contextmanager
def lean_imports(postponed: Sequence[str] = ()) -> Iterator[None]:
    """Within this, a thread imports without ``LEFT_OUT``; modules of some names are imported when they are used."""
    for name in postponed:
        if name not in sys.modules:
            sys.modules[name] = _Postponed(name)
            sys.modules[name].__spec__ = ModuleSpec(name, None)
    finder = _LeftOut()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
