"""Sessions: runs of events of a key with no gap between them, in the order in which the events arrived.

An event begins a new session where it lies more than ``gap`` after the event that arrived before it, or before that
one: a clock that goes backwards tells of another source, not of the same visit. So the order of arrival matters, and
a session's events never descend.

Whether an event begins a session depends on the one before it alone. So the states of two consecutive stretches of rows
can be concatenated: the last session of the earlier stretch and the first one of the later stretch become one if the
first event of the later one does not begin a session.
"""

from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, Field, field_validator

from skewless.aggregates.accumulator import (
    INTEGRAL_TYPES,
    GroupsAccumulator,
    arrow_type_of,
    decimal_digits,
    flattened,
    lists_of,
    number_required,
)
from skewless.aggregates.python_aggregate import PythonAggregate

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
#: Places of events: float64, or int64 for integers, for timestamps, in microseconds, and for decimals, in their last
#: digit.
Places = npt.NDArray[Any]

_MICROSECOND_DIGITS = 6
#: So many digits of a decimal are sure to be an int64.
_MOST_DIGITS = 18


class SessionsOptions(BaseModel, strict=True, extra="forbid", frozen=True):
    """Options of ``sessions``."""

    gap: float = Field(gt=0, allow_inf_nan=False)
    """The longest way from one event of a session to the next; in seconds for a timestamp column, in the column's own
    unit for a number."""

    @field_validator("gap", mode="before")
    @classmethod
    def _as_given(cls, gap: Any) -> Any:
        if isinstance(gap, int) and int(float(gap)) != gap:
            raise ValueError(f"should be a number that a double holds, and {gap} is none")
        return gap


class SessionRows(NamedTuple):
    """Sessions, each column of shape ``(sessions,)``."""

    groups: Ints
    starts: Places
    ends: Places
    rows: Ints

    def at(self, which: Flags | Ints) -> "SessionRows":
        """Some of them."""
        return SessionRows(*(column[which] for column in self))


class Sessions(GroupsAccumulator):
    """The sessions of all keys of a task: those that are over in chunks, and of each key the last one, still open."""

    def __init__(self, options: SessionsOptions) -> None:
        self._gap = options.gap
        self._over: list[SessionRows] = []
        self._open_starts: Places = np.zeros(0, np.int64)
        self._open_ends: Places = np.zeros(0, np.int64)
        self._open_rows = np.zeros(0, np.int64)  # 0 where a key has no session yet

    def update(self, values: pa.Array, groups: Ints, groups_total: int) -> None:
        """See ``GroupsAccumulator.update``; an event at null or NaN has no place in time, and does not count."""
        self._reach(groups_total)
        there = pc.is_valid(values).to_numpy(zero_copy_only=False)
        at, groups = self._places(values.drop_null()), groups[there]
        if at.dtype == np.float64:
            counted = ~np.isnan(at)
            at, groups = at[counted], groups[counted]
        self._put_in(SessionRows(groups, at, at, np.ones(len(at), np.int64)))

    def merge(self, states: pa.Array, groups: Ints, groups_total: int) -> None:
        """See ``GroupsAccumulator.merge``: the sessions of the rows that come next."""
        self._reach(groups_total)
        of_session, sessions = flattened(states, groups)
        starts, ends, rows = sessions.flatten()
        self._put_in(SessionRows(of_session, self._places(starts), self._places(ends), rows.to_numpy()))

    def state(self) -> pa.Array:
        """The sessions of each group, in order of arrival; the last one may go on."""
        kind = self.types.state
        filled = np.flatnonzero(self._open_rows)
        still_open = SessionRows(filled, self._open_starts[filled], self._open_ends[filled], self._open_rows[filled])
        together = SessionRows(*(np.concatenate(columns) for columns in zip(*self._over, still_open, strict=True)))
        together = together.at(np.argsort(together.groups, kind="stable"))
        place = kind.value_type.field("start").type
        places = [_as_values(column, place) for column in (together.starts, together.ends)]
        columns = [*places, pa.array(together.rows)]
        sessions = pa.StructArray.from_arrays(columns, fields=list(kind.value_type))
        return lists_of(together.groups, sessions, len(self._open_rows)).cast(kind)

    def _places(self, values: pa.Array) -> Places:
        if pa.types.is_decimal(values.type):
            return _unscaled(values)
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.int64())
        return values.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    def _reach(self, groups_total: int) -> None:
        more = groups_total - len(self._open_rows)
        if not len(self._open_rows):
            floating = pa.types.is_floating(self.types.argument)
            self._open_starts = self._open_ends = np.zeros(0, np.float64 if floating else np.int64)
        self._open_starts = np.append(self._open_starts, np.zeros(more, self._open_starts.dtype))
        self._open_ends = np.append(self._open_ends, np.zeros(more, self._open_ends.dtype))
        self._open_rows = np.append(self._open_rows, np.zeros(more, np.int64))

    def _put_in(self, came: SessionRows) -> None:
        if not len(came.groups):
            return
        came = came.at(np.argsort(came.groups, kind="stable"))
        groups = came.groups
        first = np.append(True, groups[1:] != groups[:-1])
        before = np.append(came.ends[:1], came.ends[:-1])
        before[first] = self._open_ends[groups[first]]
        begins = self._apart(before, came.starts)
        begins[first] |= self._open_rows[groups[first]] == 0
        starts_at = np.flatnonzero(begins | first)
        ends_at = np.append(starts_at[1:], len(groups)) - 1
        rows = np.add.reduceat(came.rows, starts_at)
        found = SessionRows(groups[starts_at], came.starts[starts_at], came.ends[ends_at], rows)
        goes_on = np.flatnonzero(~begins[starts_at])
        of_open = found.groups[goes_on]
        found.starts[goes_on] = self._open_starts[of_open]
        found.rows[goes_on] += self._open_rows[of_open]
        touched = groups[first & begins]
        ended = touched[self._open_rows[touched] > 0]
        if len(ended):
            self._over.append(
                SessionRows(ended, self._open_starts[ended], self._open_ends[ended], self._open_rows[ended])
            )
        self._keep(found)

    def _keep(self, sessions: SessionRows) -> None:
        last = np.append(sessions.groups[1:] != sessions.groups[:-1], True)
        if not last.all():
            self._over.append(sessions.at(~last))
        still_open = sessions.at(last)
        self._open_starts[still_open.groups] = still_open.starts
        self._open_ends[still_open.groups] = still_open.ends
        self._open_rows[still_open.groups] = still_open.rows

    def _apart(self, before: Places, at: Places) -> Flags:
        if at.dtype == np.float64:
            with np.errstate(invalid="ignore", over="ignore"):  # from infinity to infinity is no way
                far: Flags = at - before > self._gap
        else:
            kind = self.types.argument
            digits = _MICROSECOND_DIGITS if pa.types.is_timestamp(kind) else getattr(kind, "scale", 0)
            # The longest way in whole steps, by the digits of the gap as it was written.
            longest = min(int(Decimal(repr(self._gap)).scaleb(digits)), np.iinfo(np.uint64).max)
            # As unsigned numbers, which hold the way from the least to the greatest.
            far = (at.astype(np.uint64) - before.astype(np.uint64)) > np.uint64(longest)
        return far | (at < before)


def _unscaled(values: pa.Array) -> Places:
    """Decimals of at most ``_MOST_DIGITS`` digits as whole numbers: the low half of their 128 bits."""
    halves = np.frombuffer(values.buffers()[1], "<i8") if len(values) else np.zeros(0, np.int64)
    return halves[2 * values.offset : 2 * (values.offset + len(values)) : 2].copy()


def _as_values(places: Places, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_decimal(kind):
        return pa.array(places).cast(kind)
    halves = np.stack([places, places >> 63], axis=1)  # the high half is all sign
    return pa.Array.from_buffers(kind, len(places), [None, pa.py_buffer(np.ascontiguousarray(halves))])


def _moment_required(spark_type: str) -> str:
    digits = decimal_digits(spark_type)
    moment = spark_type in {"timestamp", "timestamp_ntz"} or not number_required(spark_type)
    good = moment if digits is None else digits[0] <= _MOST_DIGITS
    return "" if good else f"a number, of at most {_MOST_DIGITS} digits if it is a decimal, or a timestamp"


def _place(_options: Any, spark_type: str) -> pa.DataType:
    if spark_type in INTEGRAL_TYPES:
        return pa.int64()
    return arrow_type_of(spark_type) if spark_type.startswith(("timestamp", "decimal")) else pa.float64()


def _sessions_type(options: Any, spark_type: str) -> pa.DataType:
    place = _place(options, spark_type)
    return pa.list_(pa.struct([("start", place), ("end", place), ("rows", pa.int64())]))


SESSIONS = PythonAggregate(
    name="sessions",
    mergeable=False,
    ordered=True,
    concatenable=True,
    options=SessionsOptions,
    accepts=_moment_required,
    argument_type=_place,
    state_type=_sessions_type,
    result_type=_sessions_type,
    create=Sessions,
    state_bytes=128,
)
