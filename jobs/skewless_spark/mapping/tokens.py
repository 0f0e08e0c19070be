"""The mapper ``tokens``: every match of a pattern in lines of text, with its file, line and column."""

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, Field, field_validator

from skewless.mapping import MapCall, PythonMapper

_FILE, _ROW = "_metadata.file_path", "_metadata.row_index"


class Options(BaseModel, extra="forbid", frozen=True, strict=True):
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
_SCHEMA = pa.schema([("token", pa.string()), ("file", pa.string()), ("line", pa.int64()), ("column", pa.int32())])


def _create(options: Options) -> MapCall:
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
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA), rows

    return tokens


TOKENS = PythonMapper(
    name="tokens", options=Options, columns=lambda options: (options.column, _FILE, _ROW), schema=lambda _: _SCHEMA,
    create=_create,
)  # fmt: skip
