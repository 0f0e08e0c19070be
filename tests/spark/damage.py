"""Damage that only a checksum shows."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq


def turn_bit_of_largest_page(file: Path) -> None:
    """Turn a bit within the data of a Parquet file, which nothing but the checksum of its page notices."""
    group = pq.read_metadata(file).row_group(0)
    chunk = max((group.column(at) for at in range(group.num_columns)), key=lambda column: column.total_compressed_size)
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    at = int(first + chunk.total_compressed_size - 1)
    content = file.read_bytes()
    file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
