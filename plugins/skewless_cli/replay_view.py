"""A run under other policies: replayed from its documents, as a table for people and as one object for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from skewless.documents.bill import AS_IT_RAN, ERROR_WORDS
from skewless.errors import PlanError, SpecError, nearest
from skewless.planner.policies import POLICIES
from skewless.run.directory import RunDirectory
from skewless_cli import say
from skewless_cli.run_view import figure
from skewless_lake.replays import replayed


def policies_of(text: str | None) -> tuple[str, ...]:
    """The policies of a list like ``static,adaptive``; without a list, all policies.

    Raises:
        SpecError: a policy is unknown; the error names the first.
    """
    if text is None:
        return tuple(POLICIES)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in POLICIES:
            raise SpecError("--policies", "known policies", repr(name), nearest(name, POLICIES))
    return names


def as_object(run: RunDirectory, policies: Sequence[str]) -> dict[str, Any]:
    """The object of ``skewless replay --json``: the run as it was, and under each policy.

    A policy that has no safe plan or no ring for the job is named under ``refused``.

    Raises:
        PlanError: the run is not finished.
    """
    lines, refused = [replayed(run, AS_IT_RAN).model_dump(mode="json", exclude={"version"})], []
    for policy in policies:
        try:
            lines.append(replayed(run, policy).model_dump(mode="json", exclude={"version"}))
        except (PlanError, SpecError) as err:
            refused.append({"policy": policy, "reason": str(err)})
    return {"run_dir": str(run), "policies": lines, "refused": refused}


def show(replays: dict[str, Any], console: Console) -> None:
    """Print the object that ``as_object`` returns."""
    table = Table(title=f"replayed: {escape(replays['run_dir'])}", title_justify="left")
    table.add_column("policy", no_wrap=True)
    for name in ("makespan/bound", "S", "imbalance", "in the mean", "forwarded", "states", "stages"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in replays["policies"]:
        table.add_row(*_cells(line))
    console.print(table)
    if any(line["error"] for line in replays["policies"]):
        say(console, ERROR_WORDS)
    for line in replays["policies"]:
        for stage, sentence in enumerate(line["decisions"], start=1):
            say(console, f"{line['policy']}, stage {stage}: {sentence}")
    for refusal in replays["refused"]:
        say(console, f"{refusal['policy']}: not played: {refusal['reason']}")


def _cells(line: dict[str, Any]) -> tuple[str, ...]:
    error = f" ± {line['error']:.0%}" if line["error"] else ""
    return (
        escape(line["policy"]),
        figure(line["makespan_over_bound"], ".3f") + error,
        figure(line["s"], ".4f"),
        figure(line["imbalance_final"], ".3%"),
        figure(line["imbalance_fraction"], ".3%"),
        *(figure(line[name], ",") for name in ("rows_forwarded", "states", "stages")),
    )
