"""The figures of a run that later nights are compared with: what it has counted anyway."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from skewless.documents.job import Job
from skewless.documents.ledger import Ledger
from skewless.documents.nights import Measured
from skewless.documents.stage_report import StageReport


def figures_of(
    job: Job,
    reports: Sequence[StageReport],
    ledger: Ledger,
    keys: int,
    columns: Mapping[str, tuple[int | None, float | None]],
) -> dict[str, Measured]:
    """The figures by what they are, in words. What was not counted is not among them.

    Args:
        columns: of aggregates by name, how many of their values are null, and the mean of numbers; None if not known.
    """
    rows = next((one.rows for one in ledger.parts if one.part == job.part.name), ledger.state_rows)
    found: dict[str, Measured] = {"rows": (rows, 0), "keys": (keys, 0)}
    histogram = reports[-1].histogram if reports else None
    if histogram is not None and histogram.seen_rows:
        seen = histogram.seen_rows
        found["rows without a key"] = (histogram.seen_null_rows / seen, seen)
        if histogram.head:
            found["rows of the heaviest key"] = (max(of_key for of_key, _ in histogram.head.values()) / seen, seen)
    for name, (nulls, mean) in columns.items():
        if keys and nulls is not None:
            found[f"keys without {name}"] = (nulls / keys, keys)
        if mean is not None:
            found[f"mean of {name}"] = (mean, 0)
    return found


def shape_of(job: Job) -> str:
    """A digest of what the figures of a job are of: nights of another key, say, cannot be compared with them."""
    spec = job.spec
    what = spec.model_dump(mode="json", include={"key", "aggregates", "map"}) | {"windows": spec.lengths}
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
