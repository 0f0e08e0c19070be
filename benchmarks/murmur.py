"""The row hashes of many rows at once: what ``RoutingPlan.row_hash`` says row by row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from skewless.routing.hashing import KEY_SEED, finished, mixed


def row_hashes(origins: npt.NDArray[np.int64], salt: int) -> npt.NDArray[np.int64]:
    """``RoutingPlan.row_hash`` of many origins, shape as given."""
    blocks = origins >> 2
    low = (blocks & 0xFFFFFFFF).astype(np.uint32)
    high = (blocks >> 32).astype(np.uint32)
    state = np.full(len(origins), KEY_SEED, dtype=np.uint32)
    hashed = finished(mixed(mixed(state, low), high), 8)
    salted = mixed(hashed, np.full(len(origins), salt, dtype=np.uint32))
    block = finished(salted, 4).astype(np.int64)
    return (block + ((origins & 3) << 30)) & 0xFFFFFFFF
