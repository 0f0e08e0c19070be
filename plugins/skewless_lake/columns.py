"""The rows of a result with just the columns of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa


def fitted(batch: pa.RecordBatch, kind: pa.Schema, parts: Mapping[str, Any]) -> pa.Table:
    """A batch of a result with just the columns of a table.

    Args:
        batch: of the result.
        kind: the columns of the table's files.
        parts: the values of the columns that name the part, the same in every row.

    Returns:
        Its rows with the columns of ``kind``; those that the result lacks are null.
    """
    return pa.Table.from_arrays(list(_columns(batch, kind, parts)), schema=kind)


def _columns(batch: pa.RecordBatch, kind: pa.Schema, parts: Mapping[str, Any]) -> Iterator[pa.Array]:
    for field in kind:
        if field.name in parts:
            yield pa.repeat(pa.scalar(parts[field.name], field.type), len(batch))
        elif field.name in batch.schema.names:
            yield batch.column(field.name).cast(field.type)
        else:
            yield pa.nulls(len(batch), field.type)
