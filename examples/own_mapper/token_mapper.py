"""A mapper of your own: the matches of a pattern in lines of text, each with its file, line and column.

The folder beside this file is what an installer leaves of a package; with both on the ``PYTHONPATH`` of Skewless and of
Spark's workers, a spec may say ``map: {mapper: tokens}``. What Spark SQL can do belongs into ``map.select``.
"""

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, Field, field_validator

from skewless.mapping import MapCall, PythonMapper

SCHEMA = pa.schema([("token", pa.string()), ("file", pa.string()), ("line", pa.int64()), ("column", pa.int32())])


class Options(BaseModel, extra="forbid", frozen=True, strict=True):
    """What a token is."""

    pattern: str = Field(default=r"[A-Za-z_]\w*", min_length=1)
    column: str = "value"

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as err:
            raise ValueError(f"should be a regular expression of Python ({err})") from None
        return pattern


def mapper(options: Options) -> MapCall:
    """The call: mapped rows of a batch, and the row that each was made from."""

    def tokens(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        # Lines are bytes that need not be UTF-8.
        lines = batch.column(options.column).cast(pa.binary()).to_pylist()
        found = [list(re.finditer(options.pattern, (line or b"").decode("utf-8", "replace"))) for line in lines]
        rows = np.repeat(np.arange(len(lines)), list(map(len, found)))
        arrays = [
            pa.array([one[0] for of_line in found for one in of_line], pa.string()),
            batch.column("_metadata.file_path").take(pa.array(rows)),
            pc.add(batch.column("_metadata.row_index"), 1).take(pa.array(rows)),
            pa.array([one.start() for of_line in found for one in of_line], pa.int32()),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), rows

    return tokens


TOKENS = PythonMapper(
    "tokens", Options, lambda options: (options.column, "_metadata.file_path", "_metadata.row_index"), lambda _: SCHEMA,
    mapper,
)  # fmt: skip
