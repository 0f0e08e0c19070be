"""How time, memory and bytes grow with tasks, keys, files and workers: ``make bench ONLY=growth``.

Each rung of a ladder runs in a process of its own, a larger one only if the last one was short. The slope of a line
through the logarithms says what a size beyond the ladder would take: 1 where twice the size takes twice as long. What
is not measured is marked as extrapolated, and a size that specs refuse is told as refused.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.planning import _peak_mib
from benchmarks.result_files import PROJECT, Verdict, as_documents, in_words, machine, page_of, table
from benchmarks.simulation import simulated_job
from skewless.document import Document
from skewless.documents.commit import CommittedFile
from skewless.documents.job import Job, Unit
from skewless.documents.stage_report import Decision, Histogram, StageReport, TaskLoad
from skewless.planner.first_plan import first_plan
from skewless.planner.planner import plan_next_stage
from skewless.routing.plan import RoutingPlan
from skewless.run.directory import RunDirectory
from skewless.spec.input import Input
from skewless_leases.decisions import assign
from skewless_spark.sources.listing import list_input

NAME = "growth"
#: A rung is left out if the last one took more than this, and what one may take at the target at most.
RUNG_SECONDS, AIM_SECONDS, AIM_GIB, AIM_SLOPE = 6.0, 60.0, 4.0, 1.2
_SPEC_REDUCERS, _SPEC_KEYS, _ROWS = 10_000, 100_000, 1_000_000_000

#: Seconds and bytes of the steps of a rung, by name.
Figures = dict[str, float]


class Subject(NamedTuple):
    """Something that grows.

    Attributes:
        of: what its sizes count.
        sizes: the ladder, ascending.
        target: the size that is asked for.
        run: does it once at a size and says how long each of its steps took.
        limit: the largest size that a spec may ask for, if there is one.
    """

    of: str
    sizes: Sequence[int]
    target: int
    run: Callable[[int], Figures]
    limit: int | None = None


def _timed(figures: Figures, name: str, act: Callable[[], Any]) -> Any:
    began = time.process_time()
    found = act()
    figures[name] = figures.get(name, 0.0) + time.process_time() - began
    return found


def _stored(document: Document, figures: Figures) -> Figures:
    text = _timed(figures, "write", document.sealed).encode()
    figures["bytes"] = len(text)
    _timed(figures, "read", lambda: type(document).from_sealed(text))
    return figures


def report_of(plan: RoutingPlan, keys: int) -> StageReport:
    """A stage of so many head keys, by Zipf, that left a hundredth of its rows over."""
    count, slots = plan.task_count, 1 << plan.ring.ring_bits
    seen = np.maximum(1, _ROWS / 2 / np.arange(1, keys + 1) / (1 + np.log(max(1, keys)))).astype(np.int64)
    tail = np.full(slots, (_ROWS - int(seen.sum())) // slots, dtype=np.int64)
    rows = int(seen.sum() + tail.sum())
    each = rows // count
    loads = (
        TaskLoad(
            task=name, queued_rows=each + n % 97, processed_rows=each + n % 97, backlog_rows=0, states=1,
            busy_seconds=float(n % 7 + 1),
        )
        for n, name in enumerate(plan.task_names)
    )  # fmt: skip
    head = dict(sorted((f"key-{number}", (one, 0)) for number, one in enumerate(seen.tolist())))
    return StageReport(
        stage=plan.epoch, waves=plan.waves, admitted_rows=rows, backlog_in_rows=0, forwarded_rows=0,
        processed_rows=rows, backlog_rows=0, stage_seconds=60.0, tasks=tuple(loads),
        histogram=Histogram(
            seen_rows=rows, seen_null_rows=0, backlog_null_rows=0, head=head, seen_tail=tail,
            backlog_tail=np.zeros(slots, dtype=np.int64),
        ),
    )  # fmt: skip


def _run(tasks: int, keys: int) -> tuple[Job, RoutingPlan, StageReport]:
    reducers = min(tasks, _SPEC_REDUCERS)
    job = simulated_job([_ROWS // 1000] * 1000, reducers=reducers, head_limit=min(keys, _SPEC_KEYS), slots=10_000)
    plan = first_plan(job)
    if tasks > reducers:  # as the policies split tasks
        plan = plan.model_copy(
            update={"factors": dict.fromkeys(range(reducers), tasks // reducers), "expected_rows": ()}
        )
    return job, plan, report_of(plan, keys)


def _planned(tasks: int, keys: int) -> Figures:
    figures: Figures = {}
    job, plan, report = _run(tasks, keys)
    decision: Decision = _timed(figures, "plan", lambda: plan_next_stage(job, plan, report))
    return _stored(decision, figures)


def _reported(tasks: int, keys: int) -> Figures:
    return _stored(_run(tasks, keys)[2], {})


def _pinned(files: int) -> Figures:
    job = simulated_job([1], reducers=8)
    units = (
        Unit(path=f"/lake/events/day=2026-11-20/part-{n:06d}-5e1c.parquet", rows=n % 1000, size_bytes=100_000_000,
             version=f"stat:17635968{n:010d}:17635968{n:010d}:{n}")
        for n in range(files)
    )  # fmt: skip
    fields = {name: getattr(job, name) for name in Job.model_fields}
    figures: Figures = {}
    frozen = _timed(figures, "make", lambda: Job(**{**fields, "units": tuple(units), "waves": (tuple(range(files)),)}))
    return _stored(frozen, figures)


def _committed(files: int) -> Figures:
    figures: Figures = {}
    with tempfile.TemporaryDirectory() as scratch:
        run = RunDirectory(scratch)
        attempt = run.new_attempt("stages/0000")
        named = [
            CommittedFile(kind="states", path=f"{attempt.folder}/states/part-{n:06d}.parquet", rows=n, size_bytes=n,
                          checksum=f"{n:064x}")
            for n in range(files)
        ]  # fmt: skip
        _timed(figures, "commit", lambda: attempt.commit(named, {"rows": 1}))
        return _stored(run.committed("stages/0000"), figures)


def _listed(files: int) -> Figures:
    figures: Figures = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(files):
            (Path(scratch) / f"part-{number:06d}.txt").write_bytes(b"a\n")
        _timed(figures, "list", lambda: list_input(Input(path=scratch, format="text"), scratch))
    return figures


def _leased(workers: int) -> Figures:
    figures: Figures = {}
    names = [f"worker-{number}" for number in range(workers)]
    held = {name: [f"p-{at}-{n}" for n in range(20 if at % 2 else 0)] for at, name in enumerate(names)}
    loads = {name: float(len(some)) for name, some in held.items()}
    free = [f"free-{number}" for number in range(workers)]
    weights = dict.fromkeys([*free, *(name for some in held.values() for name in some)], 1.0)
    _timed(figures, "assign", lambda: assign(free, loads, dict.fromkeys(names, 1000), held, weights))
    return figures


SUBJECTS: Mapping[str, Subject] = {
    "planner, tasks": Subject("tasks", (100, 1_000, 10_000, 80_000), 100_000, lambda n: _planned(n, 10_000), 80_000),
    "planner, head keys": Subject(
        "head keys", (1_000, 10_000, 100_000, 1_000_000), 10_000_000, lambda n: _planned(1_000, n), _SPEC_KEYS
    ),
    "report, tasks": Subject("tasks", (100, 1_000, 10_000, 80_000), 100_000, lambda n: _reported(n, 1_000), 80_000),
    "report, head keys": Subject(
        "head keys", (1_000, 10_000, 100_000, 1_000_000), 10_000_000, lambda n: _reported(100, n), _SPEC_KEYS
    ),
    "job": Subject("files", (1_000, 10_000, 100_000, 1_000_000), 1_000_000, _pinned),
    "commit": Subject("files", (1_000, 10_000, 100_000, 1_000_000), 1_000_000, _committed),
    "listing": Subject("files", (1_000, 5_000, 20_000), 1_000_000, _listed),
    "leases": Subject("workers", (10, 100, 1_000, 10_000), 10_000, _leased),
}


def measure(subjects: Mapping[str, Subject] = SUBJECTS, *, apart: bool = True) -> dict[str, Any]:
    """All ladders, each rung in a process of its own if ``apart``."""
    lines = [line for name in subjects for line in _ladder(name, subjects[name], apart=apart)]
    found = [told for name in subjects if (told := at_target(name, subjects[name], lines))]
    aims = [
        Verdict(f"{one['step']}: {figure}", f"{one['subject']}, {one['asked']:,}", one[figure], limit)
        for one in found
        for figure, limit in (("seconds", AIM_SECONDS), ("gib", AIM_GIB), ("slope", AIM_SLOPE))
    ]
    return {"verdicts": as_documents(aims), "setting": machine(numpy="numpy"), "lines": lines, "at_target": found}


def _ladder(name: str, subject: Subject, *, apart: bool) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for size in subject.sizes:
        lines.append({"subject": name, "size": size, **(_apart(name, size) if apart else _rung(subject, size))})
        if max(lines[-1]["steps"].values()) > RUNG_SECONDS:
            break
    return lines


def _rung(subject: Subject, size: int) -> dict[str, Any]:
    before = _peak_mib()
    steps = subject.run(size)
    written = steps.pop("bytes", None)
    return {
        "steps": {step: round(seconds, 4) for step, seconds in steps.items()},
        "bytes": written, "grown_mib": _peak_mib() - before,
    }  # fmt: skip


def _apart(name: str, size: int) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.growth", "--subject", name, "--size", str(size)]
    made = subprocess.run(words, check=True, stdout=subprocess.PIPE, cwd=PROJECT)  # noqa: S603
    found: dict[str, Any] = json.loads(made.stdout)
    return found


def slope_of(sizes: Sequence[float], figures: Sequence[float]) -> float:
    """The slope of the line through the logarithms of the two largest decades, in which what is fixed matters least."""
    some = [(size, figure) for size, figure in zip(sizes, figures, strict=True) if figure > 0][-3:]
    if len(some) < 2:
        return 0.0
    across, along = np.log(np.array(some)).T
    return float(np.polyfit(across, along, 1)[0])


def at_target(name: str, subject: Subject, lines: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """What the slowest step takes at the size that is asked for, or at the largest that specs allow."""
    mine = [line for line in lines if line["subject"] == name]
    sizes, last = [line["size"] for line in mine], mine[-1]
    asked = min(subject.target, subject.limit or subject.target)
    step = max(last["steps"], key=lambda one: float(last["steps"][one]))
    slope = slope_of(sizes, [line["steps"][step] for line in mine])
    of_memory = slope_of(sizes, [line["grown_mib"] for line in mine])
    near = next((line for line in mine if line["size"] == asked), last)
    times = asked / near["size"]
    return {
        "subject": name, "of": subject.of, "step": step, "slope": round(slope, 2), "asked": asked,
        "target": subject.target, "measured_to": last["size"], "extrapolated": near["size"] != asked,
        "seconds": round(near["steps"][step] * times ** max(slope, 0.0), 2),
        "gib": round(near["grown_mib"] / 1024 * times ** max(of_memory, 0.0), 2),
    }  # fmt: skip


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    order = sorted(document["at_target"], key=lambda one: -max(one["seconds"] / AIM_SECONDS, one["gib"] / AIM_GIB))
    first = table(
        ("what", "at", "step", "s", "GiB", "slope", ""),
        [
            (one["subject"], f"{one['asked']:,} {one['of']}", one["step"], f"{one['seconds']:.2f}", f"{one['gib']:.2f}",
             f"{one['slope']:.2f}", _remark(one))
            for one in order
        ],
    )  # fmt: skip
    about = (
        "For 10,000 executors, 100,000 virtual tasks, 10 million head keys and a million files a night: the slowest"
        f" step of each, what is nearest to its limit ({AIM_SECONDS:g} s, {AIM_GIB:g} GiB) first. Seconds of a"
        f" processor; memory is what a fresh process grew by. Setting: {in_words(document['setting'])}."
    )
    return page_of("Growth", about, first)


def _remark(one: Mapping[str, Any]) -> str:
    words = [f"extrapolated from {one['measured_to']:,}"] if one["extrapolated"] else []
    return "; ".join([*words, *([f"specs refuse {one['target']:,}"] if one["asked"] < one["target"] else [])])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subject", required=True, choices=SUBJECTS)
    parser.add_argument("--size", type=int, required=True)
    given = parser.parse_args()
    print(json.dumps(_rung(SUBJECTS[given.subject], given.size)))
