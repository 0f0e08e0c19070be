"""A run from its documents: one object for programs; on a terminal hottest keys, stages, ledger, verdict, paths."""

import datetime as dt
import heapq
import json
from collections import Counter
from decimal import Decimal
from typing import Any, Literal, get_args

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from skewless.bounds import run_certificate, stage_certificate
from skewless.documents.commit import STAGE_SHARES, StageShares
from skewless.documents.job import Job
from skewless.documents.ledger import Ledger, balance
from skewless.documents.quality import Comparison
from skewless.documents.stage_report import StageReport
from skewless.documents.window import Way
from skewless.errors import counted
from skewless.publication.records import Publication, publication_of, record_of
from skewless.run.directory import DOCUMENT, QUALITY_STEP, RESULT_STEP, RunDirectory, stage_step
from skewless.run.step_names import LastStep, last_step_of
from skewless.run.step_times import times_of, times_of_step, waterfall, work_seconds
from skewless.spec.result import WINDOW_COLUMN
from skewless.standing.tree import plan_of
from skewless_cli import say
from skewless_lake.publication import readers_have, state_now

_SHOWN = 10  # rows of a result


def stage_lines(run: RunDirectory) -> list[dict[str, Any]]:
    """One object per committed stage: its counts, its balance, and the decision that followed."""
    return [_stage_line(run, run.job(), report) for report in run.reports()]


def _stage_line(run: RunDirectory, job: Job, report: StageReport) -> dict[str, Any]:
    times = times_of_step(run, f"stage {report.stage}")
    gap, decision, shared = stage_certificate(job, report).gap, None, {}
    if run.exists(f"decisions/{report.stage + 1:04d}.json"):
        decision = run.decision(report.stage + 1).sentence
    elif report.stage == job.last_stage:
        decision = "none: it drains what is left, and there is no stage after it"
    commit = run.committed(stage_step(report.stage))
    if any(file.path.endswith(f"/{STAGE_SHARES}") for file in commit.of_kind(DOCUMENT)):
        shared = {"clusters": run.committed_document(commit, STAGE_SHARES, StageShares).done}
    return {
        "stage": report.stage,
        "policy": job.spec.routing.policy.name,
        "engine": run.plan(report.stage).engine,
        "tasks": len(report.tasks),
        "admitted_rows": report.admitted_rows,
        "backlog_in_rows": report.backlog_in_rows,
        "forwarded_rows": report.forwarded_rows,
        "processed_rows": report.processed_rows,
        "backlog_rows": report.backlog_rows,
        "max_over_mean": report.max_over_mean and round(report.max_over_mean, 4),
        "gap_to_bound": gap and round(gap, 4),
        "seconds": times and times.seconds,
        "work": report.work.model_dump(mode="json") if report.work else None,
        "decision": decision,
        **shared,
    }


def ledger_of(run: RunDirectory) -> Ledger:
    """The ledger of the stages so far."""
    result = run.commit_of(RESULT_STEP)
    rows = result.count("rows") if result else 0
    return balance(run.job(), run.reports(), rows, run.part_lines(), result.counts.get("hash") if result else None)


def rows_read(run: RunDirectory) -> int:
    """Rows of the source that the committed stages have read, before a map."""
    return sum(one.admitted_rows if one.source_rows is None else one.source_rows for one in run.reports())


def as_object(run: RunDirectory) -> dict[str, Any]:
    """The object of ``skewless run --json``; its result path is the folder in the run that no later run changes."""
    quality, publication, record, comparison = run.quality(), publication_of(run), record_of(run), run.comparison()
    ledger, window, table, savings = ledger_of(run), run.job().window, run.job().source.pinned, run.savings()
    commit, finality, plan, state = run.commit_of(RESULT_STEP), run.finality(), plan_of(run), state_now(run)
    results = commit.of_kind("result") if commit else ()
    of_window: dict[str, Any] = {}
    if window is not None:
        of_window = {
            "parts": window.counts(),
            "missing_parts": list(window.missing),
            "missing_parts_count": window.missing_count,
            "late_parts": {part.name: delay for part, delay in window.late() if part.came_rows != 0},
            "late_files_ignored": window.ignored_files,
            "late_rows_ignored": window.ignored_rows,
            # The parts and nodes whose states each window was merged of; null until the result is merged.
            "window_plan": plan and [{"window": name, "merged": list(parts)} for name, parts in plan.results.items()],
            "finality": finality.model_dump(mode="json", exclude={"version"}) if finality else None,
        }
    return {
        "run_dir": str(run),
        "state": state.word,
        "state_words": state.sentence,
        "result_path": run.path(results[0].path.rpartition("/")[0]) if results else None,
        "published_path": publication.path if publication else None,
        **({} if publication is None or publication.snapshot is None else {"published_snapshot": publication.snapshot}),
        **({} if table is None else {"input_snapshot": table.snapshot}),
        "superseded_by": record.superseded.model_dump(mode="json") if record and record.superseded else None,
        "work_seconds": work_seconds(times_of(run)),
        "rows_read": rows_read(run),
        "skipped_parts": list(run.job().skipped),
        **of_window,
        "stages": stage_lines(run),
        "ledger": {**ledger.model_dump(mode="json"), "balanced": ledger.balanced},
        "quality": quality.model_dump(mode="json", exclude={"ledger"}) if quality else None,
        **({} if comparison is None else {"comparison": comparison_as_object(comparison)}),
        "savings": savings.model_dump(mode="json", exclude={"version"}) if savings else None,
        "certificate": run_certificate(run.job(), run.reports()).model_dump(mode="json"),
    }


def comparison_as_object(found: Comparison) -> dict[str, Any]:
    """The object of ``skewless compare --json``."""
    return {**found.model_dump(mode="json", exclude={"version"}), "found": found.found}


def hottest(run: RunDirectory) -> tuple[str | None, list[dict[str, Any]]]:
    """The name of the first numeric aggregate, and the rows of the longest window with its largest values."""
    spec, commit = run.job().spec, run.commit_of(RESULT_STEP)
    if commit is None:
        return None, []
    # All other facts are had from the base installation, which has no Arrow.
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    by: str | None = None
    best: list[dict[str, Any]] = []
    for file in commit.of_kind("result"):
        with run.fs.open(f"{run.root}/{file.path}", "rb") as opened:
            parquet = pq.ParquetFile(opened)
            kinds = {field.name: field.type for field in parquet.schema_arrow}
            # Python has no days and times beyond the year 9999.
            texts = [(name, pa.string() if pa.types.is_temporal(kind) else kind) for name, kind in kinds.items()]
            numbers = {name for name, kind in kinds.items() if pa.types.is_integer(kind) or pa.types.is_floating(kind)}
            by = by or next((name for name in spec.aggregates if name in numbers), None)
            for whole in parquet.iter_batches():
                several = spec.covered.several
                batch = whole.filter(pc.equal(whole[WINDOW_COLUMN], several[-1])) if several else whole
                order = None if by is None else pc.sort_indices(batch, sort_keys=[(by, "descending")])
                first = (batch if order is None else batch.take(order[:_SHOWN])).slice(0, _SHOWN)
                rows = [*best, *first.cast(pa.schema(texts)).to_pylist()]
                best = rows[:_SHOWN] if by is None else heapq.nlargest(_SHOWN, rows, key=lambda row: row[by] or 0)
    return by, best


#: The signs of a value that are shown at most, and of the bar that shows when a part of a step ran.
_WIDEST, _BAR = 48, 40


def show(run: RunDirectory, console: Console) -> None:
    """Print a run, as far as it has been run: first how it stands."""
    state = state_now(run)
    others = f"; {readers_have(run.job())}" if state.word == "failed" and last_step_of(run.job().spec).publishes else ""
    say(console, f"{run.job().spec.name}, {run.job().part}: {state.sentence}{others}", state.kind)
    for line in quality.failures(len(run.job().spec.quality.expectations)) if (quality := run.quality()) else ():
        say(console, f"  {line}")
    if (savings := run.savings()) is not None:
        say(console, savings.sentence)
    _hottest(run, console)
    if run.job().source.pinned is not None:
        say(console, f"input: {run.job().extent}")
    if run.job().skipped:
        say(console, run.job().skipped_words)
    _stages(run, console)
    _window(run, console)
    _ledger(run, console)
    _quality(run, console)
    if (comparison := run.comparison()) is not None:
        say(console, f"compared with {comparison.beside}:")
        for line in comparison.lines:
            say(console, f"  {line}")
    _paths(run, console)


def _hottest(run: RunDirectory, console: Console) -> None:
    by, rows = hottest(run)
    if not rows:
        console.print("its result has no row" if run.commit_of(RESULT_STEP) else "it has no result")
        return
    table = Table(title=f"hottest keys by {escape(by)}" if by else "keys", title_justify="left")
    for name in rows[0]:
        numeric = isinstance(rows[0][name], int | float | Decimal)
        justify: Literal["left", "right"] = "right" if numeric else "left"
        # One long list would leave no room for the columns before it.
        table.add_column(escape(name), justify=justify, overflow="ellipsis", no_wrap=True, max_width=_WIDEST)
    for row in rows:
        table.add_row(*(escape(_cell(value)) for value in row.values()))
    console.print(table)


def _cell(value: Any) -> str:
    match value:
        case str():
            text = value if value.isprintable() and value else repr(value)
        case int() | Decimal() if not isinstance(value, bool):
            text = f"{value:,}"
        case float():
            text = f"{value:,.2f}"
        case dt.date():
            text = str(value)
        case _:
            text = json.dumps(value, default=str)
    return text


def _stages(run: RunDirectory, console: Console) -> None:
    """One line per stage. It is never cut: the decision comes last, and may be long."""
    lines = stage_lines(run)
    head = ("stage", "admitted", "processed", "backlog", "forwarded", "max/mean", "above best", "seconds")
    cells = [
        (
            str(line["stage"]),
            *(f"{line[f'{name}_rows']:,}" for name in ("admitted", "processed", "backlog", "forwarded")),
            figure(line["max_over_mean"], ".3f"),
            figure(line["gap_to_bound"], ".1%"),
            figure(line["seconds"], ".1f"),
        )
        for line in lines
    ]
    widths = [max(len(row[column]) for row in (head, *cells)) for column in range(len(head))]
    decisions = ["decision after it", *(line["decision"] or "" for line in lines)]
    for row, decision in zip((head, *cells), decisions, strict=True):
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        say(console, f"{numbers}  {decision}")
    for line in lines:
        if done := line.get("clusters"):
            tasks = ", ".join(f"{count:,} by {cluster}" for cluster, count in done.items())
            say(console, f"virtual tasks of stage {line['stage']}: {tasks}")
    whole = run_certificate(run.job(), run.reports())
    say(
        console,
        f"whole run: the largest tasks of all stages together {figure(whole.makespan_rows, ',.0f')}, "
        f"fair share {whole.fair_rows:,.0f} rows: {whole.conclusion}",
    )


def figure(number: float | None, form: str) -> str:
    """A measured figure, or "not measured"."""
    return "not measured" if number is None else format(number, form)


def _window(run: RunDirectory, console: Console) -> None:
    window, ledger = run.job().window, ledger_of(run)
    if window is None:
        return
    changed = ", ".join(f"{count:,} {name}" for name, count in window.counts().items())
    missing = f"; without files: {window.missing_words}" if window.missing_count else ""
    say(
        console,
        f"window: {len(window.parts):,} parts; files: {changed}; {rows_read(run):,} rows read, "
        f"{ledger.unchanged_rows:,} rows in kept states{missing}",
    )
    for line in ledger.windows if len(ledger.windows) > 1 else ():
        say(console, f"  window {line.name}: {counted(line.rows, 'row')}, {counted(line.keys, 'key')}")
    ways = Counter(part.way for part in window.parts)
    say(console, f"parts: {', '.join(f'{ways[way]:,} {way}' for way in get_args(Way) if ways[way])}")
    if window.ignored_files:
        left_out = "an unknown number of" if window.ignored_rows is None else f"{window.ignored_rows:,}"
        say(console, f"late: {window.ignored_files:,} files with {left_out} rows were left out (late: ignore)")
    for sentence in filter(None, (window.begins, window.newest_file)):
        say(console, sentence)
    rows = {line.part: f", {line.new_rows:,} rows read" for line in ledger.parts}
    for part, delay in window.late():
        count = part.came_rows
        late = "late rows not counted" if count is None else f"{count:,} late rows"
        when = f"{'changed after' if count == 0 else 'late by'} {counted(delay, 'part')}"
        say(console, f"{when}: {part.name}, {part.way}, {late}{rows.get(part.name, '')}")
    for part in window.parts:
        for reason in part.reasons if part.before_rows else ():
            say(console, f"  {part.name}: {reason}{', and left out' if part.ignored_files else ''}")
    _merged(run, console)


def _merged(run: RunDirectory, console: Console) -> None:
    if plan := plan_of(run):
        say(console, f"states of parts: {plan.sentence}")
        for fault in plan.passed_over:
            say(console, f"  passed over: {fault}")
    for sentence in finality.sentences if (finality := run.finality()) is not None else ():
        say(console, sentence)


def _ledger(run: RunDirectory, console: Console) -> None:
    ledger = ledger_of(run)
    processed = sum(line.processed_rows for line in ledger.lines)
    verdict = "balances" if ledger.balanced else "DOES NOT BALANCE: " + "; ".join(ledger.problems)
    say(
        console,
        f"ledger: {ledger.input_rows:,} rows in the input, {processed:,} processed, "
        f"{ledger.state_rows:,} in the states: {verdict}",
    )


def _quality(run: RunDirectory, console: Console) -> None:
    quality = run.quality()
    if quality is None:
        console.print("data quality: not validated")
        return
    held = sum(check.success for check in quality.checks)
    told = f"data quality: {quality.verdict.sentence}, {held} of {len(quality.checks)} checks passed"
    say(console, told, quality.verdict.kind)
    for line in quality.warnings(len(run.job().spec.quality.expectations)):
        say(console, f"  {line}")
    for line in quality.bands.sentences if quality.bands else ():
        say(console, f"  {line}")


def _fate(record: Publication | None, last: LastStep) -> str:
    if record is None:
        return "not published" if last.publishes else "nothing is published: the spec has shadow"
    if record.superseded is not None:
        over = record.superseded
        return (
            f"superseded: {record.path} is of a later run, {over.by.run} (turn {over.turn}; this one has {record.turn})"
        )
    return record.path if record.snapshot is None else f"{record.path}, snapshot {record.snapshot}"


def _paths(run: RunDirectory, console: Console) -> None:
    record, commit = record_of(run), run.commit_of(QUALITY_STEP)
    folder = run.path(f"{QUALITY_STEP}/attempts/{commit.attempt}") if commit else ""
    say(console, f"result:         {_fate(record, last_step_of(run.job().spec))}")
    say(console, f"quality report: {f'{folder}/report.html' if commit else 'none'}")
    say(console, f"run directory:  {run}")


def times_as_object(run: RunDirectory) -> list[dict[str, Any]]:
    """The object of ``skewless show --times --json``: the steps as they were recorded, and the seconds before each."""
    steps = times_of(run)
    ends = [None, *(step.ended for step in steps)]
    return [
        {
            **step.model_dump(mode="json", exclude={"version"}),
            "unmeasured_seconds": round(step.unmeasured, 3),
            "seconds_after_last_step": None if end is None else round(step.started - end, 3),
        }
        for step, end in zip(steps, ends, strict=False)
    ]


def show_times(run: RunDirectory, console: Console) -> None:
    """Print the steps of a run, as far as their times were recorded."""
    steps = times_of(run)
    if not steps:
        console.print("no step of this run has recorded its times")
        return
    whole = max(step.ended for step in steps) - steps[0].started
    console.print(f"{'seconds':>9}  {whole:.1f} s from the first step's start to the last one's end")
    for line in waterfall(steps):
        tasks = "" if line.tasks is None else f", {counted(line.tasks, 'task')}"
        bar, scale = "", _BAR / max(whole, 1e-3)
        if line.start is not None:
            first = min(_BAR - 1, int(line.start * scale))
            bar = " " * first + "#" * min(max(1, round(line.seconds * scale)), _BAR - first)
        text = f"{line.seconds:>9.2f}  {'  ' * line.depth + line.name + tasks:<36}  {bar}"
        say(console, text.rstrip())
