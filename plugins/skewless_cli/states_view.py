"""The standing states of a job: each part with its versions, rows and files; and what a prune removes of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from skewless.errors import SpecError
from skewless.run.storage import Storage
from skewless.spec.spec import JobSpec
from skewless.standing.states_retention import HeldPart, StatesLimits, doomed_states, held_parts, remove_states
from skewless_cli import say

_HEAD = f"{'part':<15} {'version':>7} {'of':>3} {'files':>6} {'rows':>15} {'states':>13} {'bytes':>15}  made by"


def location_of(spec: JobSpec, where: str, root: str) -> str:
    """The folder of the states of a job; a ``SpecError`` if the job keeps no states."""
    if not spec.lengths:
        raise SpecError(where, "a job that keeps states", "one without", "add window: 7, for example, or window: 1")
    from skewless_spark.windows.found import states_location  # noqa: PLC0415  # imports Spark

    return states_location(spec, root)


def as_object(location: str) -> dict[str, Any]:
    """The object of ``skewless states --json``."""
    return {"states_path": location, "parts": [_told(one) for one in held_parts(location)]}


def _told(held: HeldPart) -> dict[str, Any]:
    told = {
        "fingerprint": held.fingerprint,
        "part": held.part,
        "version": held.newest,
        "versions": held.versions,
        "damaged": held.version is None,
    }
    if held.version is None:
        return told
    return {
        **told,
        "files": len(held.version.files),
        "rows": held.version.rows,
        "states": sum(file.rows for file in held.version.states),
        "bytes": sum(file.size_bytes for file in held.version.states),
        "run": held.version.run,
    }


def show(location: str, console: Console) -> None:
    """Print the parts that have states, by fingerprint."""
    held = held_parts(location)
    if not held:
        console.print(f"no states are kept in {location} yet", markup=False, soft_wrap=True)
    fingerprint = ""
    for one in held:
        if one.fingerprint != fingerprint:
            fingerprint = one.fingerprint
            say(console, f"states {location}/{fingerprint}")
            say(console, _HEAD)
        told = _told(one)
        line = f"{one.part:<15} {one.newest:>7} {one.versions:>3} "
        if told["damaged"]:
            line += "damaged: the next run that needs this part reduces it anew"
        else:
            line += f"{told['files']:>6,} {told['rows']:>15,} {told['states']:>13,} {told['bytes']:>15,}  {told['run']}"
        say(console, line)


def prune(location: str, spec: JobSpec, now: dt.datetime, *, dry_run: bool) -> Iterator[str]:
    """Remove the states that are not kept any more; a sentence for each, and one for all."""
    limits = StatesLimits(parts=spec.covered.kept_parts)
    doomed = doomed_states(location, now, limits)
    told = "dry run: " if dry_run else ""
    for one in doomed:
        yield f"{told}remove {one.path} ({one.size_bytes:,} bytes): {one.reason}"
    if not dry_run:
        remove_states(location, doomed, now, limits)
    yield f"{told}{len(doomed):,} files of {sum(one.size_bytes for one in doomed):,} bytes in {Storage(location)}"
