"""A release: a run of its own, beside that whose keys it lets in, with the same result and a turn of its own.

So it is published, superseded, shown and pruned as any run is; and what the first run has published stays as it is.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fsspec.implementations.local import LocalFileSystem

from skewless.documents.commit import StepCommit
from skewless.documents.job import Job
from skewless.errors import SpecError
from skewless.run.directory import DOCUMENT, RESULT_STEP, SPEC_DOCUMENT, RunDirectory, commit_path, stage_step
from skewless.run.publication.records import Identity, identity_of
from skewless.run.step_names import RELEASE


def run_of(by: Identity | None, where: str) -> RunDirectory:
    """The run that has published a day; a ``SpecError`` if that is none of ours (None), or if it is gone."""
    if by is None:
        raise SpecError.saying(where, "no run has published here, or its manifest is gone", "run the day first")
    run = RunDirectory(by.run)
    if not run.exists("job.json") or identity_of(run).job != by.job:
        raise SpecError.saying(where, f"the run that has published it is no longer in {run}", "run the day again")
    return run


def keys_named(given: Sequence[str], columns: int) -> list[tuple[str | None, ...]]:
    """Keys as somebody names them: a text, or a JSON list with a text or null for each key column.

    Raises:
        SpecError: one is no key of so many columns.
    """
    found = []
    for text in given:
        try:
            values = json.loads(text) if text.startswith("[") else [text]
        except ValueError:
            values = [text]
        if len(values) != columns or not all(one is None or isinstance(one, str) for one in values):
            form = '["TEXT", null]'
            raise SpecError("KEY", f"a text, or for {columns} key columns a JSON list such as {form}", repr(text)[:120])
        found.append(tuple(values))
    return found


def begin_release(
    run: RunDirectory, keys: Iterable[tuple[str | None, ...]], draw: Callable[[Job], int], group: str,
    shown: str = "",
) -> RunDirectory:  # fmt: skip
    """The run that lets these keys of a run in, with all of that but its verdict.

    The same keys of the same run give the same one, whoever calls, and whatever was done of it before.

    Args:
        draw: draws a turn of a job, after that which is shown.
        shown: of a table, the snapshot or version that shows the run: after a rollback it is another one.
    """
    job = run.job()
    asked = json.dumps([identity_of(run).job, sorted(keys, key=repr), *([shown] if shown else [])])
    name = f"{str(run).partition(RELEASE)[0]}{RELEASE}{hashlib.sha256(asked.encode()).hexdigest()[:12]}"
    into = RunDirectory(name, group)
    if not into.exists("job.json"):
        into.begin(job.model_copy(update={"turn": draw(job)}))
    for path in _documents(run):
        _copy(run, into, path)
    for step in (*map(stage_step, range(run.committed_stages())), RESULT_STEP):
        _copy_step(run, into, run.committed(step))
    return into


def _documents(run: RunDirectory) -> list[str]:
    """Plans, decisions and the spec of a job that was given in Python."""
    folders = (f"{run.root}/plans", f"{run.root}/decisions")
    found = [str(path).removeprefix(f"{run.root}/") for folder in folders for path in run.fs.glob(f"{folder}/*.json")]
    return [*sorted(found), *([SPEC_DOCUMENT] if run.exists(SPEC_DOCUMENT) else [])]


def _copy_step(run: RunDirectory, into: RunDirectory, commit: StepCommit) -> None:
    """A step with its documents, and the result with its files; the commit last, as only that makes them count."""
    if into.exists(commit_path(commit.step)):
        return
    for file in commit.files:
        if file.kind == DOCUMENT or commit.step == RESULT_STEP:
            run.verify(file)
            _copy(run, into, file.path)
    into.write_once(commit_path(commit.step), commit)


def _copy(run: RunDirectory, into: RunDirectory, path: str) -> None:
    """Copy a file, which nobody sees before it is whole: an object store does so by itself."""
    target, of_disk = f"{into.root}/{path}", isinstance(into.fs, LocalFileSystem)
    into.fs.makedirs(target.rpartition("/")[0], exist_ok=True)
    draft = f"{target}.{secrets.token_hex(8)}.draft" if of_disk else target
    with run.fs.open(f"{run.root}/{path}", "rb") as source, into.fs.open(draft, "wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)
    if of_disk:
        Path(draft).replace(target)
