"""The table that a spec names, whatever made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless_spark.sources.lake.delta import delta_snapshot
from skewless_spark.sources.lake.iceberg import iceberg_snapshot
from skewless_spark.sources.lake.listing import list_snapshot
from skewless_spark.sources.lake.snapshot import Snapshot, TableFile
from skewless_spark.sources.listing import Listing


@dataclass(frozen=True)
class LakeTable:
    """A pinned table.

    Attributes:
        given: the spec's section ``input``.
        snapshot: what of the table is read.
        vectors: the deletion vectors of a Delta table.
    """

    given: Input
    snapshot: Snapshot
    vectors: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def pinned(cls, given: Input, part: Part, root: str, location: str) -> LakeTable:
        """Pin a table now.

        Args:
            given: the spec's section ``input``, with ``iceberg`` or ``delta``.
            part: what the run computes.
            root: the data root.
            location: of a Delta table, its folder, resolved.

        Raises:
            InputError: there is no such table or snapshot, or it cannot be read here.
            SpecError: a package or a catalog is not set up.
        """
        if given.iceberg is not None:
            return cls(given, iceberg_snapshot(given, part, root))
        return cls(given, *delta_snapshot(given, location))

    def listing(self, share: float, files: Sequence[TableFile] | None = None) -> Listing:
        """The units of all files, or of some; see ``list_snapshot``."""
        return list_snapshot(self.given, self.snapshot, share, files, self.vectors)

