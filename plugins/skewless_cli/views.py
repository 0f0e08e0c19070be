"""What commands show of a job and its runs: the bills of nights, a run under other policies, the standing states."""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from skewless.documents.job import Job
from skewless.documents.quality import State
from skewless.documents.step_documents import AS_IT_RAN, ERROR_WORDS, Amounts
from skewless.errors import PlanError, RunDirectoryError, SkewlessError, SpecError, nearest
from skewless.planner.policies import POLICIES
from skewless.publication.records import Identity
from skewless.publication.retention import FoundRun, found_run, order_of
from skewless.run.directory import RunDirectory
from skewless.run.folder import as_written, folders_in, folders_of_jobs, open_location, runs_below
from skewless.run.step_times import Night, nights
from skewless.run.storage import Storage
from skewless.spec.spec import JobSpec
from skewless.standing.states_retention import HeldPart, StatesLimits, doomed_states, held_parts, remove_states
from skewless_cli import say
from skewless_cli.run_view import figure
from skewless_lake.publication import replayed, state_now


def runs_of(folder: str) -> list[FoundRun]:
    """The runs in the folder of a job, the newest of its last day first."""
    fs, place = open_location(folder)
    found = (found_run(as_written(fs, folder, inner)) for inner in folders_in(fs, str(place)))
    return sorted(filter(None, found), key=order_of, reverse=True)


def list_runs(root: str, console: Console) -> None:
    """Print the newest runs of each job, a line each."""
    runs = runs_below(root)
    (fs, folders), tables = folders_of_jobs(runs), dict[str, Mapping[str, Identity]]()
    for folder in folders:
        for one in runs_of(as_written(fs, runs, folder))[:10]:
            try:
                state = state_now(one.run, tables)
            except SkewlessError as err:
                state = State("failed", str(err))
            say(console, f"{folder.rpartition('/')[2]}, {one.part}: {state.sentence}; {one.run}", state.kind)
    if not folders:
        say(console, f"there is no run in {runs}")


def show_others(run: RunDirectory, console: Console) -> None:
    """Print the other runs of the day of a run, if it lies in the folder of its job."""
    folder, job = str(run).rpartition("/")[0], run.job()
    if folder.rpartition("/")[2] == job.spec.name:
        for one in runs_of(folder):
            if one.part == job.part and str(one.run) != str(run):
                say(console, f"the same day:   {state_now(one.run).sentence}: {one.run}")


def run_named(name: str, root: str, date: str | None) -> RunDirectory:
    """A run by its directory; or by its job's name the newest run, of the last day or of the one that is given."""
    runs = runs_below(root)
    fs, folders = folders_of_jobs(runs)
    jobs, run = {folder.rpartition("/")[2]: folder for folder in folders}, RunDirectory(name)
    if run.exists("job.json"):
        return run
    if name not in jobs:
        raise RunDirectoryError(f"run {name}", f"a run directory, or a job with runs in {runs}", "neither",
                                nearest(name, jobs) if jobs else "run a job first")  # fmt: skip
    found = runs_of(as_written(fs, runs, jobs[name]))
    of_day = [one for one in found if date in {None, str(one.part.date)}]
    if not of_day:
        raise RunDirectoryError(f"job {name}", f"a run of {date or 'a day'}", "none",
                                f"its days: {', '.join(sorted({str(one.part.date) for one in found}))}")  # fmt: skip
    return of_day[0].run


def show_understood(job: Job, console: Console) -> None:
    """Print of a job with a query what it was understood to be; nothing of any other one."""
    spec = job.spec
    if spec.understood is None:
        return
    table = Table.grid(padding=(0, 2))
    table.add_row("input", escape(f"{spec.understood.input}: {job.input_path}"))
    for lookup in job.lookups:
        kept = " of the night" if spec.lookups[lookup.name].as_of == "night" else ""
        table.add_row("lookup", escape(f"{lookup.name}: {lookup.input_path}, {job.of_lookup(lookup).extent}{kept}"))
    if spec.map is not None:
        table.add_row("rows", escape(str(spec.map.sql)))
    table.add_row("key", escape(", ".join(spec.of_results.key)))
    table.add_row("join", escape(spec.joins)) if spec.joins else None
    for alias, call in spec.aggregates.items():
        whole = "" if job.algebra[alias].mergeable else "; it cannot be split: a hot key stays in one task"
        options = (f"{name}={value}" for name, value in call.options.items())
        text = call.options.get("expression") or f"{call.function}({', '.join([call.column or '*', *options])})"
        table.add_row("state", escape(f"{alias}: {text}{whole}"))
    state_bytes = 8 + sum(one.state_bytes for one in job.algebra.values())  # its rows are counted, too
    split = (
        f"is split over tasks, for {state_bytes:,} bytes of states in each" if job.splittable else "stays in one task"
    )
    table.add_row("hot key", split)
    if spec.result is not None:
        table.add_row("result", escape(", ".join(spec.result.select)))
        table.add_row("where", escape(spec.result.where)) if spec.result.where else None
        table.add_row("joined", escape(spec.result.query)) if spec.result.query else None
    if spec.output.sort:
        table.add_row("order", escape(", ".join(spec.output.sort)))
    console.print(table)


def costs_as_object(root: str, job: str | None, since: dt.date | None) -> dict[str, Any]:
    """The object of ``skewless costs --json``: seconds are core-seconds, but for those that were saved."""
    folder = runs_below(root)
    billed = sorted(nights(folder, job, since), key=lambda night: (night.date, night.job, night.run))
    if not billed:
        whose, late = f" of job {job}" if job else "", f" since {since}" if since else ""
        hint = "run one; runs of older releases have no bill"
        raise RunDirectoryError.saying(f"runs folder {folder}", f"no run{whose}{late} has a bill", hint)
    days = [{"day": day, **_sums(list(some))} for day, some in groupby(billed, lambda night: night.date)]
    return {"job": job, "days": days, "total": _sums(billed)}


def _sums(some: Sequence[Night]) -> dict[str, Any]:
    amounts = Amounts.total(night.bill.counted for night in some)
    saved = [night.savings.seconds_saved for night in some if night.savings is not None]
    known = [seconds for seconds in saved if seconds is not None]
    return {
        "runs": len(some),
        "used_seconds": round(amounts.used, 3),
        "idle_seconds": round(amounts.idle, 3),
        "skew_seconds": round(amounts.skew, 3),
        "lost_seconds": round(sum(night.bill.lost_seconds for night in some), 3),
        "tries_without_bill": sum(night.bill.unknown for night in some),
        "shuffle_bytes": amounts.shuffle_bytes,
        "spilled_bytes": amounts.spilled_bytes,
        "saved_seconds": round(sum(known), 3) if known else None,
        "saved_runs": len(known),
    }


def cost_lines(costs: Mapping[str, Any]) -> Iterator[str]:
    """The table, a line each, and what it does not hold."""
    head = ["day", "used", "idle", "skew", "lost tries", "shuffled", "spilled", "saved"]
    table = [head, *(_cost_cells(day["day"], day) for day in costs["days"]), _cost_cells("total", costs["total"])]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join([first.strip().ljust(widths[0]), *others])
    yield (
        "Used, idle, skew and lost tries are core-seconds. Saved are seconds that longest tasks were shorter than "
        "under plain hashing."
    )
    if without := costs["total"]["tries_without_bill"]:
        yield f"{without:,} tries have left no bill, as their driver was killed or is at work: they are not in it."


def _cost_cells(day: str, sums: Mapping[str, Any]) -> list[str]:
    some = "" if sums["saved_runs"] == sums["runs"] else f" ({sums['saved_runs']} of {sums['runs']} runs)"
    saved = "not known" if sums["saved_seconds"] is None else f"{sums['saved_seconds']:,.1f} s{some}"
    seconds = [f"{sums[f'{name}_seconds']:,.1f}" for name in ("used", "idle", "skew", "lost")]
    return [day, *seconds, f"{sums['shuffle_bytes']:,}", f"{sums['spilled_bytes']:,}", saved]


def policies_of(text: str | None) -> tuple[str, ...]:
    """The policies of a list like ``static,adaptive``; without a list, all policies."""
    if text is None:
        return tuple(POLICIES)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if unknown := next((name for name in names if name not in POLICIES), None):
        raise SpecError("--policies", "known policies", repr(unknown), nearest(unknown, POLICIES))
    return names


def replay_as_object(run: RunDirectory, policies: Sequence[str]) -> dict[str, Any]:
    """The object of ``skewless replay --json``: the run as it was, and under each policy.

    A policy that has no safe plan or no ring for the job is named under ``refused``.
    """
    lines, refused = [replayed(run, AS_IT_RAN).model_dump(mode="json", exclude={"version"})], []
    for policy in policies:
        try:
            lines.append(replayed(run, policy).model_dump(mode="json", exclude={"version"}))
        except (PlanError, SpecError) as err:
            refused.append({"policy": policy, "reason": str(err)})
    return {"run_dir": str(run), "policies": lines, "refused": refused}


def show_replay(replays: dict[str, Any], console: Console) -> None:
    """Print the object that ``replay_as_object`` returns."""
    table = Table(title=f"replayed: {escape(replays['run_dir'])}", title_justify="left")
    table.add_column("policy", no_wrap=True)
    for name in ("makespan/bound", "S", "imbalance", "in the mean", "forwarded", "states", "stages"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in replays["policies"]:
        error = f" ± {line['error']:.0%}" if line["error"] else ""
        table.add_row(
            escape(line["policy"]),
            figure(line["makespan_over_bound"], ".3f") + error,
            figure(line["s"], ".4f"),
            figure(line["imbalance_final"], ".3%"),
            figure(line["imbalance_fraction"], ".3%"),
            *(figure(line[name], ",") for name in ("rows_forwarded", "states", "stages")),
        )
    console.print(table)
    if any(line["error"] for line in replays["policies"]):
        say(console, ERROR_WORDS)
    for line in replays["policies"]:
        for stage, sentence in enumerate(line["decisions"], start=1):
            say(console, f"{line['policy']}, stage {stage}: {sentence}")
    for refusal in replays["refused"]:
        say(console, f"{refusal['policy']}: not played: {refusal['reason']}")


def states_location_of(spec: JobSpec, where: str, root: str) -> str:
    """The folder of the states of a job; a ``SpecError`` if the job keeps no states."""
    if not spec.covered.lengths:
        raise SpecError(where, "a job that keeps states", "one without", "add window: 7, for example, or window: 1")
    from skewless_spark.windows.found import states_location  # noqa: PLC0415  # imports Spark

    return states_location(spec, root)


def states_as_object(location: str) -> dict[str, Any]:
    """The object of ``skewless states --json``."""
    return {"states_path": location, "parts": [_held(part) for part in held_parts(location)]}


def _held(held: HeldPart) -> dict[str, Any]:
    line = {
        "fingerprint": held.fingerprint,
        "part": held.part,
        "version": held.newest,
        "versions": held.versions,
        "damaged": held.version is None,
    }
    if held.version is None:
        return line
    return {
        **line,
        "files": len(held.version.files),
        "rows": held.version.rows,
        "states": sum(file.rows for file in held.version.states),
        "bytes": sum(file.size_bytes for file in held.version.states),
        "run": held.version.run,
    }


def show_states(location: str, console: Console) -> None:
    """Print the parts that have states, by fingerprint."""
    lines = states_as_object(location)["parts"]
    if not lines:
        say(console, f"no states are kept in {location} yet")
    for fingerprint, parts in groupby(lines, lambda line: line["fingerprint"]):
        say(console, f"states {location}/{fingerprint}")
        say(
            console,
            f"{'part':<15} {'version':>7} {'of':>3} {'files':>6} {'rows':>15} {'states':>13} {'bytes':>15}  made by",
        )
        for line in parts:
            begin = f"{line['part']:<15} {line['version']:>7} {line['versions']:>3} "
            if line["damaged"]:
                say(console, f"{begin}damaged: the next run that needs this part reduces it anew")
            else:
                counts = f"{line['files']:>6,} {line['rows']:>15,} {line['states']:>13,} {line['bytes']:>15,}"
                say(console, f"{begin}{counts}  {line['run']}")


def prune_states(location: str, spec: JobSpec, now: dt.datetime, *, dry_run: bool) -> Iterator[str]:
    """Remove the states that are not kept any more; a sentence for each, and one for all."""
    limits, mark = StatesLimits(parts=spec.covered.kept_parts), "dry run: " if dry_run else ""
    doomed = doomed_states(location, now, limits)
    for file in doomed:
        yield f"{mark}remove {file.path} ({file.size_bytes:,} bytes): {file.reason}"
    if not dry_run:
        remove_states(location, doomed, now, limits)
    yield f"{mark}{len(doomed):,} files of {sum(file.size_bytes for file in doomed):,} bytes in {Storage(location)}"
