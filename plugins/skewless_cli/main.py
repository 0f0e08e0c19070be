"""``skewless``: check a spec, run it in one Spark session, show a run, replay it under other policies, prune runs."""

import datetime as dt
import json
import os
import secrets
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from skewless.errors import SkewlessError, SpecError
from skewless.publication.retention import Limits
from skewless.run.directory import RunDirectory
from skewless.run.folder import RUN_GROUP, runs_below
from skewless.spec.part import Part, part_at, part_named
from skewless.spec.reading import load_spec
from skewless.spec.spec import JobSpec
from skewless_cli import run_view, say, views
from skewless_cli.doctor import examine
from skewless_cli.ending import NotComparedError, call
from skewless_lake.pruning import prune_each

Spec = Annotated[Path, typer.Argument(help="The job spec, a YAML file.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH.TO.FIELD=VALUE", help="Override a field of the spec; may be repeated."),
]
Root = Annotated[
    str,
    typer.Option("--root", envvar="SKEWLESS_ROOT", help="Where relative paths of the spec start: a folder or a URL."),
]
Date = Annotated[
    str | None,
    typer.Option(
        help="The day to compute, YYYY-MM-DD. The result is published under it.",
        show_default="the day that the spec's schedule would compute now, or that of the resumed run",
    ),
]
Hour = Annotated[
    str | None, typer.Option(help="The hour of --date, for an hourly job: 00 to 23, or 02b.", show_default=False)
]
Master = Annotated[str | None, typer.Option(help="Spark master.", show_default="local[*]")]
Run = Annotated[str, typer.Argument(help="A run directory; or a job, for its newest run.", show_default=False)]
DayOfRun = Annotated[str | None, typer.Option("--date", help="Of a job: the day.", show_default="its last one")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def chosen_part(spec: JobSpec, date: str | None, hour: str | None, resumed: RunDirectory | None = None) -> Part:
    """The part that the options name; else that of the resumed run; else the one of the schedule now."""
    schedule = spec.schedule
    if date is not None:
        return part_named(date, hour, schedule.timezone, schedule.unit, "--")
    if hour is not None:
        raise SpecError("--hour", "a --date beside it", repr(hour)[:80])
    if resumed is not None and resumed.exists("job.json"):
        return resumed.job().part
    return schedule.part_of(dt.datetime.now(tz=dt.UTC))


app = typer.Typer(
    name="skewless",
    help="Nightly aggregations over badly skewed keys. Exit codes: 0 success, 2 bad spec or input, "
    "3 failed data quality, 4 the machine is to be mended first, 1 any other error.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"skewless {version('skewless')}")
        raise typer.Exit


@app.callback()
def skewless(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command()
def check(spec: Spec, overrides: Overrides = None, date: Date = None, hour: Hour = None, root: Root = "data") -> None:
    """Check a spec and its input without running it: fields, schedule, aggregates, columns, expectations.

    Spark starts only where nothing else knows: for a table, a select list, texts with types, or a result as CSV.
    Without Spark the check takes a second or two.
    """
    loaded = load_spec(spec, tuple(overrides or ()))
    part = chosen_part(loaded, date, hour)
    from skewless_cli import running  # noqa: PLC0415  # a misspelt field is told before Spark is imported

    told, job = running.check_job(loaded, f"spec {spec}", part, root)
    console = _console()
    say(console, f"{spec}: good for {part}. {told}")
    views.show_understood(job, console)


@app.command("package")
def write_package(
    into: Annotated[str, typer.Option(help="A folder or a URL that the cluster reads, such as s3://bucket/skewless.")],
) -> None:
    """Write what a cluster without Skewless runs steps from: an environment, a wheel, what it needs, the entry."""
    from skewless_cli.package import package  # noqa: PLC0415  # only this command needs it

    address = package(into)
    typer.echo(f"{address}: give it to the spec as `spark: {{submit: {{package: {address}}}}}`")


@app.command()
def run(
    spec: Spec,
    overrides: Overrides = None,
    run_dir: Annotated[
        str | None,
        typer.Option(help="Run directory; one of the same spec is resumed from its last commit.", show_default=False),
    ] = None,
    master: Master = None,
    date: Date = None,
    hour: Hour = None,
    root: Root = "data",
    as_json: AsJson = False,
) -> None:
    """Run a job in one Spark session. The stages are the same as in Airflow.

    With `shadow` in the spec, the result is compared with that of another job, and nothing is published.
    """
    loaded = load_spec(spec, tuple(overrides or ()))
    from skewless_cli import running  # noqa: PLC0415  # as in ``check``

    name = f"local__{dt.datetime.now(tz=dt.UTC):%Y-%m-%dT%H%M%S}-{secrets.token_hex(3)}"
    directory = RunDirectory(run_dir or f"{runs_below(root)}/{loaded.name}/{name}", os.environ.get(RUN_GROUP, ""))
    console = _console(stderr=as_json)
    try:
        part = chosen_part(loaded, date, hour, directory)
        running.run_job(directory, part, loaded, f"spec {spec}", root, master, console)
    except KeyboardInterrupt:
        sys.stderr.write(f"skewless: run {directory}: interrupted{_resuming(directory, run_dir)}.\n")
        raise typer.Exit(130) from None
    except Exception as err:
        err.add_note(_resuming(directory, run_dir))
        raise
    finally:
        if as_json and directory.exists("job.json"):
            _print_json(run_view.as_object(directory))
    if not as_json:
        run_view.show(directory, console)
        views.show_others(directory, console)


def _resuming(directory: RunDirectory, run_dir: str | None) -> str:
    """The end of a sentence about a run that has not ended: the command that resumes it, if it was begun."""
    words = [*sys.argv[1:], *(() if run_dir else ("--run-dir", str(directory)))]
    try:
        begun = directory.exists("job.json")
    except SkewlessError:  # what ended the run may hide its directory, too
        begun = True
    return f"; go on with: skewless {shlex.join(words)}" if begun else ""


@app.command()
def rollback(spec: Spec, date: Date = None, hour: Hour = None, root: Root = "data") -> None:
    """Go back to the version of a day before the published one, in a table; other days stay as they are.

    It is a commit like any other: what was published last stays in the table's history. Run twice, it undoes itself.
    """
    loaded = load_spec(spec)
    part = chosen_part(loaded, date, hour)
    from skewless_cli import running  # noqa: PLC0415  # views of runs do without Spark

    typer.echo(running.roll_back_part(loaded, f"spec {spec}", part, root))


@app.command()
def show(
    run: Annotated[str | None, typer.Argument(help="A run directory, or a job.", show_default="a list of runs")] = None,
    date: DayOfRun = None,
    root: Root = "data",
    times: Annotated[bool, typer.Option("--times", help="Instead: where the time of its steps went.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a run from its documents: state, hottest keys, stages, ledger, quality, paths; or list the newest runs."""
    if run is None:
        views.list_runs(root, _console())
        return
    directory = views.run_named(run, root, date)
    directory.job()
    if times and as_json:
        _print_json({"steps": run_view.times_as_object(directory)})
    elif times:
        run_view.show_times(directory, _console())
    elif as_json:
        _print_json(run_view.as_object(directory))
    else:
        run_view.show(directory, _console())
        views.show_others(directory, _console())


@app.command()
def certify(
    run: Run,
    date: DayOfRun = None,
    root: Root = "data",
    into: Annotated[
        Path | None, typer.Option(help="The file of the certificate.", show_default="standard output")
    ] = None,
    checker: Annotated[
        Path | None, typer.Option(help="Also write the program that checks certificates.", show_default="not written")
    ] = None,
) -> None:
    """Write a certificate of a published run: that its result was made of its input, with no row lost or altered.

    It is one JSON, with a hash of the rows of each file of the input, of the states on the way, and of the published
    table. `--checker check.py` writes a program of one file that holds it against input and table, and computes some
    keys anew: `python check.py CERTIFICATE`. It needs pyarrow, numpy and DuckDB, and neither Skewless nor Spark. What
    it cannot check it says.
    """
    from skewless_cli import certify as certificates  # noqa: PLC0415  # as in ``check``

    text = certificates.certificate_of(views.run_named(run, root, date)).sealed()
    source = files("skewless_cli").joinpath("check_certificate.py").read_text("utf-8")
    for path, content in ((checker, source), (into, text)):
        try:
            if path is not None:
                path.write_text(content, "utf-8")
        except OSError as err:
            raise SpecError.saying(str(path), f"it cannot be written ({err.strerror})", "name another file") from None
    if into is None:
        typer.echo(text, nl=False)


@app.command()
def replay(
    run: Run,
    date: DayOfRun = None,
    root: Root = "data",
    policies: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="The policies to replay.", show_default="all")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a run would have gone under each policy, by its documents; no data is read.

    Each replay is written into the run directory, and the page What if shows it.
    """
    replays = views.replay_as_object(views.run_named(run, root, date), views.policies_of(policies))
    if as_json:
        _print_json(replays)
    else:
        views.show_replay(replays, _console())


@app.command()
def costs(
    job: Annotated[str | None, typer.Argument(help="The folder of a job's runs.", show_default="all jobs")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="YYYY-MM-DD", help="The first day.", show_default="all that there are")
    ] = None,
    root: Root = "data",
    as_json: AsJson = False,
) -> None:
    """Show what nights have cost: core-seconds used, idle, lost to skew and to tries again, and under plain hashing."""
    first = None if since is None else part_named(since, None, "UTC", "day", "--since ").date
    bills = views.costs_as_object(root, job, first)
    if as_json:
        _print_json(bills)
    else:
        typer.echo("\n".join(views.cost_lines(bills)))


@app.command()
def prune(
    runs: Annotated[
        str | None,
        typer.Argument(help="The folder of all runs, which has a folder for each job.", show_default="ROOT/runs"),
    ] = None,
    finished_days: Annotated[int, typer.Option(min=1, help="Keep finished runs for this many days.")] = 30,
    unfinished_days: Annotated[int, typer.Option(min=1, help="Keep unfinished runs for this many days.")] = 7,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    root: Root = "data",
) -> None:
    """Remove run directories that nobody needs any more, and say for each what happens to it and why.

    The two newest finished runs of a job stay, and so do the documents of every run whose result is the published one.
    """
    limits = Limits(finished=dt.timedelta(days=finished_days), unfinished=dt.timedelta(days=unfinished_days))
    folder, fate = runs or runs_below(root), None
    for fate in prune_each(folder, dt.datetime.now(tz=dt.UTC), limits, dry_run=dry_run):
        typer.echo(f"{'dry run: ' if dry_run else ''}{fate.sentence}")
    if fate is None:
        typer.echo(f"there is no run in {folder}")


@app.command()
def states(
    spec: Spec,
    overrides: Overrides = None,
    prune: Annotated[bool, typer.Option("--prune", help="Remove states that are not kept any more.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --prune: only say what would be removed.")] = False,
    root: Root = "data",
    as_json: AsJson = False,
) -> None:
    """List the states that a job with a window has kept, part by part; or remove those that are not kept any more."""
    loaded = load_spec(spec, tuple(overrides or ()))
    location = views.states_location_of(loaded, f"spec {spec}", root)
    if prune:
        for line in views.prune_states(location, loaded, dt.datetime.now(tz=dt.UTC), dry_run=dry_run):
            typer.echo(line)
    elif as_json:
        _print_json(views.states_as_object(location))
    else:
        views.show_states(location, _console())


@app.command()
def compare(
    spec: Annotated[Path, typer.Argument(help="The job spec; or a job, for its newest run.", show_default=False)],
    other: Annotated[
        str,
        typer.Option(
            "--with",
            metavar="OTHER",
            show_default=False,
            help="The other result: a path whose ending tells the format (Parquet if it does not), FORMAT:PATH as in "
            "input of a spec, or a query; or fresh: the result of all rows, computed anew.",
        ),
    ],
    overrides: Overrides = None,
    run_dir: Annotated[
        str | None, typer.Option(help="A run of the same spec: it is gone on with, and kept.", show_default=False)
    ] = None,
    date: Date = None,
    hour: Hour = None,
    tolerance: Annotated[
        float, typer.Option(min=0, max=1, help="How far floats may be apart, relative to the larger one.")
    ] = 1e-9,
    examples: Annotated[int, typer.Option(min=0, help="How many keys that differ are named.")] = 10,
    master: Master = None,
    root: Root = "data",
    as_json: AsJson = False,
) -> None:
    """Compute a result and compare it, key by key, with that of another job or a fresh one. Nothing is published.

    Exit codes as of diff: 0 nothing differs, 1 something does, 2 they could not be compared.
    """
    try:
        if not spec.suffix and not spec.exists():  # the name of a job
            run_dir = run_dir or str(views.run_named(str(spec), root, date))
            loaded = RunDirectory(run_dir).job().spec
        else:
            loaded = load_spec(spec, tuple(overrides or ()))
        part = chosen_part(loaded, date, hour, RunDirectory(run_dir) if run_dir else None)
        from skewless_cli import running  # noqa: PLC0415  # as in ``check``

        with _run_to_compare(run_dir, root, loaded.name) as folder:
            comparison = running.compare_job(
                RunDirectory(folder), loaded, f"spec {spec}", part, other, root, master, tolerance, examples,
                Console(stderr=True),
            )  # fmt: skip
    except Exception as err:
        raise NotComparedError from err
    if as_json:
        _print_json(run_view.comparison_as_object(comparison))
    else:
        typer.echo("\n".join(comparison.lines))
    raise typer.Exit(int(comparison.found))


@contextmanager
def _run_to_compare(run_dir: str | None, root: str, name: str) -> Iterator[str]:
    if run_dir is not None:
        yield run_dir
        return
    above = Path(tempfile.gettempdir()) if "://" in root else Path(root).absolute() / "comparisons"
    above.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=above) as folder:
        yield f"{folder}/run"


@app.command()
def restate(
    spec: Spec,
    first: Annotated[
        str, typer.Option("--from", metavar="YYYY-MM-DD", help="The first day of published results to look at.")
    ],
    last: Annotated[
        str | None, typer.Option("--to", metavar="YYYY-MM-DD", help="The last day, inclusive.", show_default="today")
    ] = None,
    overrides: Overrides = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be computed, and why.")] = False,
    master: Master = None,
    root: Root = "data",
    as_json: AsJson = False,
) -> None:
    """Compute published results again whose window covers a part that has changed since, and publish each once.

    Results that are up to date stay as they are. If it was interrupted, call it again: it goes on.
    """
    loaded = load_spec(spec, tuple(overrides or ()))
    zone = loaded.schedule.timezone
    begin = part_named(first, None, zone, "day", "--from ").date
    today = part_at(dt.datetime.now(tz=dt.UTC), zone, "day").date
    end = today if last is None else part_named(last, None, zone, "day", "--to ").date
    if end < begin:
        raise SpecError("--to", f"a day from {begin} on", str(end))
    from skewless_cli import running  # noqa: PLC0415  # as in ``check``

    report: dict[str, Any] = {}
    console = _console(stderr=as_json)
    try:
        running.restate_job(loaded, f"spec {spec}", (begin, end), root, master, console, report, dry_run=dry_run)
    finally:
        if as_json and report:
            _print_json(report)


@app.command()
def init(
    path: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            show_default=False,
            help="Files of Parquet, ORC, CSV or JSON lines: a file, a folder, a glob or a URL; the folder of a Delta "
            "table; or an Iceberg table, as catalog.namespace.table.",
        ),
    ],
    name: Annotated[str | None, typer.Option(help="The name of the job.", show_default="of input and key")] = None,
    into: Annotated[Path, typer.Option(help="The folder in which the two files are written.")] = Path(),
    root: Root = "data",
) -> None:
    """Look at an input and write a first spec of it, NAME.yaml, and the file of its DAG, NAME_dag.py, with comments.

    The spec groups by the most skewed column of a sample; it is checked before it is written. No file is overwritten.
    """  # fmt: skip
    from skewless_cli import running  # noqa: PLC0415  # as in ``check``

    (spec, dag), good = running.begin_job(path, root, name, into)
    typer.echo(f"{spec}: {good}\n{dag}: its DAG, for Airflow's DAG folder, in which the spec lies beside it.")


@app.command()
def adopt(
    job: Annotated[
        Path,
        typer.Argument(
            show_default=False,
            help="A .sql file with a query, INSERT ... SELECT or CREATE TABLE ... AS SELECT; or a .py file with one "
            'spark.sql("..."), which is not run.',
        ),
    ],
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="NAME=PATH",
            help="Where a table of the query is; FORMAT:PATH is as in input. "
            "May be repeated; all others are those of Spark's catalog.",
        ),
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(metavar="OTHER", help="The old result, as --with of compare.", show_default="the written table"),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The name of the job.", show_default="of table or file")] = None,
    into: Annotated[Path, typer.Option(help="The folder in which the two files are written.")] = Path(),
    root: Root = "data",
) -> None:
    """Write the spec of a query that a job computes today, NAME.yaml, and its DAG: it runs beside that job.

    As long as `shadow` stands in the spec, a run compares its result with the old one, and publishes nothing.
    """
    from skewless_cli import running  # noqa: PLC0415  # as in ``check``

    (spec, dag), following = running.adopt_job(job, tables or (), beside, root, name, into)
    typer.echo(f"{spec}: the query and its tables\n{dag}: its DAG\nnext: {following}")


@app.command()
def doctor(
    root: Root = "data",
    catalog: Annotated[
        str | None,
        typer.Option(
            envvar="SKEWLESS_CATALOG", help="The folder of job specs.", show_default="jobs/catalog, if it is there"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether all that jobs need is here: each thing in one line, good or with the command that mends it.

    It looks at Python, Java, packages, the data root, Airflow and the specs, and changes nothing.
    Exit code 2 if something is wrong.
    """
    usual = "jobs/catalog" if Path("jobs/catalog").is_dir() else ""
    findings = []
    for finding in examine(root, usual if catalog is None else catalog):
        findings.append(finding)
        if not as_json:
            typer.echo(str(finding))
    good = all(finding.state != "wrong" for finding in findings)
    if as_json:
        _print_json({"good": good, "checks": [asdict(finding) for finding in findings]})
    if not good:
        raise typer.Exit(2)


def _print_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def _console(stderr: bool = False) -> Console:
    """A console as wide as the terminal. A pipe or a log has no width of its own, and takes long lines."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=160)


def main() -> NoReturn:
    """The console script."""
    call(app)


if __name__ == "__main__":
    main()
