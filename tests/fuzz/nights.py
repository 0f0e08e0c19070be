"""A sequence of nights over files that come late, change and go: whatever was kept, the result is that of all rows.

Runs stop where a kill would stop them, and go on later; a model of which files the kept states stand for says
beforehand what a run has to read. The same sequences without Spark, by the thousand, are in
``tests/unit/test_standing_states.py``.
"""

import copy
import datetime as dt
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from skewless.errors import InputError
from skewless.run.directory import RunDirectory
from skewless.spec.reading import parse_spec
from skewless.standing.states_store import StatesStore, version_path
from skewless_spark.entries.pipeline import finish_run, run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from tests.fuzz.aggregates import Call, draw_calls
from tests.fuzz.files import KINDS_OF, arrow_table, draw_writing, write_file
from tests.fuzz.inputs import draw_columns, draw_rows, section_of
from tests.fuzz.published import alarms, differences, grouped, published_differences, read_published
from tests.fuzz.specs import draw_map, draw_output, draw_routing
from tests.fuzz.trial import Outcome, draw_key, require, tried
from tests.fuzz.values import KINDS, Row
from tests.spark.scenario import result_of, window_of

FIRST = dt.date(2026, 11, 1)
NAMES = "abcdefg"
CHANGES = ("append", "append", "append", "late", "late", "rewrite", "delete", "part", "spec", "window", "nothing")
#: Where a run may stop as if it was killed; most come to their end.
ENDS = ("publish", "publish", "publish", "prepare", "stages", "versions", "merge")
#: Aggregates that see rows in order.
MOVING = {"sessions"}
#: The rows of each file of some days, by day and name.
Days = dict[int, dict[str, list[Row]]]


@dataclass
class Lake:
    """What is there: the rows of each file of each day, and how they get there."""

    chance: random.Random
    folder: Path
    files: Days = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.format = self.chance.choice(["parquet", "parquet", "parquet", "csv", "json", "orc", "delta"])
        self.columns = draw_columns(self.chance, KINDS_OF[self.format], odd=False)
        self.how = {"format": "delta"} if self.format == "delta" else draw_writing(self.chance, self.format)
        self.ordered = self.format != "delta"
        self.by_column = self.format != "delta" and self.chance.random() < 0.3
        self.pools = {name: [kind.draw(self.chance) for _ in range(12)] for name, kind in self.columns.items()}
        self.written = 0

    @property
    def section(self) -> dict[str, Any]:
        if self.format == "delta":
            return {"format": "delta", "path": "lake", "parts": "day"}
        path = str(self.folder / "lake") + ("" if self.by_column else "/day={date}")
        return section_of(self.how, self.columns, path) | ({"parts": "day"} if self.by_column else {})

    def write(self, day: int, name: str) -> None:
        """A file comes, or comes with other rows."""
        count = max(self.chance.choice([0, 1, 20, 60, 60, 200]), self.format == "delta")
        rows = draw_rows(self.chance, self.columns, count)
        for row in rows:  # the same values in all files, so that keys meet
            for column in row:
                if row[column] is not None and self.chance.random() < 0.8:
                    row[column] = self.chance.choice(self.pools[column])
        if self.format == "csv" and (len(self.columns) == 1 or self.how["delimiter"] == "\t"):
            rows = [row for row in rows if {*row.values()} != {None}]  # Spark passes over lines of white space
        self.written += 1
        if self.format == "delta":
            self._write_delta(day, rows)
        else:
            write_file(self._at(day), name, rows, self.columns, self.how | {"seed": self.written})
        self.files.setdefault(day, {})[name] = rows

    def _write_delta(self, day: int, rows: Sequence[Row]) -> None:
        columns = self.columns | {"day": KINDS["date"]}
        table = arrow_table([row | {"day": FIRST + dt.timedelta(days=day)} for row in rows], columns)
        write_deltalake(str(self.folder / "lake"), table, mode="append", partition_by=["day"])

    def remove(self, day: int, name: str) -> None:
        """A file goes; of a table, its whole day, of which the other files come again."""
        del self.files[day][name]
        if self.format != "delta":
            for path in self._at(day).glob(f"{name}.*"):
                path.unlink()
            return
        DeltaTable(str(self.folder / "lake")).delete(f"day = '{FIRST + dt.timedelta(days=day)}'")
        for rows in self.files[day].values():
            self._write_delta(day, rows)

    def compact(self) -> None:
        DeltaTable(str(self.folder / "lake")).optimize.compact()

    def _at(self, day: int) -> Path:
        return self.folder / "lake" / f"day={FIRST + dt.timedelta(days=day)}"

    def pinned(self, last: int, length: int | None) -> Days:
        first = 0 if length is None else last - length + 1
        return {day: dict(self.files[day]) for day in range(first, last + 1) if self.files.get(day)}

    def in_order(self, days: Days) -> list[Row]:
        dated = self.by_column or self.format == "delta"
        extra = {day: {"day": FIRST + dt.timedelta(days=day)} if dated else {} for day in days}
        return [row | extra[day] for day in sorted(days) for name in sorted(days[day]) for row in days[day][name]]


@dataclass
class Job:
    """A spec, what it comes to, and what its runs have left.

    Attributes:
        spec: as it is now: its window changes.
        rows_of: the rows that the aggregates see of those of the input.
        kept: by day, who has committed a version, and of which files; the newest is the last.
        published: by day, the turn whose result is published.
    """

    spec: dict[str, Any]
    calls: dict[str, Call]
    rows_of: Any
    kept: dict[int, list[tuple[str, dict[str, list[Row]]]]] = field(default_factory=lambda: defaultdict(list))
    published: dict[int, int] = field(default_factory=dict)

    @property
    def lengths(self) -> list[int | None]:
        length = self.spec["window"]["length"]
        return length if isinstance(length, list) else [None if length == "all" else length]

    @property
    def moves(self) -> bool:
        """Whether an aggregate sees rows in order: a part is then read anew for reasons that are not modelled."""
        return any(isinstance(one.call, dict) and one.call["function"] in MOVING for one in self.calls.values())


@dataclass
class Night:
    """A run that has pinned its input.

    Attributes:
        spec: that of the job as it was then.
        turn: how many runs were prepared before it.
        windows: the files of each of its windows, by length, as they were listed.
        read: the files that it has to read.
        new: the days whose states it makes or adds to.
    """

    run: RunDirectory
    job: Job
    spec: dict[str, Any]
    last: int
    turn: int
    windows: dict[int | None, Days]
    read: dict[tuple[int, str], list[Row]]
    new: set[int]
    step: str = "prepare"

    @property
    def date(self) -> dt.date:
        return FIRST + dt.timedelta(days=self.last)

    @property
    def pinned(self) -> Days:
        return self.windows[None if None in self.windows else max(one for one in self.windows if one)]

    def has_version(self, day: int) -> bool:
        return str(self.run) in {run for run, _ in self.job.kept[day]}

    def keep(self, days: Sequence[int]) -> None:
        """Remember that it has committed states of days; what it has committed before is not committed again."""
        for day in days:
            if not self.has_version(day):
                self.job.kept[day].append((str(self.run), self.pinned[day]))


def _job(chance: random.Random, lake: Lake, number: int) -> Job:
    step = draw_map(chance, lake.columns)
    columns = step.columns if step else lake.columns
    forward = lake.ordered and chance.random() < 0.2
    calls = draw_calls(chance, columns, ordered=lake.ordered, forward=forward, window=True, most=4)
    key = draw_key(chance, columns)
    nested = any(one.nested or (one.kind and one.kind.name == "binary") for one in calls.values())
    nested = nested or any(columns[name].name == "binary" for name in key)
    spec: dict[str, Any] = {
        "name": f"fuzz{number}",
        "input": lake.section,
        **({"map": step.section} if step else {}),
        "key": key,
    }
    spec |= {"aggregates": {name: one.call for name, one in calls.items()}}
    spec["output"] = draw_output(chance, nested=nested, table=True)
    spec["output"]["path"] += str(number)
    if spec["output"].get("format") in {"delta", "iceberg"}:
        spec["output"]["schema"] = "evolve"  # a window may become several
    spec["window"] = {"length": 0, "states": str(lake.folder / "states")}
    draw_window(chance, spec["window"])
    rows_of = (lambda rows: [made for row in rows for made in step.rows_of(row)]) if step else list
    return Job(spec, calls, rows_of)


def draw_window(chance: random.Random, window: dict[str, Any]) -> None:
    before = window["length"]
    if (before == 0 and chance.random() < 0.3) or isinstance(before, list):
        window["length"] = sorted(chance.sample([1, 2, 3, 5, 7], chance.randint(1, 3)))
    else:
        window["length"] = chance.choice([1, 1, 2, 3, 3, 7, "all"])


def run_nights(spark: SparkSession, seed: int, number: int, folder: Path, most: int = 7) -> Outcome:
    """One sequence of nights, or the first ones of it."""

    def play(outcome: Outcome, chance: random.Random, place: Path) -> None:
        lake = Lake(chance, place)
        for day in range(2):
            for name in "cf":
                lake.write(day, name)
        jobs = [_job(chance, lake, 0), _job(chance, lake, 1)]
        job, told, stopped = jobs[0], list[str](), list[Night]()
        outcome.how = {**lake.how, "columns": {name: kind.name for name, kind in lake.columns.items()}, "told": told}
        outcome.features = [f"nights over {lake.format}"]
        for turn in range(min(chance.randint(3, 7), most)):
            change = _change(chance, lake, told) if turn else "nothing"
            if change == "spec":
                job = jobs[job is jobs[0]]
            elif change == "window":
                draw_window(chance, job.spec["window"])
            outcome.features.append(f"change {change}")
            if stopped and chance.random() < 0.5:
                one = stopped.pop(chance.randrange(len(stopped)))
                told.append(f"night {one.turn} goes on after {one.step}")
                _goes_on(spark, one, lake, "publish", chance)
            elif any(lake.files.values()):
                one = _begun(chance, lake, job, turn)
                end = "publish" if job.moves else chance.choice(ENDS)  # what it reads later is not known
                engine = one.spec["engine"]
                told.append(f"night {turn}: {one.spec['name']} of day {one.last}, {engine}, {job.lengths}, to {end}")
                outcome.spec = one.spec
                outcome.features += [f"window {length}" for length in job.lengths] + [f"engine {engine}"]
                stopped += [one] if _goes_on(spark, one, lake, end, chance) else []
        for one in stopped:
            told.append(f"night {one.turn} goes on after {one.step}")
            _goes_on(spark, one, lake, "publish", chance)

    return tried(spark, seed, f"nights-{number}", folder, play)


def _begun(chance: random.Random, lake: Lake, job: Job, turn: int) -> Night:
    """Prepare a run of the newest day or of another one, and say what it has to read."""
    days = sorted(day for day, files in lake.files.items() if files)
    last = days[-1] if chance.random() < 0.7 else chance.choice(days)
    engines = ["auto", "staged"] if job.moves else ["auto", "combine", "bypass", "staged"]
    spec = copy.deepcopy(job.spec) | {"engine": chance.choice(engines), "routing": draw_routing(chance)}
    windows = {length: lake.pinned(last, length) for length in job.lengths}
    one = Night(RunDirectory(str(lake.folder / "runs" / f"{turn}")), job, spec, last, turn, windows, {}, set())
    for day, files in one.pinned.items():
        known = job.kept[day][-1][1] if job.kept[day] else None
        anew = known is None or any(files.get(name) is not rows for name, rows in known.items())
        added = {name: rows for name, rows in files.items() if anew or known is None or name not in known}
        one.read |= {(day, name): rows for name, rows in added.items()}
        one.new |= {day} if added else set()
    prepare(one.run, parse_spec(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True)), one.date, str(lake.folder))
    return one


def _change(chance: random.Random, lake: Lake, told: list[str]) -> str:
    change = chance.choice([*CHANGES, *(["compact", "compact"] if lake.format == "delta" else [])])
    known = sorted((day, name) for day, files in lake.files.items() for name in files)
    change = change if known else "append"
    day, name = chance.choice(known or [(0, "")])
    newest = max(lake.files) + 1
    told.append(f"{change} {day}/{name}")
    if change == "append":
        for new in chance.sample(NAMES, chance.choice([1, 2])):
            lake.write(newest + (chance.random() < 0.1), new)
    elif change == "late":
        lake.write(day, next((one for one in chance.sample(NAMES, len(NAMES)) if one not in lake.files[day]), name))
    elif change == "rewrite":
        lake.remove(day, name)
        lake.write(day, name)
    elif change == "delete":
        lake.remove(day, name)
    elif change == "part":
        for one in list(lake.files[day]):
            lake.remove(day, one)
    elif change == "compact":
        lake.compact()
    return change


def _goes_on(spark: SparkSession, one: Night, lake: Lake, end: str, chance: random.Random) -> bool:
    """Go on with a run to one of ``ENDS``, and check it at each step; returns whether there is more to do."""
    # A table keeps files that are gone from it, and reads those anew that it has written anew.
    modelled = lake.format != "delta" and not one.job.moves
    if end == "prepare":
        return True
    if one.step == "prepare":
        if lake.format != "delta" and _is_refused(spark, one, lake):
            return False
        run_stages(spark, one.run)
        one.step = "stages"
        processed = sum(report.processed_rows for report in one.run.reports())
        wanted = sum(len(one.job.rows_of(rows)) for rows in one.read.values())
        require([f"{processed} rows were read, not {wanted}"] if modelled and processed != wanted else [])
    if end == "stages":
        return True
    merge_states(spark, one.run)
    if end == "versions" and modelled:
        _unmerge(one, chance)
        return True
    one.keep(sorted(one.new))
    one.step = "merge"
    result = _checked(one, lake)
    if end == "publish":
        _publish(spark, one, lake, result)
    return end != "publish"


def _is_refused(spark: SparkSession, one: Night, lake: Lake) -> bool:
    """Whether a file that a run has to read is another one now; if it had rows, the run must say so."""
    gone = [rows for (day, name), rows in one.read.items() if lake.files[day].get(name) is not rows]
    if any(gone):
        with pytest.raises(InputError):
            run_stages(spark, one.run)
    return bool(gone)


def _publish(spark: SparkSession, one: Night, lake: Lake, result: list[Row]) -> None:
    """Publish a result, unless a run that was prepared later has published its day."""
    newest, output = one.job.published.get(one.last, -1), one.spec["output"]
    before = read_published(output, lake.folder, one.date) if newest > one.turn else []
    finish_run(spark, one.run)
    published = read_published(output, lake.folder, one.date)
    if newest < one.turn:
        one.job.published[one.last] = one.turn
        require(published_differences(output, published, result))
        now = [lake.files[day].get(name) is rows for day, files in one.pinned.items() for name, rows in files.items()]
        require(alarms(one.run) if all(now) else [])  # a file that is gone cannot be certified
    elif sorted(map(repr, published)) != sorted(map(repr, before)):
        require([f"night {one.turn} has replaced the result of night {newest}"])


def _unmerge(one: Night, chance: random.Random) -> None:
    """As after a kill behind some versions: neither the result nor the other versions were committed."""
    Path(one.run.path("result/COMMIT.json")).unlink()
    window = window_of(one.run)
    store, behind = StatesStore(window.store), chance.randrange(len(one.new) + 1)
    names = {(dt.date.fromisoformat(part.name) - FIRST).days: part.name for part in window.parts if part.changed}
    require([] if names.keys() == one.new else [f"days {sorted(names)} have changed, not {sorted(one.new)}"])
    for day in sorted(one.new)[behind:]:
        if not one.has_version(day):
            Path(store.path(version_path(names[day], store.numbers(names[day])[-1]))).unlink()
    one.keep(sorted(one.new)[:behind])


def _checked(one: Night, lake: Lake) -> list[Row]:
    """The result of a run, which must be that of all rows of its windows as they were listed."""
    result = result_of(one.run).to_pylist() if one.run.committed("result").files else []
    rows, key, several = list[Row](), list(one.spec["key"]), isinstance(one.spec["window"]["length"], list)
    for length, days in one.windows.items():
        own = one.job.rows_of(lake.in_order(days))
        rows += [row | {"window": length} for row in own] if several else own
    key += ["window"] if several else []
    require(differences(result, grouped(rows, key), key, one.job.calls))
    return result
