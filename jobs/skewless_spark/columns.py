"""How a job's columns are named inside stages: by number, so that no user's name can clash."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.job import Job
from skewless_spark.aggregates.binding import BoundAggregate, bind, native_of, python_of
from skewless_spark.aggregates.native import native_argument
from skewless_spark.key_text import key_text


@dataclass(frozen=True)
class JobColumns:
    """The input columns of a job, ``c0``, ``c1``, ...: the key columns first, then the arguments.

    Attributes:
        job: the frozen job.
        inputs: input column names, in the order of their numbers.
        bound: the job's aggregates.
    """

    job: Job
    inputs: tuple[str, ...]
    bound: tuple[BoundAggregate, ...]

    @classmethod
    def of(cls, job: Job) -> JobColumns:
        """The columns a job reads."""
        bound = bind(job)
        arguments = [one.column for one in bound if one.column is not None]
        return cls(job, tuple(dict.fromkeys((*job.spec.key, *arguments))), tuple(bound))

    @property
    def names(self) -> list[str]:
        """``c0``, ``c1``, ... for all input columns."""
        return [f"c{number}" for number in range(len(self.inputs))]

    @property
    def keys(self) -> list[str]:
        """Those of the key columns."""
        return self.names[: len(self.job.spec.key)]

    @property
    def key(self) -> Column:
        """The key text."""
        types = [self.job.key_types[name] for name in self.job.spec.key]
        return key_text([F.col(name) for name in self.keys], types)

    @property
    def native(self) -> list[BoundAggregate]:
        """The aggregates whose states are Spark SQL columns."""
        return native_of(list(self.bound))

    @property
    def python(self) -> list[BoundAggregate]:
        """The aggregates whose states live in a ``GroupsAccumulator``."""
        return python_of(list(self.bound))

    def argument(self, one: BoundAggregate) -> Column:
        """The argument column of an aggregate as its definition takes it; a constant without one."""
        if one.column is None:
            return F.lit(1)
        column = F.col(self.names[self.inputs.index(one.column)])
        if one in self.native:
            return native_argument(one.definition, column, one.spark_type)  # type: ignore[arg-type]
        return column

    def states(self, one: BoundAggregate) -> list[str]:
        """The state columns of an aggregate: ``s3_0``, ``s3_1`` for the fourth one."""
        number = self.bound.index(one)
        if one not in self.native:
            return [f"s{number}_0"]
        width = len(one.definition.update(F.lit(None), one.options))  # type: ignore[union-attr]
        return [f"s{number}_{part}" for part in range(width)]
