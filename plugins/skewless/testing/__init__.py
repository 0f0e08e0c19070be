"""The conformance test of an aggregate: does it keep the laws that stages, retries and merges rely on?

In a test of yours, call ``check_aggregate(MINE, values)``. It needs no Spark. It uses hashes of its seeds in the place
of random numbers, so a failure repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from skewless.aggregates.python_aggregate import PythonAggregate
from skewless.errors import AggregateError
from skewless.testing.trial import FILLED, Equal, Trial, draws, far_apart, nearly, typed, with_nulls

__all__ = ["Equal", "check_aggregate"]

#: With fewer values most groups would have one or none, and the check would show nothing.
FEWEST_VALUES = 12


def check_aggregate(
    aggregate: PythonAggregate,
    values: Sequence[Any] | pa.Array,
    options: Mapping[str, Any] | None = None,
    *,
    spark_types: Sequence[str] = (),
    equal: Equal | None = None,
    tolerance: float = 0.0,
    seeds: Iterable[int] = range(4),
) -> None:
    """Check that an aggregate keeps its laws.

    - There is one state and one result per group, of the declared types; also for groups that never had a row.
    - The same batches give the same state, bit for bit, also if states and results are asked for in between.
    - Batches may be cut anywhere and may be empty. Keys may come mixed or alone. Values may be null.
    - A state that is stored (as Arrow IPC) and restored is the same, and later rows continue from it. A null state
      counts as nothing.
    - If not ``ordered``: the rows of a key may come in any order.
    - If ``mergeable``: rows may be spread over accumulators, and their states merged in any order and grouping.
    - If ``concatenable``: states of consecutive rows, cut anywhere, may be merged in the order of the rows, in any
      grouping.
    - If ``invertible``: a state that was merged can be taken out again, and leaves the bits of the others' merge. No
      ``tolerance`` and no ``equal`` is applied. Floating-point arguments are tried far apart from each other, too.

    Args:
        values: at least 12 arguments, as varied as real ones; dictionaries of ``column`` and the options' names where
            there are further arguments. The check mixes nulls in.
        options: of the aggregate, as a spec gives them.
        spark_types: Spark SQL types of the argument columns; by default those that fit the values.
        equal: whether two results of a key count as equal, for sketches, whose results may differ within bounds. It is
            called with Python values as ``to_pylist`` gives them.
        tolerance: relative difference up to which floating-point numbers count as equal; 1e-9, say, for sums.
        seeds: each is a trial with its own keys, cuts, nulls and orders.

    Raises:
        AssertionError: a law is broken; the message says which one and how.
        AggregateError: there are too few values, or all results are those of no rows, so the check would show nothing.
    """
    validated = aggregate.options.model_validate(dict(options or {}))
    rows, kinds = typed(aggregate, validated, values, spark_types)
    if len(rows) < FEWEST_VALUES:
        raise AggregateError("check_aggregate: values", f"at least {FEWEST_VALUES}", f"{len(rows)}", "give more")
    same = equal or (lambda left, right: nearly(left, right, tolerance))
    for seed in seeds:
        for nulls in (False, True):
            arguments = with_nulls(rows, seed) if nulls else rows
            groups = np.array(FILLED)[draws(len(rows), "group", seed) % len(FILLED)]
            trial = Trial(aggregate, validated, kinds, same, arguments, groups, seed)
            trial.run(expect_more_than_nothing=not nulls)
            if aggregate.invertible:
                # A sum of floating-point numbers that lie close together may happen to be exact.
                replace(trial, rows=far_apart(arguments, seed)).rows_may_be_taken_out_again()
