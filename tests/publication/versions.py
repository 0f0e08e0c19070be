"""Versions of one day to publish: eight files each, and every row says of which version and which file it is."""

import errno
import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skewless.publication.folder_output import FolderOutput
from skewless.publication.places import beside
from skewless.publication.publish import publishing
from skewless.publication.records import published_path
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless_leases import Turns, open_store
from tests.publication.days import NOW, commit_result, prepared

FILES, FILE_ROWS = 8, 500

#: What a reader got: one version whole; an error that says that a file is not there; one that says that
#: there is none at all, from pyarrow, which leaves out what goes while it lists; or what no reader may ever get.
Outcome = Literal["whole", "not found", "none listed", "torn"]


def ready(folder: Path, out: Path, version: int) -> RunDirectory:
    """A validated run that only has to be published, its result the version given, which is its turn too."""
    run = prepared(folder, out, version)
    result = run.new_attempt(RESULT_STEP)
    Path(result.path("files")).mkdir(parents=True)
    files = []
    for part in range(FILES):
        path = result.path(f"files/{part}.parquet")
        rows = {"version": [version] * FILE_ROWS, "part": [part] * FILE_ROWS}
        pq.write_table(pa.table(rows), path, compression="none", use_dictionary=False)
        files.append(result.described("result", path, FILE_ROWS, copied=True))
    commit_result(run, result, files, rows=FILES * FILE_ROWS, keys=FILES * FILE_ROWS)
    return run


def publish_version(run: RunDirectory) -> list[str]:
    return list(publishing(run, FolderOutput(run, NOW), Turns(open_store(f"{beside(run.job().output_path)}/turns"))))


def digests(contents: Iterable[bytes]) -> list[str]:
    return sorted(sha256(content).hexdigest() for content in contents)


def day_of(run: RunDirectory) -> Path:
    return Path(published_path(run.job()))


def judged(rows: pa.Table) -> Outcome:
    """Whether rows that a reader got are those of one version, all of them and each once."""
    if not {"version", "part"} <= set(rows.column_names) or len(pc.unique(rows["version"])) != 1:
        return "torn"
    counts = rows.group_by("part").aggregate([([], "count_all")])
    whole = counts.num_rows == FILES and set(counts["count_all"].to_pylist()) == {FILE_ROWS}
    return "whole" if whole else "torn"


def refused(err: Exception) -> Outcome:
    if "No match for FieldRef" in str(err):
        return "none listed"
    says = (os.strerror(errno.ENOENT), "No files found that match", "expanded paths were empty")
    missing = isinstance(err, FileNotFoundError) or any(words in str(err) for words in says)
    return "not found" if missing else "torn"
