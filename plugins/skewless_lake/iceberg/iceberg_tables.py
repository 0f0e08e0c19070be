"""The table of an output: made on first use, and held to the columns and the partitions that a result needs."""

from __future__ import annotations

import re
from typing import cast

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, _ConvertToIcebergWithoutIDs, visit_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField

from skewless.errors import SpecError
from skewless.run.objects.location import is_object
from skewless_lake.catalogs import TableName, open_catalog
from skewless_lake.staged_files import OutputPart
from skewless_lake.staging import other_partitions, part_fields, require_columns

_PROPERTIES = {"format-version": "2", "write.parquet.compression-codec": "zstd"}
#: Files of a table on an object store have some bits of a hash before their names: below one prefix, a store serves
#: only so many requests a second.
_SPREAD = {"write.object-storage.enabled": "true"}
_ATTEMPTS = 10
#: That pyiceberg 0.12 writes.
_NEWEST_FORMAT = 2
#: A Hive metastore that loses the race for a database removes its folder again, and the winner's tables with it. Not
#: so if it has not made that folder: one that is there already is not its own.
_REMOVING = frozenset({"HiveCatalog"})
#: Catalogs of pyiceberg 0.12 that have no ``commit_table``.
_READ_ONLY = frozenset({"DynamoDbCatalog", "BigQueryMetastoreCatalog"})


def find_table(target: OutputPart) -> Table | None:
    """The table of an output, as it is now; None if it has not been made yet."""
    name, catalog = _catalog(target)
    try:
        return catalog.load_table(name.identifier)
    except NoSuchTableError:
        return None


def _catalog(target: OutputPart) -> tuple[TableName, Catalog]:
    name = TableName.parse(target.output.path)
    catalog = open_catalog(name.catalog, target.root)
    if (kind := type(catalog).__name__) in _READ_ONLY:
        raise SpecError.saying(
            f"output {name}", f"pyiceberg's {kind} makes tables and reads them, and commits nothing",
            "choose a catalog in SQL, or of the kinds REST, Glue or Hive",
        )  # fmt: skip
    return name, catalog


def sort_order_of(table: Table, target: OutputPart) -> int | None:
    """The number of the table's sort order, if that is how a result is sorted; None if it is not."""
    order = table.sort_order()
    return order.order_id if target.output.sort and order.fields == _sort_fields(table.schema(), target) else None


def _sort_fields(schema: Schema, target: OutputPart) -> list[SortField]:
    return [
        SortField(
            source_id=schema.find_field(name).field_id,
            transform=IdentityTransform(),
            direction=SortDirection.DESC if descending else SortDirection.ASC,
        )
        for name, descending in target.output.order
    ]


def ready_table(target: OutputPart, columns: pa.Schema) -> Table:
    """The table of an output, ready for a result: made if it is not there, its schema evolved if the spec says so."""
    name, catalog = _catalog(target)
    wanted = _schema(pa.schema([*part_fields(target), *columns]), at := f"output {name}")
    for attempt in range(_ATTEMPTS):
        try:
            table = catalog.load_table(name.identifier)
        except NoSuchTableError:
            table = _make(catalog, name, wanted, target)
        _require_partitions(table, target)
        try:
            return _fit(table, target, wanted, at)
        except CommitFailedException:  # somebody has changed the table just now
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def fitting_table(target: OutputPart) -> Table | None:
    """As ``find_table``, of a table that pyiceberg can write, and where a part is just the files of one partition."""
    table = find_table(target)
    if table is not None:
        _require_partitions(table, target)
    return table


def make_namespace(catalog: Catalog, namespace: tuple[str, ...]) -> None:
    """Make a namespace, unless it is there: whoever else makes it at once, what is in its folder stays."""
    if catalog.namespace_exists(namespace):
        return
    properties = dict[str, str]()
    if type(catalog).__name__ in _REMOVING:
        place = f"{catalog.load_namespace_properties('default')['location'].rstrip('/')}/{namespace[0]}.db"
        with load_file_io(dict(catalog.properties), place).new_output(f"{place}/.skewless").create(overwrite=True):
            properties["location"] = place
    try:
        catalog.create_namespace_if_not_exists(namespace, properties)
    except Exception:  # another process has made it just now; each catalog says so in its own way
        if not catalog.namespace_exists(namespace):
            raise


def _schema(columns: pa.Schema, at: str) -> Schema:
    """Columns of Arrow as those of Iceberg, with numbers of their own."""
    found = list[NestedField]()
    for column in columns:
        try:
            found += cast("Schema", visit_pyarrow(pa.schema([column]), _ConvertToIcebergWithoutIDs())).fields
        except (TypeError, ValueError, UnsupportedPyArrowTypeException):
            raise SpecError(
                f"{at}, column {column.name!r}", "a type that Iceberg has", str(column.type),
                "cast the result of the aggregate in map, or publish into a folder",
            ) from None  # fmt: skip
    return assign_fresh_schema_ids(Schema(*found))


def _make(catalog: Catalog, name: TableName, schema: Schema, target: OutputPart) -> Table:
    fields = [
        PartitionField(schema.find_field(part.name).field_id, 1000 + number, IdentityTransform(), part.name)
        for number, part in enumerate(part_fields(target))
    ]
    order = SortOrder(*_sort_fields(schema, target)) if target.output.sort else UNSORTED_SORT_ORDER
    make_namespace(catalog, name.identifier[:-1])
    properties = _PROPERTIES | (_SPREAD if is_object(str(catalog.properties.get("warehouse"))) else {})
    try:
        return catalog.create_table(
            name.identifier, schema, partition_spec=PartitionSpec(*fields), sort_order=order, properties=properties
        )
    except Exception:
        if not catalog.table_exists(name.identifier):
            raise
        return catalog.load_table(name.identifier)


def _require_partitions(table: Table, target: OutputPart) -> None:
    at = f"output {TableName.parse(target.output.path)}"
    if table.format_version > _NEWEST_FORMAT:
        raise SpecError(
            at, "a table of format 1 or 2", f"one of format {table.format_version}",
            "pyiceberg reads later formats, and does not write them yet: publish into a table of its own",
        )  # fmt: skip
    schema = table.schema()
    # Format 1 leaves removed fields there as void ones; pyiceberg does not write to such tables.
    found = [(schema.find_column_name(field.source_id), str(field.transform)) for field in table.spec().fields]
    if found != [(part, "identity") for part in target.values]:
        raise other_partitions(at, target, [f"{column} ({transform})" for column, transform in found])


def _fit(table: Table, target: OutputPart, wanted: Schema, at: str) -> Table:
    """The table with all columns of a result."""
    have, want = ({field.name: _kind(field.field_type) for field in one.fields} for one in (table.schema(), wanted))
    required = {field.name for field in table.schema().fields if field.required}
    odd = require_columns(at, target, have, required, want)
    if not odd:
        return table
    try:
        with table.update_schema() as update:
            update.union_by_name(wanted)
    except CommitFailedException:
        raise
    except Exception as err:  # noqa: BLE001  # pyiceberg raises several kinds for what cannot be evolved
        raise SpecError(
            at, f"a column {odd[0]!r} that can become {want[odd[0]]}", str(err).splitlines()[0][:200],
            "publish into a table of its own",
        ) from None  # fmt: skip
    return table


def _kind(kind: object) -> str:
    """A type without the numbers of its fields."""
    return re.sub(r"\b\d+: ", "", str(kind))
