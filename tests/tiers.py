"""Which tests ``make test`` leaves to ``make test-long``: those with the marker ``long``."""

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_long(cases: Iterable[Any], *short: Any) -> list[Any]:
    """The parameters of a test of which the default run takes a few only."""
    marked = []
    left = list(short)
    for case in cases:
        if case in left:
            left.remove(case)
            marked.append(case)
        else:
            values = case if isinstance(case, tuple) else (case,)
            marked.append(pytest.param(*values, marks=pytest.mark.long))
    assert not left, f"not among the cases: {left}"
    return marked
