"""Lines of JSON between a worker and the process that beats for it."""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any

_BLOCK = 1 << 16


class Lines:
    """Lines of JSON that come through a pipe, each within a time.

    Args:
        descriptor: of the pipe.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._read = descriptor, b""

    def next(self, within: float) -> Any:
        """The next line; None if it does not come within so many seconds.

        Raises:
            EOFError: the pipe has ended.
        """
        until = time.monotonic() + within
        while b"\n" not in self._read:
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            block = os.read(self._descriptor, _BLOCK)
            if not block:
                raise EOFError
            self._read += block
        line, _, self._read = self._read.partition(b"\n")
        return json.loads(line)
