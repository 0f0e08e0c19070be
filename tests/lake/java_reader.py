"""An Iceberg table as Iceberg's Java core reads it, in a JVM of its own: ``python -m ... METADATA_LOCATION``.

It prints each row as a line of JSON: what ``toString`` gives for each column, by its name.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def jar() -> str:
    import snowpark_connect_deps_iceberg  # type: ignore[import-untyped]

    folder = Path(snowpark_connect_deps_iceberg.__file__ or "").parent / "jars"
    return str(next(folder.glob("iceberg-spark-runtime-*_2.13-*.jar")))


def rows(metadata: str) -> list[dict[str, str | None]]:
    """All rows of the current snapshot."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.extraClassPath", jar())
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    java: Any = spark.sparkContext._jvm
    iceberg, settings = java.org.apache.iceberg, spark.sparkContext._jsc.hadoopConfiguration()
    files = iceberg.hadoop.HadoopFileIO(settings)
    table = iceberg.BaseTable(iceberg.StaticTableOperations(metadata, files), "table")
    names = [field.name() for field in table.schema().columns()]
    found, records = [], iceberg.data.IcebergGenerics.read(table).build().iterator()
    while records.hasNext():
        record = records.next()
        values = [record.getField(name) for name in names]
        found.append(
            {name: java.java.util.Objects.toString(one, None) for name, one in zip(names, values, strict=True)}
        )
    spark.stop()
    return found


if __name__ == "__main__":
    for row in rows(sys.argv[1]):
        sys.stdout.write(json.dumps(row) + "\n")
