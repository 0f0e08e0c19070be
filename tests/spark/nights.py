"""A state machine of nights over a changing lake, on Spark: whatever was kept, the result is that of all rows.

It says beforehand, by a model of which files the kept states stand for, what a run has to read. The same sequences
without Spark, by the thousand, are in ``tests/unit/test_standing_states.py``.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from skewless.errors import InputError
from skewless.run.directory import RunDirectory
from skewless.spec.spec import JobSpec
from skewless.standing.store import StatesStore, version_path
from skewless_spark.entries.pipeline import finish_run, run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from tests.fuzz.aggregates import MERGEABLE, Call, by_extreme, covariance
from tests.fuzz.values import KINDS, Row
from tests.spark.scenario import Quiet, result_of, spec_of, window_of

FIRST = dt.date(2026, 11, 1)


#: The columns beside the key, and the kind of each.
COLUMNS = {name: KINDS[kind] for name, kind in (
    ("value", "bigint"), ("word", "text"), ("real", "double"), ("price", "decimal"), ("flag", "boolean"),
)}  # fmt: skip


def _calls() -> Iterator[Call]:
    """Each aggregate that can be merged, over one or two columns that it takes."""
    chance = random.Random(3)
    for number, (kinds, make) in enumerate(MERGEABLE.values()):
        fitting = [name for name, kind in COLUMNS.items() if kind.name in kinds]
        for name in dict.fromkeys(fitting[(number + further) % len(fitting)] for further in range(2)):
            yield make(name, COLUMNS[name], chance)
    for how in ("covar_samp", "covar_pop", "corr"):
        yield Call({"function": how, "column": "real", "other": "value"}, covariance("real", "value", how))
    for function, column, sign in (("max_by", "word", 1), ("min_by", "price", -1)):
        yield Call({"function": function, "column": column, "by": "value"}, by_extreme(column, "value", sign))


def _jobs(groups: int) -> list[dict[str, Call]]:
    """All calls in some jobs: a job of all of them takes Spark long to plan."""
    count = Call("count", lambda ours, rows: bool(ours == len(rows)))
    calls = list(_calls())
    return [{"n": count, **{f"a{at}": one for at, one in enumerate(calls[first::groups])}} for first in range(groups)]


JOBS = _jobs(7)
#: Names of files; the first two days begin with some in the middle, so that others may come before and between.
NAMES = "abcdefgh"
#: The content of each file of a day, by its name.
Lake = dict[int, dict[str, int]]
ENGINES = ("auto", "combine", "bypass", "staged")
#: Where a run may stop as if it was killed; what it does to its end comes more often.
ENDS = ("publish", "merge", "merge", "merge", "prepare", "stages", "versions", "result")


@lru_cache(maxsize=512)
def rows_of(content: int) -> tuple[Row, ...]:
    """The rows of a content."""
    drawn = np.random.default_rng(content)
    rows = int(drawn.integers(20, 150))
    words = [f"w{one}" for one in drawn.integers(0, 9, rows)]
    real = drawn.normal(scale=300.0, size=rows)
    value, cents = drawn.integers(0, 400, rows), drawn.integers(-5000, 5000, rows)
    missing = drawn.random((4, rows)) < 1 / 9
    return tuple(
        {
            "key": None if key == 5 else f"key {key}",
            "value": None if missing[0, at] else int(value[at]),
            "word": None if missing[1, at] else words[at],
            "real": None if missing[2, at] else float(real[at]),
            "price": None if missing[3, at] else Decimal(int(cents[at])).scaleb(-2),
            "flag": bool(value[at] % 7),
        }
        for at, key in enumerate(np.minimum(drawn.zipf(1.5, rows), 12))
    )


_SCHEMA = pa.schema([("key", pa.string()), *((name, kind.arrow) for name, kind in COLUMNS.items())])


@dataclass
class Pending:
    """A run that has pinned its input, and is not done.

    Attributes:
        run: its directory.
        spec: which job.
        last: its own day.
        turn: how many runs were prepared before it.
        pinned: the window as it was listed.
        read: the files that it has to read.
        new: the days whose states it makes or adds to.
        step: what it has done.
    """

    run: RunDirectory
    spec: int
    last: int
    turn: int
    pinned: Lake
    read: dict[tuple[int, str], int]
    new: set[int]
    step: str = "prepare"


@dataclass
class Nights:
    """Files come late, change and vanish; runs of any day begin, end, are stopped anywhere, and go on later.

    Args:
        spark: the session.
        folder: an empty one.
        seed: of all that is left to chance.
    """

    spark: SparkSession
    folder: Path
    seed: int
    lake: Lake = field(default_factory=lambda: defaultdict(dict))
    told: list[str] = field(default_factory=list)
    #: By job and day: who has committed a version, and of which files; the newest is the last.
    kept: dict[tuple[int, int], list[tuple[str, dict[str, int]]]] = field(default_factory=lambda: defaultdict(list))
    pending: list[Pending] = field(default_factory=list)
    #: By job and day: the turn whose result is published, and its rows by key.
    published: dict[tuple[int, int], tuple[int, dict[Any, Row]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """The first days, each with two files."""
        self.chance = random.Random(self.seed)
        self._turns = self._contents = 0
        self.jobs = [self.seed % len(JOBS), (self.seed + 1 + self.seed // len(JOBS)) % len(JOBS)]
        self.spec = self.jobs[0]
        for day in range(2):
            for name in "cf":
                self._write(day, name)

    def play(self, steps: int) -> None:
        """A sequence: each step changes the lake, and then something runs. At last all that was stopped goes on."""
        for _ in range(steps):
            self._change()
            if self.pending and self.chance.random() < 0.4:
                self._go_on(self.pending.pop(self.chance.randrange(len(self.pending))), "publish")
            else:
                self._night()
        while self.pending:
            self._go_on(self.pending.pop(0), "merge")

    def _change(self) -> None:
        change = self.chance.choice(
            ["append", "append", "append", "late", "late", "rewrite", "delete", "part", "spec", ""]
        )
        known = sorted((day, name) for day, files in self.lake.items() for name in files)
        if not known:  # all were removed
            change = "append"
        day, name = self.chance.choice(known or [(max(self.lake, default=-1), "")])
        self.told.append(f"{change} {day}/{name}" if change else "no change")
        if change == "append":
            newest = max(self.lake, default=-1) + 1
            for new in self.chance.sample(NAMES, self.chance.choice([1, 2])):
                self._write(newest, new)
        elif change == "late":
            self._write(day, self.chance.choice([one for one in NAMES if one not in self.lake[day]] or [name]))
        elif change == "rewrite":
            self._write(day, name)
        elif change == "delete":
            self._remove(day, name)
        elif change == "part":
            for one in list(self.lake[day]):
                self._remove(day, one)
        elif change == "spec":
            self.spec = self.jobs[self.spec == self.jobs[0]]

    def _night(self) -> None:
        """A run of the newest day, or of an old one, or of one that ran before."""
        days = [day for day, files in self.lake.items() if files]
        if not days:
            return
        last = max(days) if self.chance.random() < 0.6 else self.chance.choice(days)
        window, engine = self.chance.choice([1, 3, 3, 4]), self.chance.choice(ENGINES)
        end = self.chance.choice(ENDS)
        self.told.append(f"run {self._turns} of day {last}, job {self.spec}, window {window}, {engine}, to {end}")
        run = RunDirectory(str(self.folder / "runs" / f"{self._turns:03d}"))
        prepare(run, self._spec(window, engine), FIRST + dt.timedelta(days=last), str(self.folder))
        self._go_on(self._pinned(run, last, window), end)

    def _pinned(self, run: RunDirectory, last: int, window: int) -> Pending:
        """What the model says of a run that begins now."""
        pinned = {day: dict(self.lake[day]) for day in range(last - window + 1, last + 1) if self.lake.get(day)}
        read, new = dict[tuple[int, str], int](), set[int]()
        for day, files in pinned.items():
            versions = self.kept[self.spec, day]
            known = versions[-1][1] if versions else None
            anew = known is None or any(files.get(name) != content for name, content in known.items())
            added = {name: content for name, content in files.items() if anew or known is None or name not in known}
            read |= {(day, name): content for name, content in added.items()}
            new |= {day} if added else set()
        self._turns += 1
        return Pending(run, self.spec, last, self._turns, pinned, read, new)

    def _go_on(self, one: Pending, end: str) -> None:
        """Go on with a run to one of ``ENDS``; it is checked at each step that it takes."""
        self.told.append(f"run {one.turn - 1} goes on after {one.step} to {end}")
        if end != "prepare" and one.step == "prepare":
            gone = any(self.lake[day].get(name) != content for (day, name), content in one.read.items())
            if gone:
                with pytest.raises(InputError):
                    run_stages(self.spark, one.run, Quiet())
                return
            run_stages(self.spark, one.run, Quiet())
            one.step = "stages"
            processed = sum(report.processed_rows for report in one.run.reports())
            assert processed == sum(len(rows_of(content)) for content in one.read.values()), "rows that are read"
        if end in {"prepare", "stages"}:
            self.pending.append(one)
            return
        merge_states(self.spark, one.run)
        if end == "versions":
            self._unmerge(one)
            self.pending.append(one)
            return
        self._committed(one, len(one.new))
        one.step = "merge"
        result = self._checked(one)
        if end == "publish":
            finish_run(self.spark, one.run, Quiet())
            turn, _ = self.published.get((one.spec, one.last), (0, {}))
            if one.turn > turn:
                self.published[one.spec, one.last] = one.turn, result
            assert self._reading(one) == self.published[one.spec, one.last][1], "what is published"

    def _unmerge(self, one: Pending) -> None:
        """As after a kill behind some versions: neither the result nor the other versions were committed."""
        Path(one.run.path("result/COMMIT.json")).unlink()
        window = window_of(one.run)
        store = StatesStore(window.store)
        made = [part.name for part in window.parts if part.changed]
        behind = self.chance.randrange(len(made) + 1)
        known = [day for day in sorted(one.new) if self._has_version(one, day)]
        for name, day in list(zip(made, sorted(one.new), strict=True))[behind:]:
            number = store.numbers(name)[-1]
            if day not in known:
                Path(store.path(version_path(name, number))).unlink()
        self._committed(one, behind)

    def _has_version(self, one: Pending, day: int) -> bool:
        return (str(one.run), one.pinned[day]) in self.kept[one.spec, day]

    def _committed(self, one: Pending, behind: int) -> None:
        """The first versions that a run commits; one that it has committed before is not committed again."""
        for day in sorted(one.new)[:behind]:
            if not self._has_version(one, day):
                self.kept[one.spec, day].append((str(one.run), one.pinned[day]))

    def _checked(self, one: Pending) -> dict[Any, Row]:
        """The result of a run, which must be that of all rows of the window as they were listed."""
        of_key: dict[Any, list[Row]] = defaultdict(list)
        for day in sorted(one.pinned):
            for _, content in sorted(one.pinned[day].items()):
                for row in rows_of(content):
                    of_key[row["key"]].append(row)
        result = {row["key"]: row for row in result_of(one.run).to_pylist()}
        assert set(result) == set(of_key), "the keys"
        wrong = [
            f"{name} of {key!r} is {result[key][name]!r}"
            for key, rows in of_key.items()
            for name, case in JOBS[one.spec].items()
            if not case.holds(result[key][name], rows)
        ]
        assert not wrong, "; ".join(wrong[:5])
        return result

    def _reading(self, one: Pending) -> dict[Any, Row]:
        day = self.folder / f"published{one.spec}" / f"date={FIRST + dt.timedelta(days=one.last)}"
        rows = [row for path in sorted(day.glob("*.parquet")) for row in pq.ParquetFile(path).read().to_pylist()]
        return {row["key"]: row for row in rows}

    def _spec(self, window: int, engine: str) -> JobSpec:
        calls = {name: case.call for name, case in JOBS[self.spec].items()}
        routing = {"reducers": 3, "waves": [1, 3]}
        output = {"path": str(self.folder / f"published{self.spec}"), "files": 2}
        return spec_of(
            self.folder / "lake" / "date={date}", "key", calls, engine=engine, routing=routing, output=output,
            window={"length": window, "states": str(self.folder / "states")},
        )  # fmt: skip

    def _path(self, day: int, name: str) -> Path:
        return self.folder / "lake" / f"date={FIRST + dt.timedelta(days=day)}" / f"{name}.parquet"

    def _write(self, day: int, name: str) -> None:
        """A file comes, or comes with other content."""
        self._contents += 1
        content = self.seed * 1000 + self._contents
        self._path(day, name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(list(rows_of(content)), _SCHEMA), self._path(day, name))
        self.lake[day][name] = content

    def _remove(self, day: int, name: str) -> None:
        self._path(day, name).unlink()
        del self.lake[day][name]
