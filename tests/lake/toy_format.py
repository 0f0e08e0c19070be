"""A format of tables: Parquet files, and numbered lists of those of each part. As much as a format has to be.

Lines that tell the product of it: one in ``skewless.spec.input.TABLES``, one in ``skewless_lake.formats.FORMATS``, and
one in ``skewless_spark.sources.lake.tables.READERS``.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from skewless.documents.job import PinnedTable
from skewless.errors import SpecError
from skewless.run.directory import RunDirectory
from skewless.run.publication.records import Overtaken, identity_of
from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless_lake.commits import Commit, attempts, identity_in
from skewless_lake.new_files import ResultFile
from skewless_lake.staged import OutputPart, StagedFile, StagedResult
from skewless_spark.sources.lake.snapshot import Snapshot, TableColumn, TableFile, kinds_of
from skewless_spark.sources.lake.tables import TableReader

State = dict[str, dict[str, Any]]


def states_of(folder: Path) -> list[State]:
    """All states of a table, the oldest first: by part its files, and what is said of it."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("state-*.json"))]


def _folder(target: OutputPart) -> Path:
    return Path(target.path.removeprefix("toy+file://"))


def _newest(folder: Path) -> tuple[int, State]:
    states = states_of(folder)
    return len(states), states[-1] if states else {}


def _committed(folder: Path, number: int, state: State) -> bool:
    draft = folder / f"{uuid.uuid4()}.draft"
    draft.write_text(json.dumps(state))
    try:
        os.link(draft, folder / f"state-{number:04d}.json")
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


# Results.


def fitting_table(target: OutputPart) -> Path:
    """Any folder fits."""
    return _folder(target)


def stage(
    target: OutputPart, columns: pa.Schema, files: Sequence[ResultFile], about: Mapping[str, str],
    begin: Callable[[Sequence[str]], object],
) -> StagedResult:  # fmt: skip
    """New files, which no state names."""
    del about
    folder = _folder(target)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [f"{uuid.uuid4()}.parquet" for _ in files]
    begin(paths)
    for path, file in zip(paths, files, strict=True):
        pq.write_table(pa.Table.from_batches(file.batches()).cast(columns), folder / path)
    staged = [
        StagedFile(path=path, rows=file.rows, size_bytes=(folder / path).stat().st_size)
        for path, file in zip(paths, files, strict=True)
    ]
    return StagedResult(table=target.path, location=str(folder), files=tuple(staged))


def staged_paths(target: OutputPart, staged: StagedResult) -> dict[str, int]:
    """In the folder."""
    return {str(_folder(target) / file.path): file.size_bytes for file in staged.files}


def committing(
    run: RunDirectory, target: OutputPart, turn: int, staged: StagedResult, about: Mapping[str, str]
) -> Generator[str, None, Commit]:
    """The next number, whoever draws it first."""
    for _ in attempts(target.path):
        number, state = _newest(_folder(target))
        stands = state.get(target.part.name)
        if stands is not None and stands["turn"] >= turn:
            by = identity_in(stands["about"])
            return Commit(stands["number"]) if by == identity_of(run) else Commit(None, Overtaken(by=by, turn=turn))
        yield "loaded"
        files = {file.path: file.rows for file in staged.files}
        entry = {"turn": turn, "number": number + 1, "about": dict(about), "files": files}
        if _committed(_folder(target), number + 1, {**state, target.part.name: entry}):
            yield "committed"
            return Commit(number + 1)
    raise AssertionError


def latest_turn(target: OutputPart) -> int:
    """As the newest state has it."""
    return int(_newest(_folder(target))[1].get(target.part.name, {"turn": 0})["turn"])


def newest(target: OutputPart) -> dict[str, tuple[int, dict[str, str]]]:
    """As the newest state has them."""
    return {part: (one["number"], one["about"]) for part, one in _newest(_folder(target))[1].items()}


def roll_back(target: OutputPart, turn: int, at: str) -> Mapping[str, str]:
    """The part as it was before its newest publication."""
    folder, part = _folder(target), target.part.name
    had = [state[part] for state in states_of(folder) if part in state]
    before = [one for one in had if one["number"] < had[-1]["number"]]
    if not before:
        raise SpecError(str(folder), f"two publications of {part}", f"{len(had)}")
    number, state = _newest(folder)
    about = {**before[-1]["about"], "at": at}
    assert _committed(
        folder, number + 1, {**state, part: {**before[-1], "turn": turn, "number": number + 1, "about": about}}
    )
    return {**about, "snapshot": str(number + 1)}


def unnamed(target: OutputPart, others: Collection[str], staged: Collection[str], digest: str) -> list[str]:
    """What no state names."""
    del digest
    named = {path for state in states_of(_folder(target)) for one in state.values() for path in one["files"]}
    return [path for path in {*others, *staged} if path not in named and (_folder(target) / path).exists()]


def remove(target: OutputPart, paths: Collection[str], digest: str) -> None:
    """From the folder."""
    del digest
    for path in paths:
        (_folder(target) / path).unlink(missing_ok=True)


# Inputs.


def _snapshot(
    given: Input, part: Part, root: str, location: str, conditions: object
) -> tuple[Snapshot, dict[str, bytes]]:
    del given, part, root, conditions
    folder = Path(location)
    number, state = _newest(folder)
    files = [
        TableFile(str(folder / path), (folder / path).stat().st_size, {"date": name}, rows=rows)
        for name, one in state.items()
        for path, rows in one["files"].items()
    ]
    kinds = kinds_of(pq.read_schema(files[0].path))
    columns = [TableColumn(name, kind) for name, kind in (kinds | {"date": "date"}).items()]
    pinned = PinnedTable(kind="toy", name=location, snapshot=str(number))
    return Snapshot(pinned, location, tuple(columns), ("date",), ("date",), tuple(files)), {}


def _rewrites(snapshot: Snapshot, root: str) -> Iterator[Any]:
    del snapshot, root
    return iter(())


READER = TableReader(_snapshot, _rewrites, lambda _: {}, ("field ids", "none", "rewrite the file"))
