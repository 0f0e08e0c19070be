"""Catalogs of Iceberg tables: an embedded one below the data root, and whatever pyiceberg is configured for.

Metastores say where each partition of a table is: Hive's by Thrift, and Glue by Amazon's client. Both are asked by the
public calls of libraries that pyiceberg's extras bring: ``pyiceberg[hive]``, ``pyiceberg[glue]``.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

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
    def parse(cls, name: str) -> "TableName":
        """The parts of ``catalog.namespace.table``.

        >>> TableName.parse("local.marts.clicks")
        TableName(catalog='local', identifier=('marts', 'clicks'))
        """
        catalog, *rest = name.split(".")
        return cls(catalog, tuple(rest))

    def __str__(self) -> str:
        return ".".join((self.catalog, *self.identifier))


def open_catalog(name: str, root: str) -> "Catalog":
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
def _open(name: str, properties: tuple[tuple[str, str], ...], process: int, file: int) -> "Catalog":
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
        "py-io-impl": "skewless_lake.iceberg_tables.SyncedFileIO",
    }


_FORMATS = {
    "inputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "outputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
}
_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
#: Of a table of which others, not the metastore, own the files.
_EXTERNAL = {"EXTERNAL": "TRUE", "classification": "parquet"}


class Column(NamedTuple):
    """A column and its type, as Hive writes it."""

    name: str
    type: str


class Located(NamedTuple):
    """A partition: its values, its location, and what was written beside that."""

    values: tuple[str, ...]
    location: str
    parameters: Mapping[str, str]


class Metastore(Protocol):
    """What is asked of a metastore; a table is named ``database.table``."""

    PLACES: tuple[str, ...]
    """How the addresses of folders begin that it can have."""

    def columns(self, table: str) -> tuple[Column, ...] | None:
        """The columns of a table, those of its partitions last; None if there is no such table."""

    def create(self, table: str, columns: Sequence[Column], keys: Sequence[Column], location: str) -> None:
        """Make an external table, unless there is one."""

    def partition(self, table: str, values: Sequence[str]) -> Located | None:
        """A partition; None if there is none."""

    def partitions(self, table: str) -> list[Located]:
        """All partitions of a table."""

    def point(self, table: str, columns: Sequence[Column], partition: Located) -> None:
        """Let a partition be where it says, in one call; it is made if there is none."""


class _Hive:
    """A Hive metastore, at the ``uri`` of pyiceberg's catalog ``hive``."""

    PLACES: tuple[str, ...] = ("",)

    def __init__(self) -> None:
        address = urlsplit(configuration_of("hive").get("uri", ""))
        if not address.hostname or not address.port:
            raise SpecError("catalog 'hive'", "thrift://HOST:PORT as PYICEBERG_CATALOG__HIVE__URI", address.geturl())
        self._host, self._port = address.hostname, address.port

    @contextmanager
    def _client(self) -> Iterator[Any]:
        from hive_metastore.ThriftHiveMetastore import Client  # noqa: PLC0415  # an extra
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol  # noqa: PLC0415
        from thrift.transport.TSocket import TSocket  # noqa: PLC0415
        from thrift.transport.TTransport import TBufferedTransport  # noqa: PLC0415

        with closing(TBufferedTransport(TSocket(self._host, self._port))) as transport:
            transport.open()
            yield Client(TBinaryProtocol(transport))

    def _found(self, call: Callable[[Any], Any]) -> Any:
        from hive_metastore.ttypes import NoSuchObjectException  # noqa: PLC0415

        with self._client() as client, suppress(NoSuchObjectException):
            return call(client)
        return None

    def columns(self, table: str) -> tuple[Column, ...] | None:
        found = self._found(lambda client: client.get_table(*table.split(".")))
        return found and tuple(Column(one.name, one.type) for one in (*found.sd.cols, *found.partitionKeys))

    def create(self, table: str, columns: Sequence[Column], keys: Sequence[Column], location: str) -> None:
        from hive_metastore.ttypes import AlreadyExistsException, FieldSchema, Table  # noqa: PLC0415

        database, name = table.split(".")
        made = Table(
            dbName=database, tableName=name, tableType="EXTERNAL_TABLE", sd=_storage(columns, location),
            partitionKeys=[FieldSchema(key.name, key.type, "") for key in keys], parameters=dict(_EXTERNAL),
        )  # fmt: skip
        with self._client() as client, suppress(AlreadyExistsException):
            client.create_table(made)

    def partition(self, table: str, values: Sequence[str]) -> Located | None:
        found = self._found(lambda client: client.get_partition(*table.split("."), list(values)))
        return found and _located(found)

    def partitions(self, table: str) -> list[Located]:
        return list(map(_located, self._found(lambda client: client.get_partitions(*table.split("."), -1)) or ()))

    def point(self, table: str, columns: Sequence[Column], partition: Located) -> None:
        from hive_metastore.ttypes import AlreadyExistsException, Partition  # noqa: PLC0415

        database, name = table.split(".")
        wanted = Partition(
            values=list(partition.values), dbName=database, tableName=name,
            sd=_storage(columns, partition.location), parameters=dict(partition.parameters),
        )  # fmt: skip
        with self._client() as client:
            if self.partition(table, partition.values) is None:
                with suppress(AlreadyExistsException):  # another publisher was faster
                    client.add_partition(wanted)
                    return
            client.alter_partition(database, name, wanted)


def _storage(columns: Sequence[Column], location: str) -> Any:
    from hive_metastore.ttypes import FieldSchema, SerDeInfo, StorageDescriptor  # noqa: PLC0415

    fields = [FieldSchema(column.name, column.type, "") for column in columns]
    serde = SerDeInfo(serializationLib=_SERDE, parameters={})
    return StorageDescriptor(cols=fields, location=location, serdeInfo=serde, parameters={}, **_FORMATS)


def _located(found: Any) -> Located:
    return Located(tuple(found.values), found.sd.location, found.parameters or {})


class _Glue:
    """Amazon's Glue, with the credentials and the region of the environment."""

    PLACES: tuple[str, ...] = ("s3://", "s3a://")

    def __init__(self) -> None:
        try:
            import boto3  # noqa: PLC0415  # an extra
        except ImportError:
            raise SpecError.saying("catalog 'glue'", "boto3 is not installed", "install pyiceberg[glue]") from None
        self._client: Any = boto3.client("glue", region_name=os.environ.get("AWS_REGION"))

    def _found(self, call: Callable[..., Any], **arguments: Any) -> Any:
        with suppress(self._client.exceptions.EntityNotFoundException):
            return call(**arguments)
        return None

    def columns(self, table: str) -> tuple[Column, ...] | None:
        database, name = table.split(".")
        answer = self._found(self._client.get_table, DatabaseName=database, Name=name)
        if answer is None:
            return None
        found = answer["Table"]
        fields = (*found["StorageDescriptor"]["Columns"], *found.get("PartitionKeys", ()))
        return tuple(Column(one["Name"], one["Type"]) for one in fields)

    def create(self, table: str, columns: Sequence[Column], keys: Sequence[Column], location: str) -> None:
        database, name = table.split(".")
        made = {
            "Name": name, "TableType": "EXTERNAL_TABLE", "Parameters": _EXTERNAL,
            "StorageDescriptor": _described(columns, location), "PartitionKeys": _fields(keys),
        }  # fmt: skip
        with suppress(self._client.exceptions.AlreadyExistsException):
            self._client.create_table(DatabaseName=database, TableInput=made)

    def partition(self, table: str, values: Sequence[str]) -> Located | None:
        database, name = table.split(".")
        arguments = {"DatabaseName": database, "TableName": name, "PartitionValues": list(values)}
        answer = self._found(self._client.get_partition, **arguments)
        return answer and _answered(answer["Partition"])

    def partitions(self, table: str) -> list[Located]:
        database, name = table.split(".")
        pages = self._client.get_paginator("get_partitions").paginate(DatabaseName=database, TableName=name)
        return self._found(lambda: [_answered(one) for page in pages for one in page["Partitions"]]) or []

    def point(self, table: str, columns: Sequence[Column], partition: Located) -> None:
        database, name = table.split(".")
        values = list(partition.values)
        at = {"DatabaseName": database, "TableName": name}
        wanted = {
            "Values": values, "StorageDescriptor": _described(columns, partition.location),
            "Parameters": dict(partition.parameters),
        }  # fmt: skip
        if self.partition(table, values) is None:
            with suppress(self._client.exceptions.AlreadyExistsException):  # another publisher was faster
                self._client.create_partition(**at, PartitionInput=wanted)
                return
        self._client.update_partition(**at, PartitionValueList=values, PartitionInput=wanted)


def _fields(columns: Sequence[Column]) -> list[dict[str, str]]:
    return [{"Name": column.name, "Type": column.type} for column in columns]


def _described(columns: Sequence[Column], location: str) -> dict[str, Any]:
    formats = {name[0].upper() + name[1:]: value for name, value in _FORMATS.items()}
    serde = {"SerializationLibrary": _SERDE}
    return {"Columns": _fields(columns), "Location": location, "SerdeInfo": serde, **formats}


def _answered(found: Mapping[str, Any]) -> Located:
    return Located(tuple(found["Values"]), found["StorageDescriptor"]["Location"], found.get("Parameters", {}))


METASTORES: Mapping[str, Callable[[], Metastore]] = {"hive": _Hive, "glue": _Glue}
