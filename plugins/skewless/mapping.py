"""Python mappers, registered by name: functions over Arrow batches that make any number of rows of each row.

A package registers its mappers as entry points of the group ``skewless.mappers``; a spec names one
and gives options. Nothing in a spec is ever imported or evaluated. One is shipped: ``tokens``, every match of a
pattern in lines of text, with its file, line and column.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, Field, field_validator

from skewless.errors import MapError, SpecError, nearest

GROUP = "skewless.mappers"
_FILE, _ROW = "_metadata.file_path", "_metadata.row_index"

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


class TokensOptions(BaseModel, extra="forbid", frozen=True, strict=True):
    """What a token is."""

    pattern: str = Field(default=r"[A-Za-z_]\w*", min_length=1)
    column: str = "value"
    below: str = ""
    """Files are named by their path below the last folder of this name; if empty, by the whole path."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as err:
            raise ValueError(f"should be a regular expression of Python ({err})") from None
        return pattern


#: ``line`` is counted from 1 and null where a file is cut, ``column`` in characters from 0.
_TOKENS_SCHEMA = pa.schema(
    [("token", pa.string()), ("file", pa.string()), ("line", pa.int64()), ("column", pa.int32())]
)


def _tokens_call(options: TokensOptions) -> MapCall:
    find = re.compile(options.pattern).finditer
    folder = f"/{options.below}/"

    def tokens(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        # Lines are bytes that need not be UTF-8.
        lines = batch.column(options.column).cast(pa.binary()).to_pylist()
        found: list[str] = []
        columns: list[int] = []
        counts = np.zeros(len(lines), dtype=np.int64)
        for number, line in enumerate(lines):
            if line:
                matches = list(find(line.decode("utf-8", "replace")))
                found += [one[0] for one in matches]
                columns += [one.start() for one in matches]
                counts[number] = len(matches)
        rows = np.repeat(np.arange(len(lines), dtype=np.int64), counts)
        taken = pa.array(rows)
        files = batch.column(_FILE).dictionary_encode()
        own = [name.rpartition(folder)[2] if options.below else name for name in files.dictionary.to_pylist()]
        names = pa.array(own, pa.string())
        line_numbers = pc.add(batch.column(_ROW), 1)
        arrays = [
            pa.array(found, pa.string()),
            names.take(files.indices.take(taken)),
            line_numbers.take(taken),
            pa.array(columns, pa.int32()),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=_TOKENS_SCHEMA), rows

    return tokens


TOKENS = PythonMapper(
    name="tokens", options=TokensOptions, columns=lambda options: (options.column, _FILE, _ROW),
    schema=lambda _: _TOKENS_SCHEMA, create=_tokens_call,
)  # fmt: skip
