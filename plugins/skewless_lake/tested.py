"""Which stores and catalogs this project's own tests run on, as ``skewless check`` says it."""

from __future__ import annotations

from collections.abc import Mapping

from skewless.spec.spec import JobSpec
from skewless_lake.catalogs import EMBEDDED, TableName, configuration_of

#: By scheme of a path, and by kind of catalog with what it was tested on, as docs/object_stores.md and docs/tables.md
#: list them.
_STORES = frozenset({"", "file", "s3", "s3a"})
_CATALOGS = {
    "sqlite": "", "postgresql": "", "hive": "", "rest": ", Iceberg's own Java code",
    "glue": ", moto's, one writer at a time",
}  # fmt: skip
_DATABASES = frozenset({"sqlite", "postgresql"})


def which_are_tested(spec: JobSpec, root: str) -> str:
    """Which of a job's stores and catalogs the tests of this project run on, in words; empty if all is on disks.

    Args:
        spec: of the job.
        root: the data root.

    Raises:
        SpecError: pyiceberg is not installed, or its configuration does not name a catalog.
    """
    places = (spec.input, spec.output)
    catalogs = {TableName.parse(one.path).catalog for one in places if one.format == "iceberg"}
    given = {name: configuration_of(name) for name in catalogs}
    kinds = {name: _kind(name, about) for name, about in given.items()}
    found = {f"catalog {name!r} ({kind}{_CATALOGS.get(kind, '')})": kind for name, kind in kinds.items()}
    paths = [root, *(one.path for one in places), spec.states_path]
    paths += [about.get("warehouse") for about in given.values()]
    schemes = {str(path).partition("://")[0] for path in paths if path is not None and "://" in str(path)} - {"file"}
    good = [f"{scheme}:// (S3 servers, not Amazon's own)" for scheme in schemes & _STORES]
    good += [name for name, kind in found.items() if kind in _CATALOGS]
    bad = [f"{scheme}://" for scheme in schemes - _STORES]
    bad += [name for name, kind in found.items() if kind not in _CATALOGS]
    return " ".join(
        f"{verdict} by Skewless: {', '.join(sorted(names))}."
        for verdict, names in (("Tested", good), ("Not tested", bad))
        if names
    )


def _kind(name: str, given: Mapping[str, str]) -> str:
    """The kind of a catalog: the database of one in SQL, and otherwise pyiceberg's name."""
    if not given and name == EMBEDDED:
        return "sqlite"
    uri, kind = given.get("uri", ""), given.get("type", "")
    database = uri.partition(":")[0].partition("+")[0]
    if kind == "sql" or (not kind and database in _DATABASES):
        return database or "sql"
    if "py-catalog-impl" in given:
        return given["py-catalog-impl"]
    return kind or {"http": "rest", "https": "rest", "thrift": "hive"}.get(database, "of no known type")
