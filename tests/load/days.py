"""Small days for many runs: each has rows of its own, so that a row of another day would show in its result."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from skewless.documents.ledger import balance
from skewless.run.directory import RESULT_STEP, RunDirectory

FIRST = dt.date(2026, 3, 1)
FILES, ROWS = 3, 2_000


def days(count: int) -> list[str]:
    return [(FIRST + dt.timedelta(days=number)).isoformat() for number in range(count)]


def pages(day: str) -> list[str]:
    """The rows of a day: one page is half of them."""
    seed = dt.date.fromisoformat(day).toordinal()
    return [f"{day}/hot" if number % 2 else f"{day}/{number * seed % 397}" for number in range(ROWS)]


def write_lake(root: Path, which: Sequence[str]) -> None:
    """The input of all jobs, a folder for each day."""
    for day in which:
        folder, rows = root / "lake" / day, pages(day)
        folder.mkdir(parents=True)
        for number in range(FILES):
            pq.write_table(pa.table({"page": rows[number::FILES]}), folder / f"{number}.parquet")


def write_catalog(catalog: Path, names: Sequence[str], **more: Any) -> None:
    """A job for each name; they differ in where they publish."""
    catalog.mkdir(parents=True)
    for name in names:
        spec = {
            "name": name,
            "input": {"path": "lake/{date}"},
            "key": "page",
            "aggregates": {"visits": "count"},
            "routing": {"waves": [1], "reducers": 2, "first_plan": ["sample"]},
            "output": {"path": f"published/{name}", "files": 1},
            **more,
        }
        (catalog / f"{name}.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))


def faults_of(root: Path, run: RunDirectory, name: str, day: str) -> list[str]:
    """What is wrong with a finished run of a day, in words; nothing if all is right."""
    left = [f"{run}: {leftover} is left over" for leftover in leftovers(root, run)]
    return [*wrong_results(root, run, name, day), *left]


def wrong_results(root: Path, run: RunDirectory, name: str, day: str) -> list[str]:
    """What is wrong with the result of a finished run, in words, whatever its attempts have left over."""
    found = []
    job = run.job()
    if job.date.isoformat() != day:
        found.append(f"{run} is of {job.date}, not of {day}")
    found += balance(job, run.reports(), run.committed(RESULT_STEP).counts["rows"]).problems
    published = pq.read_table(root / "published" / name / f"date={day}", partitioning=None)
    counted = dict(zip(published["page"].to_pylist(), published["visits"].to_pylist(), strict=True))
    if counted != Counter(pages(day)) or published.num_rows != len(counted):
        found.append(f"what {name} published of {day} is not what was counted")
    return found


def leftovers(root: Path, run: RunDirectory) -> list[str]:
    """Files of a run directory, or beside what it published, that a finished run should have removed."""
    places = [Path(str(run).removeprefix("file:")), root / "published"]
    drafts = (root / "published").glob(f".{Path(run.job().output_path).name}.skewless/drafts/date={run.job().date}/*")
    return [str(path.relative_to(root)) for path in drafts] + [
        str(path.relative_to(root))
        for place in places
        for path in place.rglob("*")
        if path.name.endswith((".draft", ".tmp", "_temporary")) or path.name.startswith("_temporary")
    ]
