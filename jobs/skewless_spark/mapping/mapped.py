"""What a map makes of the columns of an input."""

from __future__ import annotations

from typing import NamedTuple

from skewless.documents.job import Selected


class Mapped(NamedTuple):
    """The columns of the mapped rows, and what they are made from.

    Attributes:
        types: Spark SQL type of each mapped column.
        reads: the input columns that the map reads.
        selected: the select list as it was parsed, if the map is one.
    """

    types: dict[str, str]
    reads: tuple[str, ...]
    selected: tuple[Selected, ...] = ()
