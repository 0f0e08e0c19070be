"""The ways to make the states of a window's parts one, on Spark: each gives the bits of merging all of them."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from skewless.documents.window import PartVersion, SeenFile, WindowSpan
from skewless.run.directory import RunDirectory
from skewless.standing.kept_merges import plan_night
from skewless.standing.store import Numbered, StatesStore
from skewless.standing.window_choice import WindowChoice
from skewless_spark.branches import evaluate
from skewless_spark.session.spark_jobs import JobsSeen
from skewless_spark.states.columns import JobColumns
from skewless_spark.windows.ways import WindowStates
from tests.spark.scenario import as_rows
from tests.spark.test_window import AGGREGATES, Lake

pytestmark = pytest.mark.long

EXACT: dict[str, Any] = {
    "n": "count",
    "total": {"function": "sum", "column": "value"},
    "mean": {"function": "avg", "column": "value"},
    "bits": {"function": "bit_xor", "column": "value"},
    "counted": {"function": "value_counts", "column": "word"},
}
ROUNDED = "rounded"
#: Sums of doubles depend on how they are merged.
ALL = {**AGGREGATES, ROUNDED: {"function": "sum", "column": "share"}}
DAYS, WINDOW = 10, 5
#: A night: its newest day, and days whose parts have other files since: those of these days.
NIGHTS: list[tuple[int, Mapping[int, Sequence[int]]]] = [
    (4, {}),
    (6, {4: [4, 8], 5: [9]}),  # a file came late, and a part was reduced anew
    (4, {}),  # a day before is computed again
    (7, {}),
]
#: The night of the day before; there may be nothing to start from.
_AGAIN = 2


class Corpus:
    """Files of states for many days, which one run has made. Nights put them together as parts."""

    def __init__(self, spark: SparkSession, folder: Path, aggregates: dict[str, Any]) -> None:
        lake = Lake(spark, folder)
        for day in range(DAYS):
            lake.put(day, "b", rows=80)
        spec = lake.spec(aggregates=aggregates, window=DAYS, engine="combine")
        run = lake.night(DAYS - 1, spec, preferred="merge all")
        self.spark, self.folder, self.job = spark, folder, run.job()
        assert self.job.window is not None
        self.store = StatesStore(self.job.window.store)
        self.parts = [part.name for part in self.job.window.parts]

    def nights(self, name: str) -> Nights:
        """Nights in a store of their own."""
        store = self.folder / name
        shutil.copytree(self.store.path("states"), store / "states")
        return Nights(self, StatesStore(str(store)))


class Made(NamedTuple):
    """The result of a night's longest window, and how it was made."""

    rows: list[tuple[Any, ...]]
    choice: WindowChoice
    states_read: int

    @property
    def action(self) -> str:
        return next(one.action for one in self.choice.candidates if one.chosen and one.window == str(WINDOW))


class Nights:
    """Nights of one store."""

    def __init__(self, corpus: Corpus, store: StatesStore) -> None:
        self.corpus, self.store = corpus, store
        window = corpus.job.window
        assert window is not None
        job = corpus.job.model_copy(update={"window": window.model_copy(update={"store": str(store)})})
        self.columns = JobColumns.of(job)

    def commit(self, day: int, of_days: Sequence[int]) -> None:
        """A version of a part: with the states of other days, since all have the columns of one job."""
        versions = [self.corpus.store.version(self.corpus.parts[one], 1) for one in of_days]
        seen = [SeenFile(path=f"{one}", size_bytes=1, ranks=(one,)) for one in of_days]
        self.store.commit(
            PartVersion(
                part=self.corpus.parts[day], fingerprint="f", run=str(of_days), files=tuple(seen),
                rows=sum(one.rows for one in versions), states=tuple(file for one in versions for file in one.states),
            )
        )  # fmt: skip

    def night(self, last: int, preferred: str = "", lengths: Sequence[int] = (WINDOW,)) -> Made:
        """Plan a night and make the result of its longest window."""
        parts = [self.newest(day) for day in range(last + 1 - max(lengths), last + 1)]
        windows = [WindowSpan(length=length, first=max(lengths) - length) for length in lengths]
        plan = plan_night(
            self.store, parts, windows, self.corpus.job.algebra, held_parts=DAYS,
            now=dt.datetime.now(tz=dt.UTC), preferred=preferred,
        )  # fmt: skip
        run = RunDirectory(f"{self.store}-run")
        jobs = JobsSeen(self.corpus.spark)
        found = WindowStates(self.corpus.spark, self.columns, run.new_attempt("result"), parts, plan).results()
        rows = {window: as_rows(self.evaluated(frame).toArrow()) for window, frame in found.items() if frame}
        read = sum(int(stage["inputRecords"]) for stage in jobs.stages(jobs.jobs()))
        for name in plan.choice.dropped:
            self.store.drop_merge(name, "run")
        assert all(sum(int(row[-1]) for row in rows[str(length)]) == self.rows(last, length) for length in lengths)
        return Made(rows[str(max(lengths))], plan.choice, read)

    def newest(self, day: int) -> Numbered:
        found, faults = self.store.newest(self.corpus.parts[day])
        assert found is not None
        assert not faults
        return found

    def rows(self, last: int, length: int) -> int:
        return sum(self.newest(day).version.rows for day in range(last + 1 - length, last + 1))

    def evaluated(self, states: DataFrame) -> DataFrame:
        """The results, and the rows of each key behind them."""
        return evaluate(states, self.columns).select(*self.columns.keys, *self.columns.results, "rows")


@pytest.fixture(scope="module")
def exact(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A job whose aggregates are all invertible."""
    return Corpus(spark, tmp_path_factory.mktemp("exact"), EXACT)


@pytest.fixture(scope="module")
def every(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A job with aggregates that are not invertible."""
    return Corpus(spark, tmp_path_factory.mktemp("every"), ALL)


def played(corpus: Corpus, way: str, lengths: Sequence[int] = (WINDOW,)) -> list[Made]:
    """All nights in a store of their own, each in one way if that is possible."""
    nights, versions = corpus.nights(way), set[int]()
    made = []
    for last, changed in NIGHTS:
        for day in range(last + 1):
            if day not in versions:
                nights.commit(day, [day])
        versions |= set(range(last + 1))
        for day, of_days in changed.items():
            nights.commit(day, of_days)
        made.append(nights.night(last, way, lengths))
    return made


def test_every_way_gives_the_bits_of_merging_all(exact: Corpus) -> None:
    """The window moves, a file comes late, a part is replaced, and an old day is computed again."""
    wanted = played(exact, "merge all")
    assert {one.action for one in wanted} == {"merge all"}
    for way in ("running merges", "subtract", "touched keys"):
        made = played(exact, way)
        assert [one.rows for one in made] == [one.rows for one in wanted], way
        assert [one.action for n, one in enumerate(made) if n != _AGAIN] == [way] * (len(NIGHTS) - 1)


def test_what_is_rounded_is_never_subtracted_and_touched_keys_are_merged_in_order(every: Corpus) -> None:
    wanted, touched = played(every, "merge all"), played(every, "touched keys")
    assert [one.rows for one in touched] == [one.rows for one in wanted]
    assert [one.action for n, one in enumerate(touched) if n != _AGAIN] == ["touched keys"] * (len(NIGHTS) - 1)
    running = played(every, "running merges")
    assert [one.action for n, one in enumerate(running) if n != _AGAIN] == ["running merges"] * (len(NIGHTS) - 1)
    assert [without_loose(every, one.rows) for one in running] == [without_loose(every, one.rows) for one in wanted]
    (refused,) = (one for one in running[-1].choice.candidates if one.action == "subtract")
    assert (refused.possible, ROUNDED in refused.sentence, "some" in refused.sentence) == (False, True, True)


def without_loose(corpus: Corpus, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Results without those that depend on how states are merged: rounded sums, and sketches."""
    bound = JobColumns.of(corpus.job).bound
    loose = {n for n, one in enumerate(bound, start=1) if one.name == ROUNDED or one.definition.agrees}
    return sorted(tuple(value for n, value in enumerate(row) if n not in loose) for row in rows)


def test_windows_of_one_night_share_their_merges(exact: Corpus) -> None:
    nights = exact.nights("nested")
    for day in range(7):
        nights.commit(day, [day])
    nights.commit(6, [6, 9])  # the window of one part has two states of a key
    short = nights.night(6, "merge all", (1, 3, 6))
    assert [step.add[-1] for step in short.choice.steps] == [f"{exact.parts[6]}@2", short.choice.steps[0].makes]
    subtracted = nights.night(6, "subtract", (1, 3, 6))
    assert subtracted.rows == short.rows
    nights.commit(7, [7])
    again = nights.night(7, "subtract", (1, 3, 6))
    assert again.rows == nights.night(7, "merge all", (1, 3, 6)).rows
    assert {one.action for one in again.choice.candidates if one.chosen} == {"merge all", "subtract"}


def test_a_usual_night_reads_a_bounded_number_of_states(exact: Corpus) -> None:
    """By Spark's own count: whatever the window is, of a few merges and of the parts that left and came."""
    read, length, window = dict[str, int](), DAYS - 2, 0
    for way in ("merge all", "subtract", "running merges"):
        nights = exact.nights(f"bounded-{way}")
        for day in range(DAYS):
            nights.commit(day, [day])
            if day >= length:
                made = nights.night(day, way, (length,))
                read[way], window = made.states_read, max(window, len(made.rows))
    keys = {part: sum(file.rows for file in exact.store.version(part, 1).states) for part in exact.parts}
    assert read["merge all"] == sum(keys[part] for part in exact.parts[2:])
    # The merge of the night before, the two parts, and what is then the result.
    assert read["subtract"] <= 2 * window + keys[exact.parts[1]] + keys[exact.parts[-1]]
    # The merge of the newer parts and one more, and then that and the merge of the older parts.
    assert read["running merges"] <= 3 * window + keys[exact.parts[-1]]
