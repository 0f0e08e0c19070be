"""A run on a terminal: hottest keys, one line per stage, the ledger, the verdict, the paths."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from skewless.run_directory import QUALITY_STEP, RunDirectory
from skewless_spark import run_summary


def show(run: RunDirectory, console: Console) -> None:
    """Print a run, as far as it has come."""
    _hottest(run, console)
    _stages(run, console)
    _ledger(run, console)
    _quality(run, console)
    _paths(run, console)


def _hottest(run: RunDirectory, console: Console) -> None:
    by, rows = run_summary.hottest(run)
    if not rows:
        console.print("no result yet, or an empty one")
        return
    table = Table(title=f"hottest keys by {escape(by)}" if by else "keys", title_justify="left")
    for name in rows[0]:
        numeric = isinstance(rows[0][name], int | float)
        table.add_column(escape(name), justify="right" if numeric else "left", overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(_cell(value)) for value in row.values()))
    console.print(table)


def _cell(value: Any) -> str:
    """A value of the result: numbers as people write them, keys with their odd characters visible."""
    match value:
        case None:
            return "null"
        case bool() | str():
            return value if str(value).isprintable() and value != "" else repr(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.2f}"
        case [{"x": _, "y": _}, *_]:
            return _sparkline([(point["x"], point["y"]) for point in value])
        case _:
            return json.dumps(value, default=str)


def _sparkline(points: list[tuple[float, float]]) -> str:
    """A histogram as its range and the heights of its bins."""
    highest = max(height for _, height in points) or 1
    bars = "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * height / highest))] for _, height in points)
    return f"{points[0][0]:.0f} {bars} {points[-1][0]:.0f}"


def _stages(run: RunDirectory, console: Console) -> None:
    table = Table(title="stages", title_justify="left")
    for name in ("stage", "admitted", "forwarded", "processed", "backlog", "max/mean", "gap", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("decision after it", ratio=1, min_width=24)
    for line in run_summary.stage_lines(run):
        table.add_row(
            str(line["stage"]),
            *(f"{line[f'{name}_rows']:,}" for name in ("admitted", "forwarded", "processed", "backlog")),
            f"{line['max_over_mean']:.3f}",
            f"{line['gap_to_bound']:.1%}",
            f"{line['seconds']:.1f}",
            escape(line["decision"] or ""),
        )
    console.print(table)
    whole = run_summary.overall(run)
    console.print(
        f"whole run: largest loads of all stages {whole['makespan_rows']:,.0f} rows, "
        f"fair share {whole['fair_rows']:,.0f}, gap to the bound {whole['gap']:.1%}: {escape(whole['conclusion'])}"
    )


def _ledger(run: RunDirectory, console: Console) -> None:
    ledger = run_summary.ledger_of(run)
    processed = sum(line.processed_rows for line in ledger.lines)
    verdict = "balances" if ledger.balanced else "DOES NOT BALANCE: " + "; ".join(ledger.problems)
    console.print(
        f"ledger: {ledger.input_rows:,} rows in the input, {processed:,} processed, "
        f"{ledger.state_rows:,} in the states: {escape(verdict)}"
    )


def _quality(run: RunDirectory, console: Console) -> None:
    quality = run_summary.quality_of(run)
    if quality is None:
        console.print("data quality: not validated yet")
        return
    failed = [check for check in quality.checks if not check.success]
    verdict = "passed" if quality.success else "FAILED"
    console.print(f"data quality: {verdict}, {len(quality.checks) - len(failed)} of {len(quality.checks)} expectations held")
    for check in failed:
        console.print(f"  {escape(check.sentence)}")


def _paths(run: RunDirectory, console: Console) -> None:
    publication = run_summary.publication_of(run)
    commit = run.commit_of(QUALITY_STEP)
    report = run.path(f"{QUALITY_STEP}/attempts/{commit.attempt}/result.json") if commit else "none"
    console.print(f"result:         {escape(publication.path if publication else 'not published')}", soft_wrap=True)
    console.print(f"quality report: {escape(report)}", soft_wrap=True)
    quality = run_summary.quality_of(run)
    if commit and quality and quality.data_docs:
        docs = run.path(f"{QUALITY_STEP}/attempts/{commit.attempt}/{quality.data_docs}")
        console.print(f"data docs:      {escape(docs)}", soft_wrap=True)
    console.print(f"run directory:  {escape(str(run))}", soft_wrap=True)
