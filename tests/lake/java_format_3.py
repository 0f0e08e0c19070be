"""Writes an Iceberg table of format 3, with deletion vectors, by Iceberg's own Java core: ``python -m ... FOLDER``.

pyiceberg does not write them. Standard input has, as JSON, the positions to delete in each file, commit by commit. It
prints where the metadata is.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.lake.java_reader import jar
from tests.lake.java_server import java

ROWS = 100
_SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "k", "required": False, "type": "string"}]}


def write(folder: Path, deletes: list[dict[str, list[int]]]) -> str:
    """Make the table, with a file for each name in ``deletes``, and delete rows; where its metadata is."""
    classes = java(jar())
    iceberg = classes.org.apache.iceberg
    table = iceberg.hadoop.HadoopTables(classes.org.apache.hadoop.conf.Configuration()).create(
        iceberg.SchemaParser.fromJson(json.dumps(_SCHEMA)), iceberg.PartitionSpec.unpartitioned(),
        {"format-version": "3"}, str(folder),
    )  # fmt: skip
    added = table.newAppend()
    kind = pa.schema([pa.field("k", pa.string(), metadata={"PARQUET:field_id": "1"})])
    for name in sorted({name for commit in deletes for name in commit}):
        path = folder / name
        pq.write_table(pa.table([[f"{name} {number}" for number in range(ROWS)]], schema=kind), path)
        file = iceberg.DataFiles.builder(table.spec()).withPath(str(path)).withFormat("parquet").withRecordCount(ROWS)
        added.appendFile(file.withFileSizeInBytes(path.stat().st_size).build())
    added.commit()
    none_before = classes.com.google.common.base.Functions.constant(None)
    for number, commit in enumerate(deletes):
        places = iceberg.io.OutputFileFactory.builderFor(table, number, 1).format(iceberg.FileFormat.PUFFIN).build()
        vectors = iceberg.deletes.BaseDVFileWriter(places, none_before)
        for name, positions in commit.items():
            for position in positions:
                vectors.delete(str(folder / name), position, table.spec(), None)
        vectors.close()
        change = table.newRowDelta()
        for file in vectors.result().deleteFiles():
            change.addDeletes(file)
        change.commit()
    return str(table.operations().current().metadataFileLocation())


if __name__ == "__main__":
    sys.stdout.write(write(Path(sys.argv[1]), json.load(sys.stdin)))
