"""Cuts large files into units, along their row groups, stripes or bytes."""

from __future__ import annotations

from collections.abc import Sequence

#: Smaller pieces are not worth opening a file for.
LEAST_BYTES = 256 << 10
#: A file is cut if it is more than this many times as large as a piece.
_SLACK = 2


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
