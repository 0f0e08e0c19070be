"""A result as an Iceberg table: two days are published, one of them twice, and that one goes back to its first version.

The table is in the embedded catalog of the data root. In the end it is read with pyiceberg and with DuckDB, and what is
to be typed for that is printed.
"""

from __future__ import annotations

import datetime as dt
import time
from contextlib import suppress
from pathlib import Path

import duckdb
from pyiceberg.exceptions import NoSuchTableError

from examples import data_root, say
from skewless.publication.records import publication_of
from skewless.run.directory import RunDirectory
from skewless.spec.part import Part
from skewless.spec.reading import load_spec
from skewless_lake.catalogs import TableName, open_catalog
from skewless_lake.iceberg_tables import publications
from skewless_lake.publication import roll_back
from skewless_lake.staged_files import OutputPart
from skewless_spark.entries.pipeline import run_pipeline
from skewless_spark.prepare.prepare import prepare
from skewless_spark.session.session import build_session

SPEC = Path(__file__).with_name("lake.yaml")
DAYS = (dt.date(2026, 11, 20), dt.date(2026, 11, 21), dt.date(2026, 11, 21))

_HOW = """
Read it with pyiceberg:
  from pyiceberg.catalog.sql import SqlCatalog
  table = SqlCatalog("local", uri="sqlite:///{root}/catalog.db", warehouse="{root}/warehouse").load_table("demo.tokens")
  table.scan(row_filter="day = '2026-11-21'").to_arrow()
with DuckDB, of the same snapshot:
  table.scan().to_duckdb("tokens").sql("SELECT token, occurrences FROM tokens ORDER BY 2 DESC LIMIT 5")
with Spark, which needs Iceberg's jar of its version:
  spark.read.format("iceberg").load("{metadata}")
Go back to the version of a day before the published one:
  skewless rollback examples/lake.yaml --date 2026-11-21
"""


def main() -> None:
    """``python -m examples.lake``: works below ``$SKEWLESS_ROOT``, or ``data``."""
    root = data_root().absolute()
    spec = load_spec(SPEC)
    name = TableName.parse(spec.output.path)
    catalog = open_catalog(name.catalog, str(root))
    with suppress(NoSuchTableError):
        catalog.drop_table(name.identifier)  # of an earlier demonstration
    spark = build_session("lake", "local[*]")
    for day in DAYS:
        begun = time.monotonic()
        run = RunDirectory(str(root / "runs" / spec.name / f"demo-{time.time_ns()}"))
        prepare(run, spec, day, str(root), str(SPEC))
        run_pipeline(spark, run)
        published = publication_of(run)
        if published is None:
            raise ValueError(f"{run} was not published")
        seconds = time.monotonic() - begun
        say(f"{day}: {published.keys:,} tokens published as snapshot {published.snapshot} in {seconds:.1f} s")
    spark.stop()
    target = OutputPart(spec.output, f"iceberg://{name}", str(root), Part(DAYS[-1]))
    about = roll_back(target, dt.datetime.now(tz=dt.UTC))
    say(f"{DAYS[-1]} went back to its first version as snapshot {about['snapshot']}, {about['rolled-back']}")
    table = catalog.load_table(name.identifier)
    say("\nThe table's own history, the newest first:")
    for snapshot, told in publications(table, target):
        of = f"day {told['part']}, turn {told['turn']}, {int(told['input-rows']):,} tokens counted"
        say(f"  {snapshot}  {of}, quality {told['quality']}")
    rows = table.scan(row_filter=f"day = '{DAYS[-1]}'").to_arrow()
    say(f"\nMost frequent of {len(rows):,} tokens of {DAYS[-1]}, read with pyiceberg and asked with DuckDB:")
    asked = duckdb.connect().register("found", rows)
    for token, occurrences in asked.execute("SELECT token, occurrences FROM found ORDER BY 2 DESC LIMIT 5").fetchall():
        say(f"  {occurrences:>9,}  {token}")
    say(_HOW.format(root=root, metadata=table.metadata_location).rstrip())


if __name__ == "__main__":
    main()
