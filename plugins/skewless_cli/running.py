"""The commands that read input or compute: all that they need of Spark is imported here, and here only."""

import datetime as dt
import errno
import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic_core import PydanticCustomError
from pyspark.sql import SparkSession
from rich.console import Console

from skewless.documents.job import Job
from skewless.documents.quality import Comparison
from skewless.documents.stage_report import Decision, StageReport
from skewless.errors import InputError, MachineError, QualityError, SpecError, counted
from skewless.history import input_checks
from skewless.planner.engine_choice import fits_one_process
from skewless.publication.records import record_of
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.run.folder import RUN_GROUP, absolute_root, plain_path, runs_below
from skewless.spec.part import Part
from skewless.spec.reading import parse_spec
from skewless.spec.spec import JobSpec, input_of
from skewless_cli import run_view, say
from skewless_cli.first_spec.draft import (
    DAG,
    adopted_text,
    plain_name,
    query_of_program,
    spec_text,
    statement_of,
    table_name,
    write_new,
)
from skewless_cli.first_spec.layout import located
from skewless_cli.first_spec.profile import profile_of
from skewless_lake.publication import require_fitting, roll_back
from skewless_lake.staged_files import OutputPart
from skewless_spark.comparison import check_shadow, compare, compared_columns, other_side
from skewless_spark.entries.pipeline import Watcher, run_pipeline, run_stages
from skewless_spark.prepare.earlier_runs import find_stale, restating_spec
from skewless_spark.prepare.freezing import check_spec, freeze
from skewless_spark.prepare.prepare import prepare, require_input
from skewless_spark.result.merge import merge_states, publish_now
from skewless_spark.session.session import build_session, start_soon
from skewless_spark.session.spark_errors import exit_code_of, sentence_for
from skewless_spark.session.step_measures import spark_step
from skewless_spark.sources.formats.texts import require_declared_types
from skewless_spark.sources.locations import output_location


def check_job(spec: JobSpec, where: str, part: Part, root: str) -> tuple[str, Job]:
    """Check a spec and its input; what a run of it would read, in sentences, and its job."""
    check_spec(spec, where)
    check_shadow(spec, where)
    job = freeze(spec, part.date, root, where, hour=part.hour)
    if spec.output.is_table:
        for target in OutputPart.all_of(job):
            require_fitting(target)
    if "://" not in job.output_path.removeprefix("delta+file://"):
        _require_room(job, where)
    if job.source.format in {"csv", "json"} and job.source.options.get("multiLine") != "true":
        declared, file = spec.input.columns or {}, next((unit for unit in job.units if unit.size_bytes), None)
        if file is not None and any(declared.get(name, "string") != "string" for name in job.source.reads):
            with _session(f"skewless check {spec.name}", None) as spark:
                require_declared_types(spark, job.source, file, where)
    waves = ", ".join(f"{job.wave_rows(stage):,}" for stage in range(len(job.waves))) or "no"
    window = ""
    if job.window is not None:
        names = ", ".join(span.name for span in job.window.windows)
        late = f", {job.window.ignored_files:,} late files left out" if job.window.ignored_files else ""
        kept = [(part.base_states, part.files) for part in job.window.parts if part.base]
        window = f"; window of {names}: {counted(len(job.window.parts), 'part')} with files{late}"
        if kept:
            states, own = (sum(file.size_bytes for of_part in kept for file in of_part[at]) for at in (0, 1))
            window += f"; {job.window.unchanged_rows:,} rows in kept states of {states:,} bytes, for files of {own:,}"
    fixed = re.search(r"20\d\d([-_/]?)[01]\d\1[0-3]\d", spec.input.path)
    dated = f" warned: its path names {fixed[0]} in each run; {{date}} is the day that it computes." if fixed else ""
    small = " So few rows take DuckDB or polars seconds in one process." if fits_one_process(job) else ""
    warnings = require_input(tuple(input_checks(job)), "the input was listed, and not read")
    told = [f"{job.extent}; waves of {waves} rows{window}.{small}{dated}", *(f"warned: {one}." for one in warnings)]
    return " ".join(told), job


def _require_room(job: Job, where: str) -> None:
    folder = Path(os.path.realpath(plain_path(job.output_path.removeprefix("delta+"))))
    above = next(one for one in folder.parents if one.exists())
    try:
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        Path(tempfile.mkdtemp(prefix=".skewless-check-", dir=above)).rmdir()
    except OSError as err:
        fact, hint = f"{folder}, below {above}: {err.strerror}", "name another one, or give this user the right"
        raise MachineError(f"{where}, field output.path", "a folder that can be written", fact, hint) from None


def begin_job(path: str, root: str, name: str | None, folder: Path) -> tuple[list[Path], str]:
    """Write a first spec of an input and the file of its DAG; their paths, and what a check of the spec says."""
    profile = profile_of(located(path, root), root, "INPUT")
    name = name or plain_name(f"{table_name(profile.fields['path'])}_by_{profile.key_candidates[0].name}", "job")
    text, where = spec_text(profile, name, _first_output(root, name)), f"spec {folder / name}.yaml"
    spec = parse_spec(text, where)
    part = Part(profile.day) if profile.day else spec.schedule.part_of(dt.datetime.now(tz=dt.UTC))
    checked = f"good for {part}. {check_job(spec, where, part, root)[0]}"
    return write_new(folder, {f"{name}.yaml": text, f"{name}_dag.py": DAG.format(name=name)}), checked


def _first_output(root: str, name: str) -> dict[str, Any]:
    """On an object store, results are published in a table."""
    return {**({"format": "delta"} if "://" in root else {}), "path": f"results/{name}"}


def adopt_job(
    job: Path, tables: Sequence[str], beside: str | None, root: str, name: str | None, folder: Path
) -> tuple[list[Path], str]:
    """Write a spec of a job's query, to be run beside it, and the file of its DAG; their paths, and the next command.

    Args:
        tables: ``NAME=PATH`` or ``NAME=FORMAT:PATH``; all others of the query are those of Spark's catalog.
        beside: the old result, as ``shadow.with`` names it; by default the table that the job writes.
    """
    try:
        source = job.read_text(encoding="utf-8")
        statement = statement_of(query_of_program(source) if job.suffix == ".py" else source)
    except (OSError, UnicodeDecodeError) as err:
        raise SpecError.saying(
            str(job), f"the file cannot be read ({getattr(err, 'strerror', err)})", "name another"
        ) from None
    except PydanticCustomError as err:
        context = err.context or {}
        raise SpecError(str(job), str(context["required"]), str(context["came"]), context["hint"]) from None
    places = dict(one.partition("=")[::2] for one in tables)
    if unknown := next((one for one in places if one not in statement.tables or not places[one]), None):
        raise SpecError("--table", f"NAME=PATH for tables of the query: {', '.join(statement.tables)}", repr(unknown))
    sources = {
        one: {key: value for key, value in input_of(places.get(one) or f"catalog:{one}").items() if value != "parquet"}
        for one in statement.tables
    }
    name = name or plain_name(statement.target.rpartition(".")[2] or job.stem, "job")
    text = adopted_text(name, statement, sources, _first_output(root, name), beside or statement.other or "none")
    parse_spec(text, str(job))
    if not (beside or statement.other):
        raise SpecError("--beside", f"the result that {job} has, as parquet:/lake/old/{{date}}", "none")
    paths = write_new(folder, {f"{name}.yaml": text, f"{name}_dag.py": DAG.format(name=name)})
    day = f" --date {dt.datetime.now(tz=dt.UTC).date() - dt.timedelta(days=1)}" if "{date" in text else ""
    return paths, " && ".join(f"skewless {verb} {shlex.quote(str(paths[0]))}{day}" for verb in ("check", "run"))


def roll_back_part(spec: JobSpec, where: str, part: Part, root: str) -> str:
    """Publish again what the newest publication of a part has replaced; where that came from, in words."""
    if not spec.output.in_catalog:
        raise SpecError.saying(
            f"{where}, field output.path", "a replaced version of a folder is kept beside it",
            "exchange the two as docs/operate.md shows",
        )  # fmt: skip
    path = output_location(spec, part, root, where)
    about = roll_back(OutputPart(spec.output, path, absolute_root(root), part), dt.datetime.now(tz=dt.UTC))
    return f"{path}: {part} is again as {about['run']} has published it ({about['snapshot']}, {about['rolled-back']})."


def run_job(
    run: RunDirectory, part: Part, spec: JobSpec, where: str, root: str, master: str | None, console: Console
) -> None:
    """Run a job to its end, from the last commit in its run directory on."""
    name, own = f"skewless {spec.name}", SparkSession.getActiveSession() is None
    if own and record_of(run) is None:
        start_soon(name, master)
    with spark_step(run, "prepare"):
        prepare(run, spec, part.date, root, where, hour=part.hour, master=master)
    if record_of(run):
        publish_now(run)  # an earlier call published it: this checks that all of it is there, and needs no Spark
        return
    spark = build_session(name, master)
    try:
        run_pipeline(spark, run, _reporter(console))
    finally:
        if own:  # a process that had a session before keeps it
            spark.stop()


def _reporter(console: Console) -> Watcher:
    def show(report: StageReport, decision: Decision) -> None:
        if console.is_terminal:
            say(
                console,
                f"stage {report.stage}: {report.processed_rows:,} rows processed, {report.backlog_rows:,} left over, "
                f"{report.forwarded_rows:,} forwarded, max/mean {report.balance_words}\n  {decision.sentence}",
            )

    return show


def restate_job(
    spec: JobSpec, where: str, days: tuple[dt.date, dt.date], root: str, master: str | None, console: Console,
    report: dict[str, Any], *, dry_run: bool,
) -> None:  # fmt: skip
    """Compute published results again whose window covers a part that changed, oldest first, and publish each once.

    A result that cannot be computed, or that fails its checks, stays as it is, and hinders no other one. If this was
    ended at any moment, it goes on when it is called again.

    Args:
        report: is filled with what ``--json`` prints.
    """
    spec = restating_spec(spec, where)
    runs = f"{runs_below(root)}/{spec.name}"
    stale, up_to_date = find_stale(spec, days, root, where, runs)
    for result in stale:
        say(console, f"{result.part}: its result is not up to date")
        for name, reasons in result.reasons.items():
            for reason in reasons:
                say(console, f"  {name}: {reason}" if name else f"  {reason}")
    say(console, f"{len(stale):,} results to compute, {up_to_date:,} up to date")
    lines: list[dict[str, Any]] = [
        {"part": part.name, "date": str(part.date), "hour": part.hour, "reasons": reasons, "run_name": run_name}
        for part, reasons, run_name in stale
    ]
    report |= {"dry_run": dry_run, "up_to_date": up_to_date, "results": lines}
    if dry_run or not stale:
        return
    left: dict[Part, Exception] = {}
    with _session(f"skewless restate {spec.name}", master):
        for result, line in zip(stale, lines, strict=True):
            run = RunDirectory(f"{runs}/{result.run_name}", os.environ.get(RUN_GROUP, ""))
            try:
                run_job(run, result.part, spec, where, root, master, console)
            except Exception as err:
                if exit_code_of(err) not in {InputError.exit_code, QualityError.exit_code}:
                    raise  # it is about the job's surroundings, and not about this part
                left[result.part], line["left"] = err, sentence_for(err)
                say(console, f"{result.part}: left as it was: {line['left']}")
            else:
                line |= {"run_dir": str(run), "rows_read": run_view.rows_read(run)}
                say(console, f"{result.part}: computed again, {line['rows_read']:,} rows read; {run}")
    if left:
        kind = QualityError if QualityError.exit_code in map(exit_code_of, left.values()) else InputError
        parts = ", ".join(map(str, left))
        raise kind.saying("restate", f"{len(left):,} results are as they were: {parts}", "mend them, and restate again")


@contextmanager
def _session(name: str, master: str | None) -> Iterator[SparkSession]:
    before = SparkSession.getActiveSession()
    spark = build_session(name, master)
    try:
        yield spark
    finally:
        if before is None:
            spark.stop()


def compare_job(
    run: RunDirectory, spec: JobSpec, where: str, part: Part, other: str, root: str, master: str | None,
    tolerance: float, examples: int, console: Console,
) -> Comparison:  # fmt: skip
    """Compute the result of a part, unless the run has it already, and compare it with another; publish nothing."""
    with _session(f"skewless compare {spec.name}", master) as spark:
        prepare(run, spec, part.date, root, where, hour=part.hour)
        if run.commit_of(RESULT_STEP) is None:
            run_stages(spark, run, _reporter(console))
            merge_states(spark, run)
        theirs = other_side(spark, other, run.job(), compared_columns(run, spark))
        return compare(spark, run, theirs, tolerance, examples)
