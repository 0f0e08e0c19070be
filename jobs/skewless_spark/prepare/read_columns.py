"""The columns of the input that a job reads: only they decide whether a file has the schema of the others."""

from __future__ import annotations

import posixpath
from collections.abc import Container, Mapping
from dataclasses import dataclass

from skewless.documents.job import Source, Unit
from skewless.spec.spec import JobSpec
from skewless_spark.sources import Listing
from skewless_spark.sources.schemas import fitted


@dataclass(frozen=True)
class ReadColumns:
    """What a job reads of its input.

    Attributes:
        names: the columns of files and of folders that it reads.
        of_files: the types of those of the files, and of one that shows the number of rows if it reads none.
        shaping: the types of all that may shape a state.
        required: those that no file may lack.
        declared: those whose types the spec declares.
    """

    names: tuple[str, ...]
    of_files: Mapping[str, str]
    shaping: Mapping[str, str]
    required: Container[str]
    declared: Container[str]

    @classmethod
    def of(cls, spec: JobSpec, source: Source) -> ReadColumns:
        """Those of a job, from the source with the columns that it reads."""
        kinds = {**source.columns, **source.partition_columns}
        evolves = spec.input.missing_columns == "evolve" or spec.input.format == "catalog"  # the catalog has told them
        return cls(
            source.reads,
            source.columns,
            {name: kinds[name] for name in source.reads if name in kinds},
            () if evolves else {*source.reads, spec.quality.freshness or ""},
            spec.input.columns or {},
        )

    def fitted(self, listing: Listing, first: str = "") -> tuple[Unit, ...]:
        """The units of some files, with what these lack.

        Args:
            listing: of the files.
            first: the file whose types are wanted; by default the first of these.

        Raises:
            InputError: a file lacks a column, or has it in another type.
        """
        like = posixpath.basename(first or next(iter(listing.own), ""))

        def told(name: str) -> str:
            return "the spec declares it" if name in self.declared else f"in {like}"

        return fitted(listing.units, listing.own, self.of_files, self.required, told)
