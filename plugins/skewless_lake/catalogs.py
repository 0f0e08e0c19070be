"""Catalogs of Iceberg tables: an embedded one below the data root, and whatever pyiceberg is configured for."""

from __future__ import annotations

import os
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skewless.errors import SpecError, first_line

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

#: The catalog that needs no configuration: ``ROOT/catalog.db``, with its tables in ``ROOT/warehouse``.
EMBEDDED = "local"
_DATABASE = "catalog.db"
#: Seconds that a writer of the embedded catalog waits for another one.
_BUSY_SECONDS = 60
_ATTEMPTS = 5


class TableName(NamedTuple):
    """The full name of an Iceberg table: its catalog, and the namespace of one level or several with its own name."""

    catalog: str
    identifier: tuple[str, ...]

    @classmethod
    def parse(cls, name: str) -> TableName:
        """The parts of ``catalog.namespace.table``.

        >>> TableName.parse("local.marts.clicks")
        TableName(catalog='local', identifier=('marts', 'clicks'))
        """
        catalog, *rest = name.split(".")
        return cls(catalog, tuple(rest))

    def __str__(self) -> str:
        return ".".join((self.catalog, *self.identifier))


def open_catalog(name: str, root: str) -> Catalog:
    """A catalog by its name.

    Credentials come from pyiceberg's own configuration alone: ``.pyiceberg.yaml`` or ``PYICEBERG_CATALOG__NAME__...``.

    ``local`` is the embedded one below the data root, unless that name is configured.

    Raises:
        SpecError: pyiceberg is not installed, or does not know the name, or cannot open the catalog.
    """
    configured = configuration_of(name)
    given = configured or _embedded(root)
    # A connection that is kept still sees a database that was removed: a new file is another catalog.
    file = 0 if configured else (Path(root) / _DATABASE).stat().st_ino
    try:
        return _open(name, tuple(sorted(given.items())), os.getpid(), file)
    except Exception as err:  # noqa: BLE001  # each kind of catalog has errors of its own
        raise SpecError(
            f"catalog {name!r}", "a catalog that can be opened", f"{type(err).__name__}: {first_line(err)}"
        ) from None


def configuration_of(name: str) -> dict[str, str]:
    """What pyiceberg's configuration says of a catalog; nothing of the embedded one, unless its name is configured.

    Raises:
        SpecError: pyiceberg is not installed, or does not know the name.
    """
    at = f"catalog {name!r}"
    try:
        from pyiceberg.utils.config import Config  # noqa: PLC0415  # an extra, which takes a second to import
    except ImportError:
        raise SpecError.saying(at, "pyiceberg is not installed", "install skewless[iceberg]") from None
    configured = Config().get_catalog_config(name)
    if not configured and name != EMBEDDED:
        raise SpecError.saying(
            at, "pyiceberg's configuration names no such catalog",
            f"set PYICEBERG_CATALOG__{name.upper()}__URI or add it to .pyiceberg.yaml, or use the catalog {EMBEDDED!r}",
        )  # fmt: skip
    return {key: str(value) for key, value in (configured or {}).items()}


@lru_cache(maxsize=16)
def _open(name: str, properties: tuple[tuple[str, str], ...], process: int, file: int) -> Catalog:
    """A catalog, with the connections that it keeps; a process that was forked makes its own."""
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415  # an extra

    del process, file
    for attempt in range(1, _ATTEMPTS):
        try:
            return load_catalog(name, **dict(properties))
        except Exception as err:
            # Another process has just made the tables of the same database.
            if not any(word in str(err) for word in ("already exists", "duplicate")):
                raise
            time.sleep(0.1 * attempt)
    return load_catalog(name, **dict(properties))


def _embedded(root: str) -> dict[str, str]:
    """The properties of the catalog below a data root, which is made if it is not there."""
    if "://" in root:
        raise SpecError.saying(
            f"catalog {EMBEDDED!r}", f"it is a file on a disk, and the data root is {root}",
            f"set PYICEBERG_CATALOG__{EMBEDDED.upper()}__URI and __WAREHOUSE, or use a catalog of a server",
        )  # fmt: skip
    base = Path(root).absolute()
    base.mkdir(parents=True, exist_ok=True)
    (base / _DATABASE).touch()
    return {
        "type": "sql",
        "uri": f"sqlite:///{base / _DATABASE}?timeout={_BUSY_SECONDS}",
        "warehouse": str(base / "warehouse"),
        # What is committed must be on the disk before the database says so.
        "py-io-impl": "skewless_lake.iceberg.iceberg_tables.SyncedFileIO",
    }
