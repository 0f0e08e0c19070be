"""The table that a spec names, whatever made it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless_spark.mapping.conditions import Condition
from skewless_spark.sources.lake.delta import delta_rewrites, delta_snapshot
from skewless_spark.sources.lake.iceberg import iceberg_rewrites, iceberg_snapshot
from skewless_spark.sources.lake.listing import list_snapshot
from skewless_spark.sources.lake.snapshot import Commit, Snapshot, TableFile
from skewless_spark.sources.listing import Listing


@dataclass(frozen=True)
class LakeTable:
    """A pinned table.

    Attributes:
        given: the spec's section ``input``.
        snapshot: what of the table is read.
        root: the data root.
        vectors: the deletion vectors of a Delta table.
    """

    given: Input
    snapshot: Snapshot
    root: str
    vectors: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def pinned(
        cls, given: Input, part: Part, root: str, location: str, conditions: Sequence[Condition] = ()
    ) -> LakeTable:
        """Pin a table now.

        Args:
            given: the spec's section ``input``, of a table of Iceberg or Delta.
            part: what the run computes.
            root: the data root.
            location: of a Delta table, its folder, resolved.
            conditions: files whose bounds hold no row that passes them are left out.

        Raises:
            InputError: there is no such table or snapshot, or it cannot be read here.
            SpecError: a package or a catalog is not set up.
        """
        if given.format == "iceberg":
            return cls(given, iceberg_snapshot(given, part, root, conditions), root)
        snapshot, vectors = delta_snapshot(given, part, location, conditions)
        return cls(given, snapshot, root, vectors)

    def listing(self, share: float, files: Sequence[TableFile] | None = None) -> Listing:
        """The units of all files, or of some; see ``list_snapshot``."""
        return list_snapshot(self.given, self.snapshot, share, files, self.vectors)

    def rewrites(self) -> Iterator[Commit]:
        """The commits up to the pinned one that say of themselves that they changed no row, the newest first."""
        table = self.snapshot.table
        if not table.snapshot:
            return iter(())
        return iceberg_rewrites(self.snapshot, self.root) if table.kind == "iceberg" else delta_rewrites(self.snapshot)
