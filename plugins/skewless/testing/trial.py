"""One set of rows, and all laws of an aggregate."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from skewless.aggregates.accumulator import ArrowTypes, GroupsAccumulator
from skewless.aggregates.python_aggregate import PythonAggregate
from skewless.aggregates.spark_types import spark_type_of
from skewless.errors import AggregateError

Groups = npt.NDArray[np.int64]
#: Groups that get rows. Two more get none: one among these, and the last.
FILLED = (0, 2, 3)
GROUPS = 5


def typed(
    aggregate: PythonAggregate, options: BaseModel, values: Sequence[Any] | pa.Array, spark_types: Sequence[str]
) -> tuple[pa.Array, tuple[str, ...]]:
    """The values as the aggregate accepts them, and their Spark SQL types."""
    given = values if isinstance(values, pa.Array) else None
    kinds = tuple(spark_types or _guessed(pa.array(list(values)) if given is None else given))
    argument = aggregate.types(options, kinds).argument
    return (pa.array(list(values), argument) if given is None else given.cast(argument)), kinds


def _guessed(values: pa.Array) -> list[str]:
    kinds = [field.type for field in values.type] if pa.types.is_struct(values.type) else [values.type]
    return [spark_type_of(kind) for kind in kinds]


def with_nulls(rows: pa.Array, seed: int) -> pa.Array:
    """Make one value in four null; in a struct each field by itself, since a row is never null."""
    if not pa.types.is_struct(rows.type):
        return _holed(rows, f"null {seed}")
    columns = [_holed(column, f"null {seed} {n}") for n, column in enumerate(rows.flatten())]
    return pa.StructArray.from_arrays(columns, fields=list(rows.type))


def _holed(values: pa.Array, name: str) -> pa.Array:
    places = np.arange(len(values))
    return values.take(pa.array(places, mask=draws(len(values), name, 0) % 4 == 0))


def far_apart(rows: pa.Array, seed: int) -> pa.Array:
    """Floating-point numbers times 1, 1e9 or 1e18, in a struct each field by itself; others stay as they are."""
    if pa.types.is_struct(rows.type):
        columns = [far_apart(column, seed + n) for n, column in enumerate(rows.flatten())]
        return pa.StructArray.from_arrays(columns, fields=list(rows.type))
    if not pa.types.is_floating(rows.type):
        return rows
    factors = pa.array(10.0 ** (9 * (draws(len(rows), "far", seed) % 3)))
    return pc.multiply(rows.cast(pa.float64()), factors).cast(rows.type)


def open_groups(accumulator: GroupsAccumulator, first: int, end: int) -> None:
    """Open groups, each under its own key; the key of the third one is null."""
    if end > first:
        keys = [None if group == FILLED[1] else f"key {group}" for group in range(first, end)]
        accumulator.open_keys(pa.array(keys, pa.string()), first)


def draws(count: int, name: str, seed: int) -> Groups:
    """Hashes in the place of random numbers: the same ones each time."""
    return np.array([mmh3.hash(f"{name}/{place}", seed, signed=False) for place in range(count)], np.int64)


def nearly(left: Any, right: Any, tolerance: float) -> bool:
    """Whether two values are equal; floating-point numbers may differ by the tolerance, and NaN equals NaN."""
    if isinstance(left, float) and isinstance(right, float):
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or math.isclose(left, right, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(nearly(*pair, tolerance) for pair in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(nearly(left[name], right[name], tolerance) for name in left)
    return type(left) is type(right) and bool(left == right)


Batch = tuple[pa.Array, Groups]
Equal = Callable[[Any, Any], bool]


@dataclass(frozen=True)
class Trial:
    """One set of rows, each of a group, and all laws. The seed is that of its cuts and orders."""

    aggregate: PythonAggregate
    options: BaseModel
    spark_types: tuple[str, ...]
    same: Equal
    rows: pa.Array
    groups: Groups
    seed: int

    @property
    def types(self) -> ArrowTypes:
        """As declared, for these options and columns."""
        return self.aggregate.types(self.options, self.spark_types)

    def run(self, *, expect_more_than_nothing: bool) -> None:
        """Check every law that applies."""
        laws = [
            self._same_batches_give_the_same_state,
            self._asking_changes_nothing,
            self._batches_may_be_cut_anywhere,
            self._keys_may_come_mixed_or_alone,
            self._a_state_survives_storage,
            self._a_group_without_rows_is_empty,
            self._rows_go_on_from_a_restored_state,
        ]
        if not self.aggregate.ordered:
            laws.append(self._rows_may_come_in_any_order)
        if not self.aggregate.open_to_evaluate:
            laws.append(self._a_result_needs_no_open_key)
        laws += self._laws_of_merging()
        if expect_more_than_nothing:
            nothing = self._results(self._fed([], total=1), 1)[0]
            whole = self._results(self._whole, GROUPS)
            if all(nearly(whole[group], nothing, 0.0) for group in FILLED):
                came = f"{nothing!r} for all keys, as for one without rows"
                raise AggregateError("check_aggregate: values", "values that change the result", came, "give others")
        for law in laws:
            try:
                law()
            except Exception as err:
                if not isinstance(err, AssertionError):
                    words = law.__name__.strip("_").replace("_", " ")
                    err.add_note(f"check_aggregate, seed {self.seed}: while checking that {words}")
                raise

    def _laws_of_merging(self) -> list[Callable[[], None]]:
        laws = []
        if self.aggregate.mergeable:
            laws += [
                self._merging_is_commutative,
                self._merging_is_associative,
                self._rows_may_be_spread,
                self._an_empty_state_merges_as_nothing,
            ]
        if self.aggregate.concatenable:
            laws += [self._stretches_may_be_concatenated, self._an_empty_state_merges_as_nothing]
        if self.aggregate.invertible:
            laws += [self.rows_may_be_taken_out_again, self._taking_nothing_out_changes_nothing]
        return laws

    def rows_may_be_taken_out_again(self) -> None:
        """The law of an invertible aggregate, bit for bit."""
        law = "rows may be taken out again, as it is declared invertible"
        parts = self._parts
        left = self._merged(parts)
        for n, part in enumerate(parts, start=1):
            self._subtract(left, [part])
            self._same_bits(f"{law} (here {n} of 3 parts)", left, self._merged(parts[n:]))
        first, second, third = parts
        at_once = self._merged(parts)
        self._subtract(at_once, [second, first])
        self._same_bits(f"{law} (here two states of a group at once)", at_once, self._merged([third]))
        at_once.merge(self._stored_state(first), np.arange(GROUPS), GROUPS)
        self._same_bits("rows go on after others were taken out", at_once, self._merged([third, first]))

    # --- the laws -----------------------------------------------------------------------------------------

    def _same_batches_give_the_same_state(self) -> None:
        first, again = (self._stored(self._fed(self._cut("once more"))) for _ in range(2))
        if first != again:
            self._broken("the same batches give the same state", "two states that differ in their bytes")

    def _asking_changes_nothing(self) -> None:
        asked = self._accumulator(GROUPS)
        for values, groups in self._cut("asked"):
            asked.update(values, groups, GROUPS)
            self._state(asked, GROUPS)
            self._results(asked, GROUPS)
        quiet = self._accumulator(GROUPS)
        for values, groups in self._cut("asked"):
            quiet.update(values, groups, GROUPS)
        self._compare("asking in between changes nothing", asked, quiet)

    def _batches_may_be_cut_anywhere(self) -> None:
        for name in ("here", "there"):
            cut = self._cut(name)
            sizes = [len(groups) for _, groups in cut]
            self._compare(f"batches may be cut anywhere (here into {sizes})", self._fed(cut), self._whole)
        self._compare("batches may be cut anywhere (here into single rows)", self._fed(self._alone), self._whole)

    def _keys_may_come_mixed_or_alone(self) -> None:
        mixed = self._results(self._whole, GROUPS)
        for group in FILLED:
            own = self.rows.filter(pa.array(self.groups == group))
            alone = self._fed([(own, np.zeros(len(own), np.int64))], total=1)
            (result,) = self._results(alone, 1)
            self._compare_one(
                "a key's result is its own, whatever other keys come between", group, mixed[group], result
            )

    def _a_group_without_rows_is_empty(self) -> None:
        """Of no groups at all, too: a task may have no rows."""
        self._state(self._accumulator(0), 0)
        self._results(self._accumulator(0), 0)
        nothing = self._results(self._fed([], total=1), 1)[0]
        results = self._results(self._whole, GROUPS)
        for group in sorted(set(range(GROUPS)) - set(FILLED)):
            self._compare_one("a group that never had a row is empty", group, results[group], nothing)
        merged = self._restored(self._whole)
        merged.merge(pa.nulls(GROUPS, self.types.state), np.arange(GROUPS), GROUPS)
        self._compare("a null state merges as nothing", merged, self._whole)

    def _a_state_survives_storage(self) -> None:
        restored = self._restored(self._whole)
        self._compare("a state that was stored gives the same result", restored, self._whole)
        self._compare("a state that was stored twice gives the same result", self._restored(restored), self._whole)

    def _a_result_needs_no_open_key(self) -> None:
        unopened = self.aggregate.accumulator(self.options, self.spark_types)
        unopened.merge(self._stored_state(self._whole), np.arange(GROUPS), GROUPS)
        self._compare("a result needs no open key, as it is declared so", unopened, self._whole)

    def _rows_go_on_from_a_restored_state(self) -> None:
        for name in ("early", "late"):
            place = int(draws(1, name, self.seed)[0] % (len(self.rows) + 1))
            moved = self._restored(self._fed([(self.rows.slice(0, place), self.groups[:place])]))
            moved.update(self.rows.slice(place), self.groups[place:], GROUPS)
            self._compare(f"rows go on from a restored state (here of {place} rows)", moved, self._whole)

    def _rows_may_come_in_any_order(self) -> None:
        order = np.argsort(draws(len(self.rows), "order", self.seed), kind="stable")
        shuffled = self._fed([(self.rows.take(pa.array(order)), self.groups[order])])
        self._compare("rows may come in any order, as it is not declared ordered", shuffled, self._whole)

    def _rows_may_be_spread(self) -> None:
        merged = self._merged(self._parts)
        self._compare("rows may be spread over accumulators and their states merged", merged, self._whole)
        together = self._accumulator(GROUPS)
        states = pa.concat_arrays([self._stored_state(part) for part in self._parts])
        together.merge(states, np.tile(np.arange(GROUPS), len(self._parts)), GROUPS)
        self._compare("states may come in one batch, several of a group", together, merged)

    def _stretches_may_be_concatenated(self) -> None:
        law = "states of consecutive rows may be merged in their order, as it is declared concatenable"
        for cut in (self._cut("here"), self._cut("there"), self._alone):
            stretches = [self._stored_state(self._fed([batch])) for batch in cut]
            told = f"{law} (here of {len(cut)} stretches)"
            self._compare(told, self._concatenated(stretches), self._whole)
            pairs = [self._stored_state(self._concatenated(stretches[at : at + 2])) for at in range(0, len(cut), 2)]
            self._compare(f"{told}, in any grouping", self._concatenated(pairs), self._whole)
            together = self._accumulator(GROUPS)
            together.merge(pa.concat_arrays(stretches), np.tile(np.arange(GROUPS), len(stretches)), GROUPS)
            self._compare(f"{told}, several of a group in one batch", together, self._whole)

    def _merging_is_commutative(self) -> None:
        first, second, _ = self._parts
        self._compare("merging is commutative", self._merged([second, first]), self._merged([first, second]))

    def _merging_is_associative(self) -> None:
        first, second, third = self._parts
        left = self._merged([self._merged([first, second]), third])
        right = self._merged([first, self._merged([second, third])])
        self._compare("merging is associative", left, right)

    def _an_empty_state_merges_as_nothing(self) -> None:
        merged = self._merged([self._fed([]), self._whole, self._fed([])])
        self._compare("the state of no rows merges as nothing", merged, self._whole)

    def _taking_nothing_out_changes_nothing(self) -> None:
        left = self._merged(self._parts)
        left.subtract(pa.nulls(GROUPS, self.types.state), np.arange(GROUPS), GROUPS)
        self._subtract(left, [self._fed([])])
        self._same_bits("a null state and the state of no rows take nothing out", left, self._merged(self._parts))

    # --- feeding ------------------------------------------------------------------------------------------

    @property
    def _whole(self) -> GroupsAccumulator:
        return self._fed([(self.rows, self.groups)])

    @property
    def _parts(self) -> list[GroupsAccumulator]:
        """Rows dealt to three accumulators: anyhow, or where order matters by stretches."""
        if self.aggregate.ordered:
            dealt = np.arange(len(self.rows)) * 3 // max(1, len(self.rows))
        else:
            dealt = draws(len(self.rows), "part", self.seed) % 3
        return [
            self._fed([(self.rows.filter(pa.array(dealt == part)), self.groups[dealt == part])]) for part in range(3)
        ]

    def _cut(self, name: str) -> list[Batch]:
        """The rows in batches, slices of one array; empty ones first, last, and where two cuts meet."""
        places = sorted(int(place) for place in draws(4, f"cut {name}", self.seed) % (len(self.rows) + 1))
        bounds = [0, 0, *places, places[1], len(self.rows), len(self.rows)]
        return [
            (self.rows.slice(first, last - first), self.groups[first:last])
            for first, last in itertools.pairwise(sorted(bounds))
        ]

    @property
    def _alone(self) -> list[Batch]:
        return [(self.rows.slice(n, 1), self.groups[n : n + 1]) for n in range(len(self.rows))]

    def _accumulator(self, total: int) -> GroupsAccumulator:
        made = self.aggregate.accumulator(self.options, self.spark_types)
        open_groups(made, 0, total)
        if total:
            made.update(self.rows.slice(0, 0), np.zeros(0, np.int64), total)
        return made

    def _fed(self, batches: Iterable[Batch], total: int = GROUPS) -> GroupsAccumulator:
        """Rows as a task gets them: groups are opened when their first rows come."""
        made, known = self.aggregate.accumulator(self.options, self.spark_types), 0
        for values, groups in batches:
            reached = max(known, int(groups.max(initial=-1)) + 1)
            open_groups(made, known, reached)
            known = reached
            made.update(values, groups, known)
        open_groups(made, known, total)
        made.update(self.rows.slice(0, 0), np.zeros(0, np.int64), total)
        return made

    def _merged(self, parts: Iterable[GroupsAccumulator]) -> GroupsAccumulator:
        return self._concatenated(self._stored_state(part) for part in parts)

    def _concatenated(self, states: Iterable[pa.Array]) -> GroupsAccumulator:
        made = self._accumulator(GROUPS)
        for state in states:
            made.merge(state, np.arange(GROUPS), GROUPS)
        return made

    def _subtract(self, from_: GroupsAccumulator, parts: Sequence[GroupsAccumulator]) -> None:
        states = pa.concat_arrays([self._stored_state(part) for part in parts])
        from_.subtract(states, np.tile(np.arange(GROUPS), len(parts)), GROUPS)

    def _restored(self, one: GroupsAccumulator) -> GroupsAccumulator:
        """Its states in another accumulator, groups from last to first."""
        made = self.aggregate.accumulator(self.options, self.spark_types)
        open_groups(made, 0, GROUPS)
        backwards = np.arange(GROUPS)[::-1].copy()
        made.merge(self._stored_state(one).take(pa.array(backwards)), backwards, GROUPS)
        return made

    # --- asking -------------------------------------------------------------------------------------------

    def _state(self, one: GroupsAccumulator, total: int) -> pa.Array:
        return self._declared("state", one.state(), self.types.state, total)

    def _results(self, one: GroupsAccumulator, total: int) -> list[Any]:
        results: list[Any] = self._declared("result", one.evaluate(), self.types.result, total).to_pylist()
        return results

    def _declared(self, what: str, array: pa.Array, declared: pa.DataType, total: int) -> pa.Array:
        if not isinstance(array, pa.Array) or array.type != declared or len(array) != total:
            kind = f"{len(array)} of type {array.type}" if isinstance(array, pa.Array) else f"a {type(array).__name__}"
            self._broken(f"there is one {what} of the declared type per group", f"{total} of {declared}, but {kind}")
        array.validate(full=True)
        return array

    def _stored(self, one: GroupsAccumulator) -> bytes:
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([self._state(one, GROUPS)], names=["state"])
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        stored: bytes = sink.getvalue().to_pybytes()
        one.close_keys()
        return stored

    def _stored_state(self, one: GroupsAccumulator) -> pa.Array:
        return pa.ipc.open_stream(self._stored(one)).read_all().column("state").combine_chunks()

    def _compare(self, law: str, came: GroupsAccumulator, expected: GroupsAccumulator) -> None:
        pairs = zip(self._results(came, GROUPS), self._results(expected, GROUPS), strict=True)
        for group, (left, right) in enumerate(pairs):
            self._compare_one(law, group, left, right)

    def _same_bits(self, law: str, came: GroupsAccumulator, expected: GroupsAccumulator) -> None:
        """Equal states and results; no tolerance is allowed, and zero has a sign."""
        for what, of in (("state", self._state), ("result", self._results)):
            left_right = (of(one, GROUPS) for one in (came, expected))
            pairs = zip(*(one.to_pylist() if isinstance(one, pa.Array) else one for one in left_right), strict=True)
            for group, (left, right) in enumerate(pairs):
                if repr(left) != repr(right):
                    self._broken(law, f"the {what} {_short(left)} in group {group}, and not {_short(right)}")

    def _compare_one(self, law: str, group: int, came: Any, expected: Any) -> None:
        if not self.same(came, expected):
            self._broken(law, f"{_short(came)} in group {group}, and not {_short(expected)}")

    def _broken(self, law: str, how: str) -> None:
        raise AssertionError(f"aggregate {self.aggregate.name!r} breaks the law that {law}: {how} (seed {self.seed})")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
