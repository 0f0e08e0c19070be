"""``skewless``: check a spec, run it in one Spark session, show a run, replay it under other policies, prune runs."""

from __future__ import annotations

import datetime as dt
import json
import os
import secrets
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

from skewless.errors import SkewlessError, SpecError
from skewless.run.directory import RunDirectory
from skewless.run.folder import RUN_GROUP
from skewless.run.publication import record_of
from skewless.run.retention import Limits, enact_fate, fates
from skewless.spec.part import Part, part_named
from skewless.spec.reading import load_spec
from skewless.spec.reference import reference_page, schema_text
from skewless.spec.spec import JobSpec
from skewless_cli import replay_view, run_summary, run_view
from skewless_spark.result.publishing import publish_now
from skewless_spark.session.spark_errors import exit_code_of, sentence_for

if TYPE_CHECKING:  # its imports take as long as Spark's
    from skewless_spark.entries.clusters import Cluster

app = typer.Typer(
    name="skewless",
    help="Nightly aggregations over badly skewed keys. Exit codes: 0 good, 2 bad spec or input, "
    "3 data quality failed, 1 anything else.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Spec = Annotated[Path, typer.Argument(help="The job spec, a YAML file.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH.TO.FIELD=VALUE", help="Override a field of the spec; may be repeated."),
]
Root = Annotated[
    Path,
    typer.Option("--root", envvar="SKEWLESS_ROOT", help="Where relative paths of the spec start."),
]


Date = Annotated[
    str | None,
    typer.Option(
        help="The day to compute, YYYY-MM-DD, under which the result is published.",
        show_default="what the spec's schedule would compute now, or the resumed run's",
    ),
]
Hour = Annotated[
    str | None, typer.Option(help="Of a job of hours, the hour of --date: 00 to 23, or 02b.", show_default=False)
]


@app.command()
def check(
    spec: Spec, overrides: Overrides = None, date: Date = None, hour: Hour = None, root: Root = Path("data")
) -> None:
    """Check a spec and its input without running it: fields, schedule, aggregates, columns, expectations.

    It starts Spark only where nothing else can say what the columns are: for a table, a select list or a
    result as CSV. Without Spark it takes a second or two.
    """
    from skewless_spark.prepare.prepare import check_spec, freeze  # noqa: PLC0415  # pyspark takes a second to import

    loaded = load_spec(spec, tuple(overrides or ()))
    where = f"spec {spec}"
    check_spec(loaded, where)
    part = _part(loaded, date, hour)
    job = freeze(loaded, part.date, str(root), where, hour=part.hour)
    waves = ", ".join(f"{job.wave_rows(stage):,}" for stage in range(len(job.waves))) or "none"
    typer.echo(f"{spec}: good for {part}. {job.extent}; waves of {waves} rows.")


@app.command()
def run(
    spec: Spec,
    overrides: Overrides = None,
    run_dir: Annotated[
        str | None,
        typer.Option(help="Run directory; one of the same spec is resumed from its last commit.", show_default=False),
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark master.", show_default="local[*]")] = None,
    date: Date = None,
    hour: Hour = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=MASTER", help="Instead of --master: a Spark cluster that shares the stages; may be repeated."
        ),
    ] = None,
    root: Root = Path("data"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Run a job in one Spark session, or its stages on several clusters: the same stages as in Airflow."""
    clusters = _clusters(cluster or (), master)
    loaded = load_spec(spec, tuple(overrides or ()))
    where = run_dir or str(root / "runs" / loaded.name / _new_run_id())
    directory = RunDirectory(where, os.environ.get(RUN_GROUP, ""))
    console = _console(stderr=as_json)
    try:
        where_from, part = f"spec {spec}", _part(loaded, date, hour, directory)
        if clusters:
            _run_shared(directory, loaded, where_from, part, str(root), clusters, console)
        else:
            _run(directory, loaded, where_from, part, str(root), master, console)
    finally:
        if as_json and directory.exists("job.json"):
            sys.stdout.write(json.dumps(run_summary.as_object(directory)) + "\n")
    if not as_json:
        run_view.show(directory, console)


def _run(
    directory: RunDirectory,
    spec: JobSpec,
    where: str,
    part: Part,
    root: str,
    master: str | None,
    console: Console,
) -> None:
    # Imported late: a misspelt field should be told at once, not after Spark's imports.
    from skewless_cli.progress import RunProgress  # noqa: PLC0415
    from skewless_spark.entries.pipeline import run_pipeline  # noqa: PLC0415
    from skewless_spark.prepare.prepare import needs_session, prepare  # noqa: PLC0415
    from skewless_spark.session.session import build_session  # noqa: PLC0415

    if needs_session(spec):
        build_session(f"skewless {spec.name}", master)  # the one that is used below, too
    prepare(directory, spec, part.date, root, where, hour=part.hour)
    if record_of(directory):
        publish_now(directory)  # done by an earlier call: it looks whether all of it is there, and needs no Spark
        return
    with RunProgress(console) as progress:
        spark = build_session(f"skewless {spec.name}", master)
        try:
            progress.follow(spark)
            run_pipeline(spark, directory, progress)
        finally:
            spark.stop()


def _clusters(given: Sequence[str], master: str | None) -> Sequence[Cluster]:
    if not given:
        return ()
    from skewless_spark.entries.clusters import parse_clusters  # noqa: PLC0415

    if master:
        raise SpecError("option --master", "none beside --cluster", repr(master), "name it as one of the clusters")
    return parse_clusters(given)


def _run_shared(
    directory: RunDirectory,
    spec: JobSpec,
    where: str,
    part: Part,
    root: str,
    clusters: Sequence[Cluster],
    console: Console,
) -> None:
    from skewless_cli.progress import RunProgress  # noqa: PLC0415
    from skewless_spark.entries.clusters import run_shared_stages  # noqa: PLC0415
    from skewless_spark.entries.pipeline import finish_run  # noqa: PLC0415
    from skewless_spark.prepare.prepare import needs_session, prepare  # noqa: PLC0415
    from skewless_spark.session.session import build_session  # noqa: PLC0415

    session = build_session(f"skewless {spec.name}", clusters[0].master) if needs_session(spec) else None
    try:
        prepare(directory, spec, part.date, root, where, hour=part.hour)
    finally:
        if session:
            session.stop()  # its slots are for those who share the stages
    if record_of(directory):
        publish_now(directory)
        return
    with RunProgress(console) as progress:
        there = run_shared_stages(directory, clusters, progress)
        spark = build_session(f"skewless {spec.name}", there.master)
        try:
            finish_run(spark, directory, progress)
        finally:
            spark.stop()


@app.command()
def share(
    run_dir: Annotated[str, typer.Argument(help="The directory of a prepared run.", show_default=False)],
    stage: Annotated[
        int | None, typer.Argument(help="The stage to take part in.", show_default="all, to the end of the last one")
    ] = None,
    cluster: Annotated[
        str, typer.Option(metavar="NAME=MASTER", help="This cluster: a name for people, and its Spark master.")
    ] = "local=local[*]",
) -> None:
    """Take part in the stages of a run that other clusters work on, too."""
    from skewless_spark.entries.clusters import parse_clusters  # noqa: PLC0415
    from skewless_spark.session.session import build_session  # noqa: PLC0415
    from skewless_spark.sharing import share_stage, share_stages  # noqa: PLC0415

    directory, (here,) = RunDirectory(run_dir), parse_clusters([cluster])
    job = directory.job()
    spark = build_session(f"skewless {job.spec.name} on {here.name}", here.master)
    try:
        if stage is None:
            share_stages(spark, directory, here.name)
        else:
            share_stage(spark, directory, stage, here.name)
    finally:
        spark.stop()


@app.command()
def show(
    run_dir: Annotated[str, typer.Argument(help="A run directory.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a run from its documents: hottest keys, stages, ledger, quality, paths."""
    directory = RunDirectory(run_dir)
    directory.job()
    if as_json:
        sys.stdout.write(json.dumps(run_summary.as_object(directory)) + "\n")
    else:
        run_view.show(directory, _console())


@app.command()
def replay(
    run_dir: Annotated[str, typer.Argument(help="The directory of a finished run.", show_default=False)],
    policies: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Policies to play.", show_default="all there are")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what each policy would have made of a run, from the run's own documents; nothing is run again."""
    names = replay_view.policies_of(policies)
    told = replay_view.as_object(RunDirectory(run_dir), names)
    if as_json:
        sys.stdout.write(json.dumps(told) + "\n")
    else:
        replay_view.show(told, _console())


@app.command()
def prune(
    runs: Annotated[
        str | None,
        typer.Argument(help="The folder of all runs: jobs in it, and runs in those.", show_default="ROOT/runs"),
    ] = None,
    finished_days: Annotated[int, typer.Option(min=1, help="Days that finished runs are kept.")] = 30,
    unfinished_days: Annotated[int, typer.Option(min=1, help="Days that unfinished runs are kept.")] = 7,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    root: Root = Path("data"),
) -> None:
    """Take away run directories that nobody needs any more, and say of each what becomes of it and why.

    The two newest finished runs of a job stay, and so do the documents of runs whose result is the published one.
    """
    limits = Limits(finished=dt.timedelta(days=finished_days), unfinished=dt.timedelta(days=unfinished_days))
    for fate in fates(runs or str(root / "runs"), dt.datetime.now(tz=dt.UTC), limits):
        typer.echo(f"{'dry run: ' if dry_run else ''}{fate.sentence}")
        if not dry_run:
            enact_fate(fate)


@app.command("spec-reference")
def spec_reference(
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema by which editors complete a spec.")
    ] = False,
) -> None:
    """Print what a spec may say, field by field: docs/spec.md, or with --schema docs/spec.schema.json."""
    sys.stdout.write(schema_text() if schema else reference_page())


def _console(stderr: bool = False) -> Console:
    """A terminal's own width; a pipe or a log has none, and takes long lines."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=160)


def _new_run_id() -> str:
    return f"local__{dt.datetime.now(tz=dt.UTC):%Y-%m-%dT%H%M%S}-{secrets.token_hex(3)}"


def _part(spec: JobSpec, date: str | None, hour: str | None, resumed: RunDirectory | None = None) -> Part:
    """What to compute: as it is given, as the run was begun, or as the schedule would have it now."""
    schedule = spec.schedule
    if date is not None:
        return part_named(date, hour, schedule.timezone, schedule.unit, "--")
    if hour is not None:
        raise SpecError("--hour", "a --date beside it", repr(hour)[:80])
    if resumed is not None and resumed.exists("job.json"):
        return resumed.job().part
    return schedule.part_of(dt.datetime.now(tz=dt.UTC))


def main() -> NoReturn:
    """The console script: our errors are one sentence on standard error, and their exit code."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    try:
        app()
    except Exception as err:  # noqa: BLE001  # the last line of defence: every failure ends in its sentence
        if not isinstance(err, SkewlessError):
            traceback.print_exc()
        sys.stderr.write(f"skewless: {sentence_for(err)}\n")
        sys.exit(exit_code_of(err))
    sys.exit(0)


if __name__ == "__main__":
    main()
