"""A run on a terminal: hottest keys, one line per stage, the ledger, the verdict, the paths; and where time went."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Literal, get_args

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from skewless.documents.window import Way
from skewless.publication.records import Publication, record_of
from skewless.run.certificate import run_certificate
from skewless.run.directory import QUALITY_STEP, RunDirectory
from skewless.run.step_names import LastStep, last_step_of
from skewless.run.step_times import times_of, waterfall
from skewless.standing.tree import plan_of
from skewless_cli import run_summary, say

#: The signs of a value that are shown at most.
_WIDEST = 48
#: Columns of the bar that shows when a part of a step ran.
_BAR = 40


def show(run: RunDirectory, console: Console) -> None:
    """Print a run, as far as it has been run."""
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
    _comparison(run, console)
    _paths(run, console)


def _hottest(run: RunDirectory, console: Console) -> None:
    by, rows = run_summary.hottest(run)
    if not rows:
        console.print("no result yet, or an empty one")
        return
    table = Table(title=f"hottest keys by {escape(by)}" if by else "keys", title_justify="left")
    for name in rows[0]:
        numeric = isinstance(rows[0][name], int | float)
        justify: Literal["left", "right"] = "right" if numeric else "left"
        # One long list would leave no room for the columns before it.
        table.add_column(escape(name), justify=justify, overflow="ellipsis", no_wrap=True, max_width=_WIDEST)
    for row in rows:
        table.add_row(*(escape(_cell(value)) for value in row.values()))
    console.print(table)


def _cell(value: Any) -> str:
    """A value of the result: a number with separators, a key with unprintable characters escaped."""
    match value:
        case str():
            text = value if value.isprintable() and value else repr(value)
        case int() if not isinstance(value, bool):
            text = f"{value:,}"
        case float():
            text = f"{value:,.2f}"
        case [{"x": _, "y": _}, *_]:
            text = _sparkline([(point["x"], point["y"]) for point in value])
        case _:
            text = json.dumps(value, default=str)
    return text


def _sparkline(points: list[tuple[float, float]]) -> str:
    """A histogram as its range and the heights of its bins."""
    highest = max(height for _, height in points) or 1
    bars = "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * height / highest))] for _, height in points)
    return f"{points[0][0]:.0f} {bars} {points[-1][0]:.0f}"


def _stages(run: RunDirectory, console: Console) -> None:
    """One line per stage. It is never cut: the decision comes last, and may be long."""
    lines = run_summary.stage_lines(run)
    head = ("stage", "admitted", "processed", "backlog", "forwarded", "max/mean", "above best", "seconds")
    cells = [
        (
            str(line["stage"]),
            *(f"{line[f'{name}_rows']:,}" for name in ("admitted", "processed", "backlog", "forwarded")),
            figure(line["max_over_mean"], ".3f"),
            figure(line["gap_to_bound"], ".1%"),
            f"{line['seconds']:.1f}",
        )
        for line in lines
    ]
    widths = [max(len(row[column]) for row in (head, *cells)) for column in range(len(head))]
    said = ["decision after it", *(line["decision"] or "" for line in lines)]
    for row, words in zip((head, *cells), said, strict=True):
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        say(console, f"{numbers}  {words}")
    for line in lines:
        if done := line.get("clusters"):
            told = ", ".join(f"{tasks:,} by {cluster}" for cluster, tasks in done.items())
            console.print(f"virtual tasks of stage {line['stage']}: {told}", markup=False, highlight=False)
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
    """The parts of a window: what was reused, what was read, what came late, and why."""
    window, ledger = run.job().window, run_summary.ledger_of(run)
    if window is None:
        return
    changed = ", ".join(f"{count:,} {name}" for name, count in window.counts().items())
    missing = f"; without files: {window.missing_words}" if window.missing_count else ""
    say(
        console,
        f"window: {len(window.parts):,} parts; files: {changed}; {run_summary.rows_read(run):,} rows read, "
        f"{ledger.unchanged_rows:,} rows in kept states{missing}",
    )
    for line in ledger.windows if len(ledger.windows) > 1 else ():
        say(console, f"  window {line.name}: {line.rows:,} rows, {line.keys:,} keys")
    ways = Counter(part.way for part in window.parts)
    say(console, f"parts: {', '.join(f'{ways[way]:,} {way}' for way in get_args(Way) if ways[way])}")
    if window.ignored_files:
        left_out = "an unknown number of" if window.ignored_rows is None else f"{window.ignored_rows:,}"
        say(console, f"late: {window.ignored_files:,} files with {left_out} rows were left out (late: ignore)")
    for sentence in filter(None, (window.begins, window.newest_file)):
        say(console, sentence)
    rows = {line.part: f", {line.new_rows:,} rows read" for line in ledger.parts}
    for part, delay in window.late():
        count = part.ignored_rows if part.ignored_files else part.late_rows
        late = "late rows not counted" if count is None else f"{count:,} late rows"
        parts = "1 part" if delay == 1 else f"{delay:,} parts"
        say(console, f"late by {parts}: {part.name}, {part.way}, {late}{rows.get(part.name, '')}")
    for part in window.parts:
        for reason in part.reasons if part.before_rows else ():
            say(console, f"  {part.name}: {reason}{', and left out' if part.ignored_files else ''}")
    _states(run, console)
    for sentence in finality.sentences if (finality := run.finality()) is not None else ():
        say(console, sentence)


def _ledger(run: RunDirectory, console: Console) -> None:
    ledger = run_summary.ledger_of(run)
    processed = sum(line.processed_rows for line in ledger.lines)
    verdict = "balances" if ledger.balanced else "DOES NOT BALANCE: " + "; ".join(ledger.problems)
    say(
        console,
        f"ledger: {ledger.input_rows:,} rows in the input, {processed:,} processed, "
        f"{ledger.state_rows:,} in the states: {verdict}",
    )


def _states(run: RunDirectory, console: Console) -> None:
    """Of how many states each window was merged."""
    plan = plan_of(run)
    if plan is None:
        return
    say(console, f"states of parts: {plan.sentence}")
    for fault in plan.passed_over:
        say(console, f"  passed over: {fault}")


def _quality(run: RunDirectory, console: Console) -> None:
    quality = run.quality()
    if quality is None:
        console.print("data quality: not validated yet")
        return
    own = len(run.job().spec.quality.expectations)
    failed = quality.failures(own)
    verdict = "passed" if quality.success else "FAILED"
    held = sum(check.success for check in quality.checks)
    console.print(f"data quality: {verdict}, {held} of {len(quality.checks)} checks passed", highlight=False)
    for line in [*failed, *quality.warnings(own)]:
        say(console, f"  {line}")
    for line in quality.bands.sentences if quality.bands else ():
        say(console, f"  {line}")


def _comparison(run: RunDirectory, console: Console) -> None:
    found = run.comparison()
    if found is not None:
        say(console, f"compared with {found.beside}:")
        for line in found.lines:
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
    say(console, f"quality report: {f'{folder}/report.html' if commit else 'none yet'}")
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
        tasks = "" if line.tasks is None else f", {line.tasks:,} tasks"
        bar = "" if line.start is None else _bar(line.start, line.seconds, whole)
        text = f"{line.seconds:>9.2f}  {'  ' * line.depth + line.name + tasks:<36}  {bar}"
        say(console, text.rstrip())


def _bar(start: float, seconds: float, whole: float) -> str:
    scale = _BAR / max(whole, 1e-3)
    first = min(_BAR - 1, int(start * scale))
    return " " * first + "#" * min(max(1, round(seconds * scale)), _BAR - first)
