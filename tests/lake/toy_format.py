"""A format of tables: Parquet files, and numbered lists of those of each part. As much as a format has to be.

Lines that tell the product of it: one in ``skewless.spec.input.TABLES``, one in ``skewless_lake.formats.FORMATS``, and
one in ``skewless_spark.sources.lake.table_inputs.READERS``.
"""

import json
import os
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from skewless.documents.job import PinnedTable
from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless_lake.staged_files import OutputPart, StagedFile, StagedResult, TableRule
from skewless_lake.staging import ResultFile
from skewless_spark.sources.lake.snapshot import Snapshot, TableColumn, TableFile, kinds_of

State = dict[str, dict[str, Any]]


def states_of(folder: Path) -> list[State]:
    """All states of a table, the oldest first: by part its files, and what is said of it."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("state-*.json"))]


def _folder(target: OutputPart) -> Path:
    return Path(target.path.removeprefix("toy+file://"))


NUMBERED = "version"
LOST, CHANGED, UNANSWERED = (FileExistsError,), (), ()


def find_table(target: OutputPart) -> list[State]:
    return states_of(_folder(target))


def require_fitting(table: list[State], target: OutputPart) -> None:
    """Any folder fits."""


def with_columns(table: list[State], _target: OutputPart, _columns: pa.Schema) -> list[State]:
    return table


def stage(
    _table: list[State], target: OutputPart, files: Sequence[ResultFile], begin: Callable[[Sequence[str]], object]
) -> StagedResult:
    folder = _folder(target)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [f"{uuid.uuid4()}.parquet" for _ in files]
    begin(paths)
    for path, file in zip(paths, files, strict=True):
        pq.write_table(pa.Table.from_batches(file.batches()), folder / path)
    staged = [
        StagedFile(path=path, rows=file.rows, size_bytes=(folder / path).stat().st_size)
        for path, file in zip(paths, files, strict=True)
    ]
    return StagedResult(table=target.path, location=str(folder), files=tuple(staged))


def rules_of(_table: list[State]) -> tuple[TableRule, ...]:
    return ()


def column_names(_table: list[State]) -> list[str]:
    return []


def publications(table: list[State], _target: OutputPart) -> Iterator[tuple[int, dict[str, str]]]:
    for number, state in reversed(list(enumerate(table, start=1))):
        yield from ((number, one["about"]) for one in state.values() if one["number"] == number)


def latest_turn(table: list[State], target: OutputPart) -> int:
    return int(table[-1].get(target.part.name, {"turn": 0})["turn"]) if table else 0


def staged_files(_table: list[State], _target: OutputPart, staged: StagedResult) -> Sequence[tuple[str, int]]:
    return [(file.path, file.rows) for file in staged.files]


def earlier_files(table: list[State], target: OutputPart, number: int) -> Sequence[tuple[str, int]]:
    return list(table[number - 1][target.part.name]["files"].items())


def commit_part(
    table: list[State], target: OutputPart, files: Sequence[tuple[str, int]], about: Mapping[str, str]
) -> int:
    folder, number = _folder(target), len(table) + 1
    entry = {"turn": int(about["turn"]), "number": number, "about": dict(about), "files": dict(files)}
    draft = folder / f"{uuid.uuid4()}.draft"
    draft.write_text(json.dumps({**(table[-1] if table else {}), target.part.name: entry}))
    os.link(draft, folder / f"state-{number:04d}.json")
    draft.unlink()
    return number


def require_race(table: list[State], target: OutputPart, failed: Counter[str], err: Exception) -> None:
    """A number is drawn by others or not at all."""


def unnamed(table: list[State], others: Collection[str], staged: Collection[str], _digest: str) -> list[str]:
    named = {path for state in table for one in state.values() for path in one["files"]}
    return [path for path in {*others, *staged} if path not in named]


def remove(target: OutputPart, paths: Collection[str]) -> None:
    for path in paths:
        (_folder(target) / path).unlink(missing_ok=True)


def snapshot_of(_given: Input, _part: Part, _root: str, location: str, _conditions: object) -> Snapshot:
    folder = Path(location)
    states = states_of(folder)
    files = [
        TableFile(str(folder / path), (folder / path).stat().st_size, {"date": name}, rows=rows)
        for name, one in states[-1].items()
        for path, rows in one["files"].items()
    ]
    kinds = kinds_of(pq.read_schema(files[0].path))
    columns = [TableColumn(name, kind) for name, kind in (kinds | {"date": "date"}).items()]
    pinned = PinnedTable(kind="toy", name=location, snapshot=str(len(states)))
    return Snapshot(pinned, location, tuple(columns), ("date",), ("date",), tuple(files))
