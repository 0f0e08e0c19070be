"""The columns that a map makes from the columns of an input."""

from __future__ import annotations

from typing import NamedTuple

from skewless.documents.job import Selected


class Mapped(NamedTuple):
    """The columns of the mapped rows, and the input columns that they are made from.

    Attributes:
        types: the Spark SQL type of each mapped column.
        reads: the input columns that the map reads.
        selected: the parsed select list; empty for a mapper.
    """

    types: dict[str, str]
    reads: tuple[str, ...]
    selected: tuple[Selected, ...] = ()
