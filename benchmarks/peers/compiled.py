"""The one place that knows numba: a typed call of its compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(kernel: Kernel) -> Kernel:
    """Compile a function of arrays and numbers at its first call.

    Nothing is cached on disk, so a changed callee is never missed and a read-only checkout works.

    Args:
        kernel: A function in numba's subset of Python.

    Returns:
        The function, to be called alike.
    """
    return cast("Kernel", numba.njit(cache=False)(kernel))
