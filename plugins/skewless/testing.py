"""The conformance test of an aggregate: does it keep the laws that stages, retries and merges rely on?

In a test of yours, call ``check_aggregate(MINE, values)``. It needs no Spark. It uses hashes of its seeds in the place
of random numbers, so a failure repeats.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel

from skewless.aggregates.accumulator import GroupsAccumulator, spark_type_of
from skewless.aggregates.python_aggregate import PythonAggregate
from skewless.errors import AggregateError

__all__ = ["Equal", "check_aggregate"]

Equal = Callable[[Any, Any], bool]
_Groups = npt.NDArray[np.int64]
_Batch = tuple[pa.Array, _Groups]
#: A law in words, the results that were observed, and those that it demands.
_Law = tuple[str, Sequence[Any], Sequence[Any]]
#: With fewer values most groups would have one or none, and the check would show nothing.
FEWEST_VALUES = 12
#: Groups that get rows. Two more get none: one among these, and the last.
_FILLED = (0, 2, 3)
_GROUPS = 5


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
    columnar = isinstance(values, pa.Array)
    array: Any = values if columnar else pa.array(list(values))
    fields = [field.type for field in array.type] if pa.types.is_struct(array.type) else [array.type]
    kinds = tuple(spark_types or map(spark_type_of, fields))
    argument = aggregate.types(validated, kinds).argument
    rows = array.cast(argument) if columnar else pa.array(list(values), argument)
    if len(rows) < FEWEST_VALUES:
        raise AggregateError("check_aggregate: values", f"at least {FEWEST_VALUES}", f"{len(rows)}", "give more")
    same = equal or (lambda left, right: _nearly(left, right, tolerance))
    for seed, nulls in itertools.product(seeds, (False, True)):
        groups = np.array(_FILLED)[_draws(len(rows), "group", seed) % len(_FILLED)]
        trial = _Trial(aggregate, validated, kinds, _with_nulls(rows, seed) if nulls else rows, groups, seed)
        law = "there is one state and one result per group"
        try:
            if not nulls:
                trial.require_results()
            for law, observed, expected in trial.laws():  # the last one is told of what is raised
                trial.require(same, law, observed, expected)
        except Exception as err:
            if not isinstance(err, AssertionError):
                err.add_note(f"check_aggregate, seed {seed}: at or after the law that {law}")
            raise


def _draws(count: int, name: str, seed: int) -> _Groups:
    return np.array([mmh3.hash(f"{name}/{place}", seed, signed=False) for place in range(count)], np.int64)


def _with_nulls(rows: pa.Array, seed: int) -> pa.Array:
    """Make one value in four null; in a struct each field by itself, since a row is never null."""
    if pa.types.is_struct(rows.type):
        columns = [_with_nulls(column, seed + n) for n, column in enumerate(rows.flatten(), start=100)]
        return pa.StructArray.from_arrays(columns, fields=list(rows.type))
    return rows.take(pa.array(np.arange(len(rows)), mask=_draws(len(rows), "null", seed) % 4 == 0))


def _nearly(left: Any, right: Any, tolerance: float) -> bool:
    """Whether two values are equal; floating-point numbers may differ by the tolerance, and NaN equals NaN."""
    if isinstance(left, float) and isinstance(right, float):
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or math.isclose(left, right, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_nearly(*pair, tolerance) for pair in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_nearly(left[name], right[name], tolerance) for name in left)
    return type(left) is type(right) and bool(left == right)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


@dataclass(frozen=True)
class _Trial:
    """One set of rows, each of a group. The seed is that of its cuts and orders."""

    aggregate: PythonAggregate
    options: BaseModel
    spark_types: tuple[str, ...]
    rows: pa.Array
    groups: _Groups
    seed: int

    def laws(self) -> Iterator[_Law]:
        """Each law that applies."""
        aggregate, results, everything = self.aggregate, self.results, (self.rows, self.groups)
        whole = results(self.fed([everything]))
        here, there = self.cut("here"), self.cut("there")
        alone = [(self.rows.slice(n, 1), self.groups[n : n + 1]) for n in range(len(self.rows))]
        if self.stored(self.fed(here)) != self.stored(self.fed(here)):
            raise self.broken("the same batches give the same state", "two states that differ in their bytes")
        asked = self.fed([])
        for batch in here:
            asked.update(*batch, _GROUPS)
            self.state(asked)
            results(asked)
        yield "asking in between changes nothing", results(asked), results(self.fed(here))
        for cut in (here, there, alone):
            law = f"batches may be cut anywhere (here into {[len(groups) for _, groups in cut]})"
            yield law, results(self.fed(cut)), whole
        (nothing,) = results(self.fed([], total=1), total=1)
        own = [nothing] * _GROUPS
        for group in _FILLED:
            rows = self.rows.filter(pa.array(self.groups == group))
            (own[group],) = results(self.fed([(rows, np.zeros(len(rows), np.int64))], total=1), total=1)
        results(self.fed([], total=0), total=0)  # a task may have no groups
        empty = [nothing if group not in _FILLED else result for group, result in enumerate(whole)]
        yield "a group that never had a row is empty", whole, empty
        yield "a key's result is its own, whatever other keys come between", whole, own
        yield from self._laws_of_storing(whole)
        if not aggregate.ordered:
            order = np.argsort(_draws(len(self.rows), "order", self.seed), kind="stable")
            shuffled = self.fed([(self.rows.take(pa.array(order)), self.groups[order])])
            yield "rows may come in any order, as it is not declared ordered", results(shuffled), whole
        if aggregate.mergeable or aggregate.concatenable:
            around = self.merged(self.stored_state(self.fed(batches)) for batches in ([], [everything], []))
            yield "the state of no rows merges as nothing", results(around), whole
        if aggregate.mergeable:
            yield from self._laws_of_merging(whole)
        if aggregate.concatenable:
            for cut in (here, there, alone):
                yield from self._laws_of_concatenating(cut, whole)

    def _laws_of_storing(self, whole: Sequence[Any]) -> Iterator[_Law]:
        everything, results = (self.rows, self.groups), self.results
        restored = self.restored(self.fed([everything]))
        yield "a state that was stored gives the same result", results(restored), whole
        yield "a state that was stored twice gives the same result", results(self.restored(restored)), whole
        restored.merge(pa.nulls(_GROUPS, self.state(restored).type), np.arange(_GROUPS), _GROUPS)
        yield "a null state merges as nothing", results(restored), whole
        for place in (int(place) for place in _draws(2, "place", self.seed) % (len(self.rows) + 1)):
            moved = self.restored(self.fed([(self.rows.slice(0, place), self.groups[:place])]))
            moved.update(self.rows.slice(place), self.groups[place:], _GROUPS)
            yield f"rows go on from a restored state (here of {place} rows)", results(moved), whole
        if not self.aggregate.open_to_evaluate:
            unopened = self.aggregate.accumulator(self.options, self.spark_types)
            unopened.merge(self.stored_state(self.fed([everything])), np.arange(_GROUPS), _GROUPS)
            yield "a result needs no open key, as it is declared so", results(unopened), whole

    def _laws_of_merging(self, whole: Sequence[Any]) -> Iterator[_Law]:
        merged, results = self.merged, self.results
        dealt = _draws(len(self.rows), "part", self.seed) % 3
        if self.aggregate.ordered:
            dealt = np.arange(len(self.rows)) * 3 // len(self.rows)
        parts = [[(self.rows.filter(pa.array(dealt == part)), self.groups[dealt == part])] for part in range(3)]
        one, two, three = (self.stored_state(self.fed(part)) for part in parts)
        yield "merging is commutative", results(merged([two, one])), results(merged([one, two]))
        left = merged([self.stored_state(merged([one, two])), three])
        right = merged([one, self.stored_state(merged([two, three]))])
        yield "merging is associative", results(left), results(right)
        spread = results(merged([one, two, three]))
        yield "rows may be spread over accumulators and their states merged", spread, whole
        at_once = results(self.merged_at_once([one, two, three]))
        yield "states may come in one batch, several of a group", at_once, spread

    def _laws_of_concatenating(self, cut: list[_Batch], whole: Sequence[Any]) -> Iterator[_Law]:
        law = "states of consecutive rows may be merged in their order, as it is declared concatenable"
        law = f"{law} (here of {len(cut)} stretches)"
        stretches = [self.stored_state(self.fed([batch])) for batch in cut]
        yield law, self.results(self.merged(stretches)), whole
        pairs = [self.stored_state(self.merged(stretches[at : at + 2])) for at in range(0, len(cut), 2)]
        yield f"{law}, in any grouping", self.results(self.merged(pairs)), whole
        yield f"{law}, several of a group in one batch", self.results(self.merged_at_once(stretches)), whole

    def require_results(self) -> None:
        """Refuse values of which no law would show anything."""
        (nothing,) = self.results(self.fed([], total=1), total=1)
        whole = self.results(self.fed([(self.rows, self.groups)]))
        if all(_nearly(whole[group], nothing, 0.0) for group in _FILLED):
            observed = f"{nothing!r} for all keys, as for one without rows"
            raise AggregateError("check_aggregate: values", "values that change the result", observed, "give others")

    def require(self, same: Equal, law: str, observed: Sequence[Any], expected: Sequence[Any]) -> None:
        """Refuse results that are not what a law demands."""
        for group, (left, right) in enumerate(zip(observed, expected, strict=True)):
            if not same(left, right):
                raise self.broken(law, f"{_short(left)} in group {group}, and not {_short(right)}")

    def broken(self, law: str, how: str) -> AssertionError:
        """The error of a broken law."""
        return AssertionError(f"aggregate {self.aggregate.name!r} breaks the law that {law}: {how} (seed {self.seed})")

    def cut(self, name: str) -> list[_Batch]:
        """The rows in batches, slices of one array; empty ones first, last, and where two cuts meet."""
        places = sorted(int(place) for place in _draws(4, f"cut {name}", self.seed) % (len(self.rows) + 1))
        bounds = sorted([0, 0, *places, places[1], len(self.rows), len(self.rows)])
        return [(self.rows.slice(at, end - at), self.groups[at:end]) for at, end in itertools.pairwise(bounds)]

    def fed(self, batches: Iterable[_Batch], total: int = _GROUPS) -> GroupsAccumulator:
        """Rows as a task gets them: groups are opened when their first rows come."""
        made, known = self.aggregate.accumulator(self.options, self.spark_types), 0
        for values, groups in (*batches, (self.rows.slice(0, 0), np.arange(total))):
            reached = max(known, int(groups.max(initial=-1)) + 1)
            _open_groups(made, known, reached)
            known = reached
            if known:
                made.update(values, groups[: len(values)], known)
        return made

    def merged(self, states: Iterable[pa.Array]) -> GroupsAccumulator:
        """States of all groups, one after the other."""
        made = self.fed([])
        for state in states:
            made.merge(state, np.arange(_GROUPS), _GROUPS)
        return made

    def merged_at_once(self, states: Sequence[pa.Array]) -> GroupsAccumulator:
        """The same in one batch."""
        made = self.fed([])
        made.merge(pa.concat_arrays(states), np.tile(np.arange(_GROUPS), len(states)), _GROUPS)
        return made

    def restored(self, stored: GroupsAccumulator) -> GroupsAccumulator:
        """Its states in another accumulator, groups from last to first."""
        made = self.aggregate.accumulator(self.options, self.spark_types)
        _open_groups(made, 0, _GROUPS)
        backwards = np.arange(_GROUPS)[::-1].copy()
        made.merge(self.stored_state(stored).take(pa.array(backwards)), backwards, _GROUPS)
        return made

    def state(self, of: GroupsAccumulator) -> pa.Array:
        """The states, of the declared type."""
        types = self.aggregate.types(self.options, self.spark_types)
        return self._declared("state", of.state(), types.state, _GROUPS)

    def results(self, of: GroupsAccumulator, total: int = _GROUPS) -> list[Any]:
        """The results, of the declared type."""
        types = self.aggregate.types(self.options, self.spark_types)
        return list(self._declared("result", of.evaluate(), types.result, total).to_pylist())

    def _declared(self, what: str, array: pa.Array, declared: pa.DataType, total: int) -> pa.Array:
        if not isinstance(array, pa.Array) or array.type != declared or len(array) != total:
            kind = f"{len(array)} of type {array.type}" if isinstance(array, pa.Array) else f"a {type(array).__name__}"
            law = f"there is one {what} of the declared type per group"
            raise self.broken(law, f"{total} of {declared}, but {kind}")
        array.validate(full=True)
        return array

    def stored(self, of: GroupsAccumulator) -> bytes:
        """The states as a file has them."""
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([self.state(of)], names=["state"])
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        of.close_keys()
        return bytes(sink.getvalue())

    def stored_state(self, of: GroupsAccumulator) -> pa.Array:
        """The states as they are read again."""
        return pa.ipc.open_stream(self.stored(of)).read_all().column("state").combine_chunks()


def _open_groups(accumulator: GroupsAccumulator, first: int, end: int) -> None:
    if end > first:
        keys = [None if group == _FILLED[1] else f"key {group}" for group in range(first, end)]
        accumulator.open_keys(pa.array(keys, pa.string()), first)
