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
            raise PlanError("virtual task", "a name like 3-1-4", repr(name)) from None
        task = cls(reducer, bucket, factor)
        if reducer < 0 or factor < 1 or factor & (factor - 1) or not 0 <= bucket < factor or str(task) != name:
            raise PlanError("virtual task", "reducer-bucket-factor with bucket < factor = 2**n", repr(name))
        return task
