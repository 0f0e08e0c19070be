"""Which rows of a file its table has deleted, by their position in the file."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skewless.documents.job import Unit
from skewless.errors import InputError
from skewless.run.objects.location import open_location
from skewless_lake.refusals import first_line
from skewless_spark.sources.formats.parquet import open_parquet

Positions = npt.NDArray[np.int64]
#: Deletion vectors by the paths of their files, each packed.
Vectors = Mapping[str, bytes]
_PUFFIN = ".puffin"
#: Names one deletion vector of a Delta table, whose log holds it or says where it is.
VECTOR = "vector:"
#: A delete file may be about all files of a partition; a worker reads it once for those that it reads in a row.
_KEPT_FILES = 4


def deleted_positions(path: str, deletes: Iterable[str], vectors: Vectors) -> Positions:
    """The positions of the deleted rows of a file, ascending, each once.

    Raises:
        InputError: what the table says about its deleted rows cannot be read any more.
    """
    found = [unpacked(vectors[path]) if one.startswith(VECTOR) else _of_file(one, path) for one in deletes]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def deleted_of_unit(unit: Unit, vectors: Vectors) -> Positions:
    """As ``deleted_positions``, counted from the first row of the unit; negative ones are before it."""
    return deleted_positions(unit.path, unit.deletes, vectors) - unit.first_row


def packed(kept: Iterable[bool]) -> bytes:
    """A deletion vector, from whether each row is kept."""
    return zlib.compress(np.packbits(~np.asarray(kept, dtype=bool)).tobytes(), 1)


def unpacked(vector: bytes) -> Positions:
    """The positions of a packed deletion vector."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(zlib.decompress(vector), np.uint8))).astype(np.int64)


def _of_file(deletes: str, path: str) -> Positions:
    try:
        return _of_puffin(deletes, path) if deletes.endswith(_PUFFIN) else _of_parquet(deletes, path)
    except (pa.ArrowException, OSError, KeyError, ValueError) as err:
        raise InputError(
            f"delete file {deletes}", f"the deleted rows of {path}", first_line(err),
            "nothing was committed; if its snapshot has expired, start a new run",
        ) from None  # fmt: skip


def _of_parquet(deletes: str, path: str) -> Positions:
    by_file = _by_file(deletes)
    found = [by_file[spelled] for spelled in _spellings(path) if spelled in by_file]
    return np.concatenate(found) if found else np.empty(0, np.int64)


@lru_cache(maxsize=_KEPT_FILES)
def _by_file(deletes: str) -> dict[str, Positions]:
    """The positions that a delete file has of each file, grouped once: it may be about thousands of files."""
    fs, file = open_location(deletes)
    with fs.open(file, "rb") as opened:
        table = open_parquet(opened).read(columns=["file_path", "pos"])
    if not len(table):
        return {}
    encoded = table["file_path"].combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    positions = table["pos"].to_numpy().astype(np.int64)[order]
    ends = np.searchsorted(codes[order], np.arange(len(encoded.dictionary)), side="right")
    return dict(zip(encoded.dictionary.to_pylist(), np.split(positions, ends[:-1]), strict=True))


def _of_puffin(deletes: str, path: str) -> Positions:
    from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file  # noqa: PLC0415  # an extra
    from pyiceberg.table.puffin import PuffinFile  # noqa: PLC0415

    fs, file = open_location(deletes)
    with fs.open(file, "rb") as opened:
        vectors = deletion_vectors_from_puffin_file(PuffinFile(opened.read()))
    found = [one.to_vector() for one in vectors if one.referenced_data_file in _spellings(path)]
    arrays = [np.asarray(chunk, dtype=np.int64) for one in found for chunk in one.chunks]
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)


def _spellings(path: str) -> list[str]:
    """A path as manifests may spell it, see ``plain_path``."""
    return [path] if "://" in path else [path, f"file:{path}", f"file://{path}"]
