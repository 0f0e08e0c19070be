"""Nights of a job with a window: a lake that grows, rows that come late, and what must be published after each."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from skewless.documents.ledger import balance
from skewless.run.directory import RESULT_STEP, RunDirectory

JOB = "windowed"
FIRST = dt.date(2026, 3, 1)
FILES = 3
#: How many nights late rows come, drawn for each: most by one night, some only when their day has left a window of 7.
DELAYS = (1, 1, 1, 1, 2, 2, 3, 4, 6, 8)
#: Of a hundred rows of a day, so many come late, at least and at most.
LATE_PERCENT = (1.0, 5.0)


def spec(window: int, **more: Any) -> dict[str, Any]:
    """The job."""
    return {
        "name": JOB,
        "input": {"path": "lake/date={date}"},
        "window": window,
        "key": "page",
        "aggregates": {
            "visits": "count",
            "seconds": {"function": "sum", "column": "seconds"},
            "longest": {"function": "max", "column": "seconds"},
            "different": {"function": "count_distinct", "column": "seconds"},
            "earliest": {"function": "first", "column": "seconds"},
            "latest": {"function": "last", "column": "seconds"},
        },
        "schedule": {"cron": "0 2 * * *", "start": FIRST.isoformat()},
        "routing": {"waves": [1], "reducers": 2, "first_plan": ["sample"]},
        "output": {"path": f"published/{JOB}", "files": 1},
        **more,
    }


class Arrived(NamedTuple):
    """What came with a night.

    Attributes:
        day: that the night computes.
        late: rows of older days in its window that came with it.
        outside: late rows of days that have left the window, which nobody has to read.
        restated: rows of an older day of which a file was written anew.
        changed: rows that the night has to read: those of new files, and all of a day with a rewritten file.
    """

    day: dt.date
    late: int
    outside: int
    restated: int
    changed: int


class NightLake:
    """Days of files that come night by night."""

    def __init__(self, root: Path, window: int, rows: int, rewrite_every: int = 0, seed: int = 17) -> None:
        self._root, self._window, self._rows, self._rewrite_every = root, window, rows, rewrite_every
        self._drawn = random.Random(seed)
        self._to_come: dict[int, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        self._nights = 0

    def arrive(self) -> Arrived:
        """Write the files that have come by the next night."""
        night, self._nights = self._nights, self._nights + 1
        on_time, changed = [], 0
        late_share = self._drawn.uniform(*LATE_PERCENT) / 100
        for page in self._pages(night, self._rows):
            if self._drawn.random() < late_share:
                self._to_come[night + self._drawn.choice(DELAYS)][night].append(page)
            else:
                on_time.append(page)
        for number in range(FILES):
            changed += self._write(night, f"{number}.parquet", on_time[number::FILES])
        late = outside = 0
        for day, pages in sorted(self._to_come.pop(night, {}).items()):
            rows = self._write(day, f"late-{night:03d}.parquet", pages)
            if day > night - self._window:
                late += rows
            else:
                outside += rows
        restated, day = 0, night - 1
        if self._rewrite_every and night % self._rewrite_every == self._rewrite_every - 1 and day >= 0:
            self._write(day, "1.parquet", self._pages(day, self._rows // 5))
            restated = sum(pq.read_metadata(file).num_rows for file in self._folder(day).glob("*.parquet"))
            late -= sum(pq.read_metadata(file).num_rows for file in self._folder(day).glob(f"late-{night:03d}.parquet"))
        return Arrived(self._date(night), late, outside, restated, changed + late + restated)

    def faults_of(self, run: RunDirectory, arrived: Arrived) -> list[str]:
        """What is wrong with the run of the night of the last arrival, in words; nothing if all is right."""
        found = []
        job, result = run.job(), run.committed(RESULT_STEP)
        if job.date != arrived.day:
            found.append(f"{run} is of {job.date}, not of {arrived.day}")
        found += balance(job, run.reports(), result.counts["rows"], run.part_lines()).problems
        folder = self._root / "published" / JOB / f"date={arrived.day}"
        if not folder.is_dir():
            return [*found, f"{arrived.day} is not published"]
        names = ["visits", "seconds", "longest", "different", "earliest", "latest"]
        rows = pq.read_table(folder, partitioning=None).to_pylist()
        published = {row["page"]: tuple(row[name] for name in names) for row in rows}
        if len(published) < len(rows):
            found.append(f"a key was published twice for {arrived.day}")
        if published != (plain := self.plain()):
            odd = sorted(page for page in published.keys() | plain if published.get(page) != plain.get(page))
            found.append(f"{arrived.day}: {len(odd)} keys are not what plain Python makes of all rows, as {odd[0]!r}")
        return found

    def plain(self) -> dict[str, tuple[int, ...]]:
        """The result of the last night, computed in plain Python from all rows of its window."""
        seen: dict[str, list[int]] = defaultdict(list)
        for day in range(max(0, self._nights - self._window), self._nights):
            for file in sorted(self._folder(day).glob("*.parquet")):
                table = pq.read_table(file, partitioning=None)
                for page, seconds in zip(table["page"].to_pylist(), table["seconds"].to_pylist(), strict=True):
                    seen[page].append(seconds)
        return {
            page: (len(all_of), sum(all_of), max(all_of), len(Counter(all_of)), all_of[0], all_of[-1])
            for page, all_of in seen.items()
        }

    @property
    def rows_in_window(self) -> int:
        """The rows that the result of the last night is made of."""
        return sum(visits for visits, *_ in self.plain().values())

    def _pages(self, day: int, rows: int) -> list[str]:
        """The page of each row: one is half of them, and some are of this day alone."""
        draw = self._drawn.random
        tail = ("hot" if draw() < 0.5 else f"{draw():.2f}" for _ in range(rows))
        return [page if number % 20 else f"only-{day}-{page}" for number, page in enumerate(tail)]

    def _write(self, day: int, name: str, pages: Sequence[str]) -> int:
        folder = self._folder(day)
        folder.mkdir(parents=True, exist_ok=True)
        seconds = pa.array([self._drawn.randrange(1000) for _ in pages], pa.int64())
        draft = folder.parent.parent / f"{name}.draft"
        pq.write_table(pa.table({"page": pa.array(pages, pa.string()), "seconds": seconds}), draft)
        draft.rename(folder / name)
        return len(pages)

    def _folder(self, day: int) -> Path:
        return self._root / "lake" / f"date={self._date(day)}"

    @staticmethod
    def _date(day: int) -> dt.date:
        return FIRST + dt.timedelta(days=day)
