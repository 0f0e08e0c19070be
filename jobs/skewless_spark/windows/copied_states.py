"""States that a stage has made, one for each key of a part, written into the store by Arrow.

A Spark job for that takes two seconds and a half of a night in a new process, most of it to compile its code.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StructType

from skewless.documents.commit import CommittedFile
from skewless.run.directory import Attempt, RunDirectory
from skewless_spark.branches import PLACE
from skewless_spark.branches.native import Native
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.states.as_spark import AsSpark
from skewless_spark.states.columns import PART, JobColumns
from skewless_spark.states.committed_files import readable

#: States of at most this many bytes are copied; all are in memory meanwhile.
MOST_BYTES = 32 << 20


def copy_states(
    run: RunDirectory, files: Sequence[CommittedFile], columns: JobColumns, attempt: Attempt, folder: str
) -> bool:
    """Write the states of each part into a file of its own, in the order of keys, with the place of the part.

    Args:
        files: of the only stage, with one state for each part and key.
        attempt: in the store.

    Returns:
        Whether that was done: the states are few, and Arrow writes their columns as Spark does.

    Raises:
        RunDirectoryError: a file is not the one that was committed, or is damaged.
    """
    if sum(file.size_bytes for file in files) > MOST_BYTES:
        return False
    names = [*columns.keys, "rows", *Native(columns).names]
    as_spark = AsSpark.of(run, files, {name: name for name in names})
    if as_spark is None:
        return False
    noted = None if as_spark.noted is None else StructType([*as_spark.noted]).add(PLACE, LongType())
    kept = as_spark._replace(kind=as_spark.kind.append(pa.field(PLACE, pa.int64())), noted=noted)

    def read(file: CommittedFile) -> pa.Table:
        with readable(run, file), run.fs.open(f"{run.root}/{file.path}", "rb") as opened:
            return open_parquet(opened).read([PART, *names], use_threads=False)

    with ThreadPoolExecutor(max_workers=8) as pool:
        states = pa.concat_tables(pool.map(read, files))
    store, window = attempt.run, columns.window
    for at in pc.unique(states[PART]).to_pylist():
        rows = states.filter(pc.equal(states[PART], at)).select(names)
        # As Spark sorts, with null first.
        order = {f"{key}{at}": one for key in columns.keys for at, one in enumerate((rows[key].is_valid(), rows[key]))}
        rows = rows.take(pc.sort_indices(pa.table(order), [(name, "ascending") for name in order]))
        places = pa.array(np.full(len(rows), window.parts[at].place))
        target = f"{store.root}/{attempt.folder}/{folder}/{PART}={at}"
        store.fs.makedirs(target, exist_ok=True)
        with store.fs.open(f"{target}/part-00000.parquet", "wb") as out, kept.writer(out) as writer:
            writer.write_table(pa.Table.from_arrays([*rows.columns, places], schema=kept.kind))
    return True
