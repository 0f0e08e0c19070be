"""Runs that are ready to be published in a table, made without Spark, and what readers of the table see."""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from skewless.documents.commit import CommittedFile
from skewless.documents.job import PinnedTable
from skewless.documents.ledger import balance
from skewless.documents.quality import QualityReport, Quarantine
from skewless.run.directory import QUALITY_REPORT, QUALITY_STEP, RESULT_STEP, RunDirectory
from skewless.spec.part import Part
from skewless.spec.result import QUARANTINE_COLUMNS, Output, Quality
from skewless_lake.catalogs import open_catalog
from skewless_lake.publication import publish_run
from skewless_lake.staged_files import HELD, KEPT, OutputPart, StagedResult
from skewless_lake.staging import ResultFile, batches_of, stage_result
from tests.publication.days import commit_quality
from tests.unit import synthetic

NOW = dt.datetime(2026, 11, 21, 3, 0, tzinfo=dt.UTC)
DAY = dt.date(2026, 11, 20)
KINDS = ("iceberg", "delta")
TABLE = "local.marts.clicks"
#: The tables that races are run on, by kind; of Delta, below the root.
TABLES = {
    "iceberg": TABLE,
    "postgresql": "shared.marts.clicks",
    "rest": "rest.marts.clicks",
    "hive": "hive.marts.clicks",
    "delta": "marts/clicks",
}
#: The tables of all kinds of catalogs.
ICEBERG = {kind: name for kind, name in TABLES.items() if kind != "delta"} | {
    kind: f"{kind}.marts.clicks" for kind in ("glue", "dynamodb", "s3")
}


def output_of(kind: str, root: Path, **fields: Any) -> tuple[Output, str]:
    """The output section of a spec, and ``Job.output_path`` as ``prepare`` writes it."""
    if kind in ICEBERG:
        return Output.model_validate(
            {"format": "iceberg", "path": ICEBERG[kind], **fields}
        ), f"iceberg://{ICEBERG[kind]}"
    if kind == "folder":
        return Output.model_validate({"path": str(root / "out"), **fields}), str(root / "out")
    if kind == "bucket":
        path = f"s3://lake/{root.name}/clicks"
        return Output.model_validate({"format": "delta", "path": path, **fields}), f"delta+{path}"
    path = str(root / "marts" / "clicks")
    return Output.model_validate({"format": "delta", "path": path, **fields}), f"delta+file://{path}"


def result_table(text: str, keys: int = 3) -> pa.Table:
    columns = {"key": [f"k{number}" for number in range(keys)], "by": [text] * keys}
    return pa.table(columns, schema=pa.schema([("key", pa.string()), ("by", pa.string())]))


def committed(
    folder: Path,
    root: Path,
    kind: str,
    result: pa.Table,
    *,
    turn: int = 1,
    day: dt.date = DAY,
    in_files: int = 2,
    pinned: PinnedTable | None = None,
    quality: Quality | None = None,
    **output: Any,
) -> RunDirectory:
    """A run whose result is committed, in two files or more."""
    run = RunDirectory(str(folder))
    section, output_path = output_of(kind, root, **output)
    job = synthetic.job([], output_path=output_path)
    spec = job.spec.model_copy(update={"output": section, "quality": quality or job.spec.quality})
    of_run = {"spec": spec, "turn": turn, "date": day, "root": str(root)}
    of_run["source"] = job.source.model_copy(update={"pinned": pinned})
    run.write_once("job.json", job.model_copy(update=of_run))
    attempt = run.new_attempt(RESULT_STEP)
    files, share = [], -(-len(result) // in_files)
    for number in range(in_files):
        rows = result[number * share : (number + 1) * share]
        path = Path(attempt.path(f"part-{number}.parquet"))
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path)
        files.append(attempt.described("result", str(path), len(rows), copied=True))
    attempt.commit(files, {"rows": 2 * len(result), "keys": len(result)})
    return run


#: What these tests have staged of a run; validation puts it into its verdict.
STAGED = "staged.json"


def staged(run: RunDirectory) -> StagedResult:
    if run.exists(STAGED):
        return run.read(STAGED, StagedResult)
    files = run.committed(RESULT_STEP).of_kind("result")
    columns = pq.read_schema(run.path(files[0].path))

    def source(file: CommittedFile) -> ResultFile:
        return ResultFile(file.rows, lambda: batches_of(pq.ParquetFile(run.path(file.path))))

    sources = [source(file) for file in files]
    run.write_once(STAGED, stage_result(run, columns, sources, OutputPart.of(run.job())))
    return run.read(STAGED, StagedResult)


def judge(run: RunDirectory, *, success: bool = True) -> RunDirectory:
    documents = {KEPT.removesuffix(".json"): staged(run)} if success else {}
    commit_quality(run, success=success, **documents)
    return run


def ready(folder: Path, root: Path, kind: str, text: str, **how: Any) -> RunDirectory:
    return judge(committed(folder, root, kind, result_table(text), **how))


def publish(folder: Path, root: Path, kind: str, rows: pa.Table | str, **how: Any) -> RunDirectory:
    run = committed(folder, root, kind, result_table(rows) if isinstance(rows, str) else rows, **how)
    publish_run(judge(run), NOW)
    return run


def apart(folder: Path, root: Path, kind: str, text: str, held: int = 1, *, lost: int = 0, **how: Any) -> RunDirectory:
    """A run that is ready to be published, of whose three keys the first ones are in quarantine."""
    bound = {"type": "expect_column_values_to_not_be_null", "severity": "quarantine", "at_most": 3}
    quality = Quality.model_validate({"expectations": [{**bound, "kwargs": {"column": "by"}}]})
    run = committed(folder, root, kind, result_table(text), quality=quality, **how)
    rows = result_table(text)

    def stage(rows: pa.Table, target: OutputPart) -> StagedResult:
        return stage_result(run, rows.schema, [ResultFile(len(rows), lambda: iter(rows.to_batches()))], target)

    attempt, target = run.new_attempt(QUALITY_STEP), OutputPart.of(run.job())
    wrong = rows[:held]
    for name in QUARANTINE_COLUMNS:
        wrong = wrong.append_column(name, pa.array([f"{name} of {text}"] * held, pa.string()))
    attempt.write(KEPT, stage(rows[held + lost :], target) if held else staged(run))
    attempt.write(HELD, stage(wrong, target.quarantine))
    ledger, quarantine = balance(run.job(), [], 0), Quarantine(keys=held) if held else None
    report = QualityReport(success=True, keys=3, checks=(), ledger=ledger, quarantine=quarantine)
    attempt.write(QUALITY_REPORT, report)
    attempt.commit([], {})
    return run


def part_of(kind: str, root: Path) -> OutputPart:
    output, path = output_of(kind, root)
    return OutputPart(output, path, str(root), Part(DAY))


def read(kind: str, root: Path) -> pa.Table:
    if kind != "delta":
        catalog, _, name = ICEBERG[kind].partition(".")
        found = open_catalog(catalog, str(root)).load_table(name).scan().to_arrow()
    else:
        found = pa.table(DeltaTable(str(root / "marts" / "clicks")).to_pyarrow_table())
    return found


def seen(kind: str, root: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in read(kind, root).to_pylist():
        found.setdefault(str(row["date"]), []).append(row["by"])
    return {day: sorted(found[day]) for day in sorted(found)}
