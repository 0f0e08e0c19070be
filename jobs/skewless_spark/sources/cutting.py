"""Cuts large files into units, along their row groups, stripes or bytes; and large batches into small ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

#: Smaller pieces are not worth opening a file for.
LEAST_BYTES = 256 << 10
#: A file is cut if it is more than this many times as large as a piece.
_SLACK = 2
#: A batch of rows has at most so many rows, and so many bytes unless a single row has more: Arrow's texts end at 2 GiB
#: in a batch, and a JVM that is given some such batches has no memory left.
BATCH_ROWS, BATCH_BYTES = 1 << 16, 64 << 20
#: Spark's own scan decodes 4,096 rows at a time, whatever their bytes. Files whose rows have more than this on average
#: are not left to it.
_WIDE_ROW_BYTES = 64 << 10


def piece_bytes(sizes: Sequence[int], share: float, cut_bytes: int) -> int:
    """Bytes that a unit should have: at most ``cut_bytes``, and few enough for the smallest wave.

    Args:
        sizes: bytes of each file.
        share: the fraction of the input that the smallest wave has.
        cut_bytes: the limit in the spec.
    """
    return max(LEAST_BYTES, min(cut_bytes, int(sum(sizes) * share)))


def is_large(size: int, piece: int, cut_bytes: int) -> bool:
    """Whether a file is to be cut."""
    return size > cut_bytes or size > _SLACK * piece


def cut_groups(pieces: Sequence[tuple[int, int]], size: int, piece: int) -> list[tuple[int, int]]:
    """Ranges of neighbouring row groups or stripes, each of about ``piece`` bytes.

    Args:
        pieces: ``(rows, bytes)`` of each row group or stripe; only the proportions of the bytes matter.
        size: bytes of the file.
        piece: bytes of a range.
    """
    total = sum(weight for _, weight in pieces) or 1
    wanted = piece * total / size
    spans, start, filled = [], 0, 0.0
    for number, (_, weight) in enumerate(pieces):
        if filled and filled + weight / 2 > wanted:
            spans.append((start, number))
            start, filled = number, 0.0
        filled += weight
    return [*spans, (start, len(pieces))]


def cut_bytes_evenly(size: int, piece: int) -> list[tuple[int, int]]:
    """Ranges of bytes of equal length."""
    number = max(1, round(size / piece))
    return [(size * part // number, size * (part + 1) // number) for part in range(number)]


def has_wide_rows(pieces: Sequence[tuple[int, int]]) -> bool:
    """Whether rows are too wide to be read so many at a time, whatever they have in bytes.

    Args:
        pieces: ``(rows, uncompressed bytes)`` of each row group.
    """
    return any(0 < rows * _WIDE_ROW_BYTES < size for rows, size in pieces)


def cut_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a batch within ``BATCH_ROWS`` and ``BATCH_BYTES``: as halves of halves, since rows are unlike."""
    if batch.num_rows > 1 and (batch.num_rows > BATCH_ROWS or _bytes(batch) > BATCH_BYTES):
        half = batch.num_rows // 2
        yield from cut_batch(batch.slice(0, half))
        yield from cut_batch(batch.slice(half))
    else:
        yield batch


def _bytes(batch: pa.RecordBatch) -> int:
    """About the bytes of a batch, with the values of dictionaries in their places."""
    return sum(_decoded_bytes(column) for column in batch.columns)


def _decoded_bytes(column: pa.Array) -> int:
    if not pa.types.is_dictionary(column.type) or not len(column.dictionary):
        return int(column.nbytes)
    return int(column.dictionary.nbytes / len(column.dictionary) * len(column))


def rows_at_a_time(footer: pq.FileMetaData, groups: Sequence[int] | None, columns: Collection[str]) -> int:
    """How many rows of a Parquet file are read into a batch, so that it has about ``BATCH_BYTES`` at most.

    Args:
        footer: of the file.
        groups: the row groups that are read; None for all.
        columns: the columns that are read.
    """
    least = BATCH_ROWS
    for group in map(footer.row_group, range(footer.num_row_groups) if groups is None else groups):
        if group.total_byte_size * least > BATCH_BYTES * group.num_rows:  # else it needs no look at its columns
            chunks = map(group.column, range(group.num_columns))
            size = sum(one.total_uncompressed_size for one in chunks if one.path_in_schema.split(".")[0] in columns)
            least = max(1, min(least, BATCH_BYTES * group.num_rows // max(1, size)))
    return least
