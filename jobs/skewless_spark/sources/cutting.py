"""Cuts large files into units, along their row groups, stripes or bytes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow.parquet as pq

from skewless_spark.session import queries

#: Smaller pieces are not worth opening a file for.
LEAST_BYTES = 256 << 10
#: A file is cut if it is more than this many times as large as a piece.
_SLACK = 2
#: Spark's own scan decodes 4,096 rows at a time, whatever their bytes. Files whose rows have more than this on average,
#: or one of whose row groups has this many bytes of one column of texts, are not left to it.
_WIDE_ROW_BYTES, _WIDE_BYTES = 64 << 10, 512 << 20


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


def has_wide_rows(footer: pq.FileMetaData) -> bool:
    """Whether a file may have so wide rows side by side that Spark's own scan has no memory for them.

    Bytes are told for a row group as a whole: where they are many, a few of its rows may have most of them.
    """
    for group in map(footer.row_group, range(footer.num_row_groups)):
        if 0 < group.num_rows * _WIDE_ROW_BYTES < group.total_byte_size:
            return True
        if group.total_byte_size > _WIDE_BYTES:  # else it needs no look at its columns
            texts = (one for one in map(group.column, range(group.num_columns)) if one.physical_type == "BYTE_ARRAY")
            if any(one.total_uncompressed_size > _WIDE_BYTES for one in texts):
                return True
    return False


def rows_at_a_time(footer: pq.FileMetaData, groups: Sequence[int] | None, columns: Collection[str]) -> int:
    """How many rows of a Parquet file are read into a batch, so that it has about ``queries.BATCH_BYTES`` at most.

    Args:
        footer: of the file.
        groups: the row groups that are read; None for all.
        columns: the columns that are read.
    """
    least = queries.BATCH_ROWS
    for group in map(footer.row_group, range(footer.num_row_groups) if groups is None else groups):
        if group.total_byte_size * least > queries.BATCH_BYTES * group.num_rows:  # else it needs no look at its columns
            chunks = map(group.column, range(group.num_columns))
            size = sum(one.total_uncompressed_size for one in chunks if one.path_in_schema.split(".")[0] in columns)
            least = max(1, min(least, queries.BATCH_BYTES * group.num_rows // max(1, size)))
    return least
