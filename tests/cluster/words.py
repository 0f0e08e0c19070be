"""The input of the cluster's tests: words in no order, and how often each of them comes."""

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

#: What sources are full of, the commonest first; a word without letters is a key like any other.
_COMMON = (
    "self", "def", "the", "a", "if", "in", "is", "to", "return", "of", "None", "import", "and", "for", "not",
    "", "as", "class", "with", "assertEqual", "else", "try", "except", "raise", "name", "value", "path", "line",
)  # fmt: skip


def zipf_words(most: int, exponent: float, words: int = 2_000) -> dict[str, int]:
    names = [*_COMMON, *(f"name_{rank}" for rank in range(len(_COMMON), words))]
    return {name: max(1, round(most / rank**exponent)) for rank, name in enumerate(names, 1)}


def write_words(folder: Path, counts: Mapping[str, int], files: int) -> None:
    """Parquet files of about the same size, with columns ``word`` and ``size``, instead of what was there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    words = [word for word, rows in counts.items() for _ in range(rows)]
    words.sort(key=lambda word: hashlib.sha256(word.encode()).digest()[0])
    for number in range(files):
        mine = words[number::files]
        table = pa.table({"word": mine, "size": pa.array([len(word) for word in mine], pa.int32())})
        pq.write_table(table, folder / f"{number}.parquet")
