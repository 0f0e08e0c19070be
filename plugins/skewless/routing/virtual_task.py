"""Virtual tasks, after Samza's SEP-32: a reducer's key buckets, named like ``3-1-4``."""

from __future__ import annotations

from typing import NamedTuple, Self

from skewless.errors import PlanError


class VirtualTask(NamedTuple):
    """``(reducer, bucket, factor)``: bucket ``bucket`` of the ``factor`` buckets of a reducer.

    It becomes exactly one Spark partition. ``factor`` is a power of two.
    """

    reducer: int
    bucket: int
    factor: int

    def __str__(self) -> str:
        return f"{self.reducer}-{self.bucket}-{self.factor}"

    @classmethod
    def parse(cls, name: str) -> Self:
        """Read ``3-1-4`` back.

        Raises:
            PlanError: the name is none of a virtual task.
        """
        try:
            reducer, bucket, factor = (int(part) for part in name.split("-"))
        except ValueError:
            raise PlanError("virtual task", "a name like 3-1-4", repr(name[:80])) from None
        task = cls(reducer, bucket, factor)
        if not task.well_formed or str(task) != name:
            raise PlanError("virtual task", "reducer-bucket-factor with bucket < factor = 2**n", repr(name[:80]))
        return task

    @property
    def well_formed(self) -> bool:
        """Whether reducer and bucket are in range and the factor is a power of two: a tuple checks nothing itself."""
        power = self.factor >= 1 and not self.factor & (self.factor - 1)
        return power and self.reducer >= 0 and 0 <= self.bucket < self.factor


def tasks_of(reducer: int, factor: int) -> tuple[VirtualTask, ...]:
    """All tasks of a reducer at one factor, by ascending bucket.

    SEP-32, "Splitting and Merging of v.tasks": at twice the factor f, the keys of bucket b are in buckets b and b + f.
    """
    return tuple(VirtualTask(reducer, bucket, factor) for bucket in range(factor))
