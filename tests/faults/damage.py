"""Damage to the files of a run directory, one file at a time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

import pyarrow.parquet as pq

Kind = Literal["cut", "bit", "gone", "empty", "folder"]
KINDS: tuple[Kind, ...] = ("cut", "bit", "gone", "empty", "folder")


def damage(path: Path, kind: Kind, seed: int) -> str:
    """Damage a file, and say how: cut it, turn one of its bits, take it away, empty it, or put a folder there."""
    content, chance = path.read_bytes(), random.Random(seed)
    if kind == "gone":
        path.unlink()
        return "taken away"
    if kind == "empty":
        path.write_bytes(b"")
        return "emptied"
    if kind == "folder":
        path.unlink()
        path.mkdir()
        return "made a folder"
    at = chance.randrange(len(content))
    if kind == "cut":
        path.write_bytes(content[:at])
        return f"cut after {at} of {len(content)} bytes"
    bit = chance.randrange(8)
    path.write_bytes(content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :])
    return f"bit {bit} of byte {at} of {len(content)} turned"


def kinds_for(path: Path) -> tuple[Kind, ...]:
    """What may happen to a file. Of an empty one, as a lease's record has, the name is what counts."""
    return KINDS if path.stat().st_size else ("gone", "folder")


def files_of(folder: Path) -> list[Path]:
    """The files of a run directory that were written by us, or by Spark for us; Spark's own notes are none."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if not path.name.startswith((".", "_")))


def last_byte_of_largest_page(file: Path) -> int:
    """The place of a byte of data in a Parquet file, which nothing but the checksum of its page tells from another."""
    group = pq.read_metadata(file).row_group(0)
    chunk = max((group.column(at) for at in range(group.num_columns)), key=lambda one: one.total_compressed_size)
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    return int(first + chunk.total_compressed_size - 1)
