"""What faults of tables happen in: a table with two published days, and a run that is to replace one of them.

Everything here is done in processes that end with it: the clients of tables and of object stores do not survive a fork.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.table import Table
from pyspark.sql.pandas.types import from_arrow_schema

from skewless.documents.ledger import balance
from skewless.documents.quality import Check, QualityReport
from skewless.errors import LostRaceError
from skewless.run.directory import QUALITY_REPORT, QUALITY_STEP, RESULT_STEP, RunDirectory
from skewless.run.objects.location import open_location
from skewless.run.publication.publish import require_passed
from skewless.run.publication.records import identity_of, record_of
from skewless.spec.result import Output
from skewless_lake.delta.tables import location_of
from skewless_lake.formats import told
from skewless_lake.iceberg.publishing import NOT_AUDITED
from skewless_lake.iceberg.snapshots import ours, summary_of
from skewless_lake.iceberg.tables import find_table
from skewless_lake.publication import roll_back, turns_of
from skewless_lake.refusals import told_plainly
from skewless_lake.staged import OutputPart
from skewless_lake.staging import staged_paths
from skewless_spark.result.publishing import publish_now
from skewless_spark.result.staging import staged
from skewless_spark.sources.worker_files import SCHEMA_NOTE
from tests.unit import synthetic

DAY, DAY_BEFORE = dt.date(2026, 11, 20), dt.date(2026, 11, 19)
BUCKET = "s3://lake"
#: The runs: one of the other day, the one that is published, and the one that faults happen to.
BEFORE, OLD, NEW = "before", "old", "new"
_TURNS = {BEFORE: 1, OLD: 2, NEW: 3}
_KEYS, _FILES = 12, 2
_COLUMNS = pa.schema([("key", pa.string()), ("by", pa.string())])

#: What readers see: by day, key and run of each row.
Seen = dict[str, list[tuple[str, str]]]


class Scene(NamedTuple):
    """A place with a table.

    Attributes:
        root: the data root, on the disk: catalog and turns are there, and if there is no bucket, all the rest.
        kind: of the table: ``iceberg`` or ``delta``.
        bucket: whether the table and the directory of the run are in a bucket.
    """

    root: str
    kind: str
    bucket: bool

    @property
    def run(self) -> RunDirectory:
        return self.directory(NEW)

    def directory(self, name: str) -> RunDirectory:
        return RunDirectory(f"{BUCKET if self.bucket else self.root}/runs/{name}")

    @property
    def output(self) -> tuple[Output, str]:
        if self.kind == "iceberg":
            name = f"{'bucket' if self.bucket else 'local'}.marts.clicks"
            return Output.model_validate({"format": "iceberg", "path": name}), f"iceberg://{name}"
        path = f"{BUCKET}/marts/clicks" if self.bucket else f"{self.root}/marts/clicks"
        return Output.model_validate(
            {"format": "delta", "path": path}
        ), f"delta+{path}" if self.bucket else f"delta+file://{path}"

    def environment(self, client: Mapping[str, str]) -> dict[str, str]:
        """The variables by which a process reaches the table, given those of a client of the bucket."""
        if not self.bucket:
            return {}
        catalog = "PYICEBERG_CATALOG__BUCKET__"
        return {
            **client,
            "AWS_ALLOW_HTTP": "true",
            f"{catalog}URI": f"sqlite:///{self.root}/bucket.db",
            f"{catalog}WAREHOUSE": f"{BUCKET}/warehouse",
            f"{catalog}S3__ENDPOINT": client["AWS_ENDPOINT_URL"],
            # pyiceberg would ask Amazon for it.
            f"{catalog}S3__REGION": client["AWS_REGION"],
            # Shorter than an answer is late.
            f"{catalog}S3__REQUEST_TIMEOUT": "1",
        }


def begin(scene: Scene, name: str) -> None:
    section, output_path = scene.output
    job = synthetic.job([], output_path=output_path)
    spec = job.spec.model_copy(update={"output": section})
    day = DAY_BEFORE if name == BEFORE else DAY
    update = {"spec": spec, "turn": _TURNS[name], "date": day, "root": scene.root}
    scene.directory(name).write_once("job.json", job.model_copy(update=update))


def merge(scene: Scene, name: str = NEW) -> None:
    """Commit the result of a run: rows that name the run, in two files, as Spark notes their columns.

    Raises:
        UnreachableError: a file cannot be written; the entry would tell so of Spark's workers.
    """
    run = scene.directory(name)
    if not run.commit_of(RESULT_STEP):
        with told_plainly(str(run)):
            _merge(run, name)


def _merge(run: RunDirectory, name: str) -> None:
    attempt, files, share = run.new_attempt(RESULT_STEP), [], _KEYS // _FILES
    note = {SCHEMA_NOTE: from_arrow_schema(_COLUMNS).json().encode()}
    rows = pa.table({"key": _keys(), "by": [name] * _KEYS}, schema=_COLUMNS).replace_schema_metadata(note)
    for number in range(_FILES):
        path = f"{run.root}/{attempt.folder}/data/part-{number:05d}.parquet"
        run.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        with run.fs.open(path, "wb") as out:
            pq.write_table(rows.slice(number * share, share), out)
        files.append(attempt.described("result", path, share, copied=True))
    with suppress(LostRaceError):
        attempt.commit(files, {"rows": 2 * _KEYS, "keys": _KEYS})


def validate(scene: Scene, name: str = NEW) -> None:
    run = scene.directory(name)
    if run.quality() is None:
        found = staged(run)
        rows = [row for path in staged_paths(run.job(), found) for row in _rows_of(path)]
        success = sorted(rows) == [(key, name) for key in _keys()]
        check = Check(
            subject="result", expectation="rows_of_the_run", column="", success=success, observed=str(len(rows)),
            sentence=f"rows_of_the_run: {rows[:3]}",
        )  # fmt: skip
        attempt, ledger = run.new_attempt(QUALITY_STEP), balance(run.job(), [], 0)
        attempt.write(QUALITY_REPORT, QualityReport(success=success, keys=len(rows), checks=(check,), ledger=ledger))
        with suppress(LostRaceError):
            attempt.commit([], {"checks": 1, "failed": int(not success)})
    report = run.quality()
    assert report is not None
    require_passed(run, report)


def publish(scene: Scene, name: str = NEW) -> None:
    publish_now(scene.directory(name))


def go_back(scene: Scene) -> None:
    """``skewless rollback`` of the day."""
    roll_back(OutputPart.of(scene.run.job()), dt.datetime.now(tz=dt.UTC))


def history(scene: Scene) -> None:
    for name in (BEFORE, OLD):
        begin(scene, name)
        for step in (merge, validate, publish):
            step(scene, name)


def seen(scene: Scene) -> Seen:
    """What a reader of the table sees; nothing, if there is none."""
    target, found = OutputPart.of(scene.run.job()), Seen()
    if scene.kind == "iceberg":
        table = find_table(target)
        rows = table.scan().to_arrow() if table is not None else None
    else:
        there = DeltaTable.is_deltatable(location_of(target))
        rows = pa.table(DeltaTable(location_of(target)).to_pyarrow_table()) if there else None
    for row in rows.to_pylist() if rows is not None else ():
        found.setdefault(str(row["date"]), []).append((row["key"], row["by"]))
    return {day: sorted(found[day]) for day in sorted(found)}


def days(**by_day: str) -> Seen:
    names = {"before": str(DAY_BEFORE), "day": str(DAY)}
    return {names[day]: [(key, run) for key in _keys()] for day, run in by_day.items()}


def check_record(scene: Scene) -> None:
    """The run has published once: one commit of the table's history is its own, and the record names that one."""
    run, target = scene.run, OutputPart.of(scene.run.job())
    me, record = identity_of(run), record_of(run)
    assert record is not None, "no record of the publication"
    assert record.superseded is None, record
    if scene.kind == "iceberg":
        table = find_table(target)
        assert table is not None
        mine = [one.snapshot_id for one, about in ours(table) if about["run-digest"] == me.job]
        _check_staged(table)
    else:
        log = DeltaTable(location_of(target)).history()
        mine = [int(one["version"]) for one in log if told(one).get("run-digest") == me.job]
    assert mine == [record.snapshot], f"published in {mine}, and the record says {record.snapshot}"
    standing = turns_of(target).look(target.part.name)
    assert (standing.finished, standing.finisher) == (_TURNS[NEW], str(me)), standing


def _check_staged(table: Table) -> None:
    """At most one staged snapshot is left, of an attempt that was killed; a publication removes it after a week."""
    left = [one for one in table.snapshots() if summary_of(one).get("quality") == NOT_AUDITED]
    assert len(left) <= 1, f"{len(left)} staged snapshots are left"


def _keys() -> list[str]:
    return [f"k{number:02d}" for number in range(_KEYS)]


def _rows_of(path: str) -> list[tuple[str, str]]:
    fs, inner = open_location(path)
    with fs.open(inner, "rb") as opened:
        return [(row["key"], row["by"]) for row in pq.ParquetFile(opened).read().to_pylist()]
