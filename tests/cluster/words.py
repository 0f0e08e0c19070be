"""The input of the cluster's tests: words in no order, and how often each of them comes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def write_words(folder: Path, counts: Mapping[str, int], files: int) -> None:
    """Parquet files of about the same size, with columns ``word`` and ``size``."""
    folder.mkdir(parents=True)
    words = [word for word, rows in counts.items() for _ in range(rows)]
    words.sort(key=lambda word: hashlib.sha256(word.encode()).digest()[0])
    for number in range(files):
        mine = words[number::files]
        table = pa.table({"word": mine, "size": pa.array([len(word) for word in mine], pa.int32())})
        pq.write_table(table, folder / f"{number}.parquet")
