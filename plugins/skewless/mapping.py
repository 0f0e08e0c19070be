"""Python mappers, registered by name: functions over Arrow batches that make any number of rows of each row.

A package registers its mappers as entry points of the group ``skewless.mappers``; a spec names one
and gives options. Nothing in a spec is ever imported or evaluated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel

from skewless.errors import MapError, SpecError, nearest

GROUP = "skewless.mappers"

#: Takes a batch of the mapper's columns. Returns the mapped rows and, for each, the row of the batch that it was made
#: from: ascending integers, shape ``(mapped rows,)``.
MapCall = Callable[[pa.RecordBatch], tuple[pa.RecordBatch, npt.NDArray[np.int64]]]


@dataclass(frozen=True)
class PythonMapper:
    """A mapper that a spec can name."""

    name: str
    options: type[BaseModel]
    """The pydantic model (strict) of its options."""
    columns: Callable[[Any], Sequence[str]]
    """The input columns it is given, in order, from validated options; also ``_metadata.file_path``,
    ``_metadata.file_name`` and ``_metadata.row_index``."""
    schema: Callable[[Any], pa.Schema]
    """Of the mapped rows, from validated options."""
    create: Callable[[Any], MapCall]
    """The call, from validated options. It must not keep anything from batch to batch."""


def mapper_named(name: str, at: str) -> PythonMapper:
    """The mapper registered under a name; it is loaded now, and no other one is. Anything else is a ``SpecError``."""
    known = entry_points(group=GROUP)
    found = {(one.name, one.value): one for one in known if one.name == name}
    if not found:
        raise SpecError(at, "a registered mapper", repr(name), nearest(name, {one.name for one in known} or {"none"}))
    if len(found) > 1:
        raise SpecError(at, f"one mapper of the name {name!r}", " and ".join(value for _, value in found))
    mapper = next(iter(found.values())).load()
    if not isinstance(mapper, PythonMapper):
        raise SpecError(at, f"a PythonMapper behind {name!r}", f"a {type(mapper).__name__}")
    return mapper


def places(mapped: pa.RecordBatch, source_rows: Any, rows: int, mapper: PythonMapper, schema: pa.Schema) -> Any:
    """Check that a mapper keeps its contract, and number the rows that it made from each row of its batch.

    The source rows come back and, for each mapped row, its place among those of the same source row, from 0. A broken
    contract is a ``MapError``.
    """
    at = f"mapper {mapper.name!r}"
    if (
        not isinstance(mapped, pa.RecordBatch)
        or mapped.schema.names != schema.names
        or mapped.schema.types != schema.types
    ):
        came = str(getattr(mapped, "schema", type(mapped).__name__)).replace("\n", ", ")
        raise MapError(at, f"rows of {str(schema).replace(chr(10), ', ')}", came)
    source = np.asarray(source_rows, dtype=np.int64)
    if source.shape != (mapped.num_rows,):
        raise MapError(at, f"a source row for each of {mapped.num_rows:,} rows", f"{source.shape}")
    if len(source) and (source[0] < 0 or source[-1] >= rows or (np.diff(source) < 0).any()):
        raise MapError(at, f"ascending source rows below {rows:,}", "others")
    first = np.searchsorted(source, source, side="left")
    return source, (np.arange(len(source)) - first).astype(np.int32)
