"""A sequence of nights over files that come late, change and go: whatever was kept, the result is that of all rows."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from skewless.run.directory import RunDirectory
from skewless.spec.reading import parse_spec
from skewless_spark.entries.pipeline import finish_run, run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from tests.fuzz.aggregates import Call, draw_calls
from tests.fuzz.files import KINDS_OF, arrow_table, draw_writing, write_file
from tests.fuzz.inputs import draw_columns, draw_rows, section_of
from tests.fuzz.published import differences, grouped, published_differences, read_published
from tests.fuzz.specs import draw_map, draw_output, draw_routing
from tests.fuzz.trial import Outcome, draw_key, require, tried
from tests.fuzz.values import KINDS, Row
from tests.spark.scenario import Quiet, result_of

FIRST = dt.date(2026, 11, 1)
NAMES = "abcdefg"
CHANGES = ("append", "append", "append", "late", "late", "rewrite", "delete", "part", "spec", "window", "nothing")


@dataclass
class Lake:
    """What is there: the rows of each file of each day, and how they get there.

    Attributes:
        chance: what decides.
        folder: the data root.
        files: by day and name.
    """

    chance: random.Random
    folder: Path
    files: dict[int, dict[str, list[Row]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Choose a format, columns, and how they are written."""
        self.format = self.chance.choice(["parquet", "parquet", "parquet", "csv", "json", "orc", "delta"])
        self.columns = draw_columns(self.chance, KINDS_OF[self.format], odd=False)
        self.how = {"format": "delta"} if self.format == "delta" else draw_writing(self.chance, self.format)
        self.ordered = self.format != "delta"
        self.by_column = self.format != "delta" and self.chance.random() < 0.3
        self.pools = {name: [kind.draw(self.chance) for _ in range(12)] for name, kind in self.columns.items()}
        self.written = 0

    @property
    def section(self) -> dict[str, Any]:
        """``input`` of a spec over all of it."""
        if self.format == "delta":
            return {"format": "delta", "path": "lake", "parts": "day"}
        path = str(self.folder / "lake") + ("" if self.by_column else "/day={date}")
        return section_of(self.how, self.columns, path) | ({"parts": "day"} if self.by_column else {})

    def write(self, day: int, name: str) -> None:
        """A file comes, or comes with other rows."""
        count = self.chance.choice([0, 1, 20, 60, 60, 200])
        if self.format == "delta":
            count = max(count, 1)
        rows = draw_rows(self.chance, self.columns, count)
        for row in rows:  # the same values in all files, so that keys meet
            for column in row:
                if row[column] is not None and self.chance.random() < 0.8:
                    row[column] = self.chance.choice(self.pools[column])
        if self.format == "csv" and len(self.columns) == 1:
            rows = [row for row in rows if row[next(iter(self.columns))] is not None]
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
        """Write the files of a table anew, without a change of its rows."""
        DeltaTable(str(self.folder / "lake")).optimize.compact()

    def _at(self, day: int) -> Path:
        return self.folder / "lake" / f"day={FIRST + dt.timedelta(days=day)}"

    def pinned(self, last: int, length: int | None) -> dict[int, dict[str, list[Row]]]:
        """The files of a window as they are now."""
        first = 0 if length is None else last - length + 1
        return {day: dict(self.files[day]) for day in range(first, last + 1) if self.files.get(day)}

    def in_order(self, days: dict[int, dict[str, list[Row]]]) -> list[Row]:
        """Their rows, in the order of the input."""
        extra = (
            (lambda day: {"day": FIRST + dt.timedelta(days=day)})
            if self.by_column or self.format == "delta"
            else (lambda _: {})
        )
        return [row | extra(day) for day in sorted(days) for name in sorted(days[day]) for row in days[day][name]]


@dataclass
class Job:
    """A spec, and what it comes to."""

    spec: dict[str, Any]
    calls: dict[str, Call]
    rows_of: Any

    @property
    def lengths(self) -> list[int | None]:
        """Of its windows."""
        length = self.spec["window"]["length"]
        return length if isinstance(length, list) else [None if length == "all" else length]

    @property
    def several(self) -> bool:
        """Whether its result has a row for each of several windows."""
        return isinstance(self.spec["window"]["length"], list)


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
    """Another length. A table keeps the columns that it was made with."""
    before = window["length"]
    if (before == 0 and chance.random() < 0.3) or isinstance(before, list):
        window["length"] = sorted(chance.sample([1, 2, 3, 5, 7], chance.randint(1, 3)))
    else:
        window["length"] = chance.choice([1, 1, 2, 3, 3, 7, "all"])


def run_nights(spark: SparkSession, seed: int, number: int, folder: Path) -> Outcome:
    """One sequence of nights."""

    def play(outcome: Outcome, chance: random.Random, place: Path) -> None:
        lake = Lake(chance, place)
        for day in range(2):
            for name in "cf":
                lake.write(day, name)
        jobs = [_job(chance, lake, 0), _job(chance, lake, 1)]
        job, told = jobs[0], list[str]()
        outcome.how = {**lake.how, "columns": {name: kind.name for name, kind in lake.columns.items()}, "told": told}
        outcome.features = [f"nights over {lake.format}"]
        for night in range(chance.randint(3, 7)):
            if night:
                change = _change(chance, lake, told)
                if change == "spec":
                    job = jobs[job is jobs[0]]
                elif change == "window":
                    draw_window(chance, job.spec["window"])
                outcome.features.append(f"change {change}")
            days = sorted(day for day, files in lake.files.items() if files)
            if not days:
                continue
            last = days[-1] if chance.random() < 0.7 else chance.choice(days)
            moving = {"sessions", "latest"}
            moves = any(isinstance(one.call, dict) and one.call["function"] in moving for one in job.calls.values())
            spec = job.spec | {
                "engine": chance.choice(["auto", "staged"] if moves else ["auto", "combine", "bypass", "staged"])
            }
            spec["routing"] = draw_routing(chance)
            told.append(f"night {night}: {spec['name']} of day {last}, {spec['engine']}, window {job.lengths}")
            outcome.spec = spec
            outcome.features += [f"window {one}" for one in job.lengths] + [f"engine {spec['engine']}"]
            run, date = RunDirectory(str(place / "runs" / f"{night}")), FIRST + dt.timedelta(days=last)
            prepare(run, parse_spec(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True)), date, str(place))
            pinned = [(length, lake.pinned(last, length)) for length in job.lengths]
            _finish(spark, run, Job(spec, job.calls, job.rows_of), lake, pinned, date)

    return tried(spark, seed, f"nights-{number}", folder, play)


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


def _finish(
    spark: SparkSession, run: RunDirectory, job: Job, lake: Lake, pinned: list[tuple[int | None, Any]], day: dt.date
) -> None:
    run_stages(spark, run, Quiet())
    merge_states(spark, run)
    result = result_of(run).to_pylist() if run.committed("result").files else []
    rows, key = list[Row](), list(job.spec["key"])
    for length, days in pinned:
        own = job.rows_of(lake.in_order(days))
        rows += [row | {"window": length} for row in own] if job.several else own
    key += ["window"] if job.several else []
    require(differences(result, grouped(rows, key), key, job.calls))
    finish_run(spark, run, Quiet())
    published = read_published(job.spec["output"], lake.folder, day)
    require(published_differences(job.spec["output"], published, result))
