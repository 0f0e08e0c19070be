"""What a decision costs with 10,000 tasks and 100,000 head keys: ``make bench ONLY=planning``.

A run is simulated, and each of its decisions is made once more in a fresh process that reads the run directory, as a
decision task does. Seconds are those of the processor, so that other processes on the machine count little.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result_files import PROJECT, Verdict, as_documents, in_words, machine, page_of, table
from benchmarks.simulation import Simulation, simulated_job
from benchmarks.workloads import zipf
from skewless.documents.job import Job
from skewless.documents.stage_report import Decision, StageReport
from skewless.planner.first_plan import first_plan
from skewless.planner.planner import plan_next_stage
from skewless.routing.plan import RoutingPlan
from skewless.run.directory import STAGE_REPORT, RunDirectory, stage_step

NAME = "planning"
TASKS, HEAD_KEYS, KEYS, ROWS, EXPONENT = 10_000, 100_000, 1_000_000, 10_000_000, 1.0
#: Rings of the default size for so many tasks, 2**20 slots, and of a coarser one, whose reports are shorter.
RINGS: dict[str, int | None] = {"default ring": None, "2**18 slots": 18}
#: What one call of the planner may take, in seconds of a processor.
AIM_SECONDS = 0.3
#: What the page tells of the decisions on a ring, at most.
_FIGURES = ("planner_seconds", "decision_seconds", "peak_mib")


def measure(scale: float = 1.0, *, apart: bool = True) -> dict[str, Any]:
    """All decisions of a run on each ring, each in a process of its own if ``apart``; less than all for a look."""
    with tempfile.TemporaryDirectory() as scratch:
        lines = [
            line
            for number, (ring, bits) in enumerate(RINGS.items())
            for line in _decisions(simulated(scale, bits), Path(scratch) / str(number), ring, apart=apart)
        ]
    worst = max(line["planner_seconds"] for line in lines)
    aim = Verdict("seconds of a processor for one call of the planner", "10,000 tasks", worst, AIM_SECONDS)
    return {
        "row": "B12", "verdicts": as_documents([aim]),
        "tasks": round(TASKS * scale), "head_keys": round(HEAD_KEYS * scale), "keys": round(KEYS * scale),
        "rows": round(ROWS * scale), "exponent": EXPONENT, "aim_seconds": AIM_SECONDS,
        "setting": machine(numpy="numpy"),
        "lines": lines,
    }  # fmt: skip


def simulated(scale: float, ring_bits: int | None = None) -> Simulation:
    """A run of which every stage has one report of so many tasks and head keys."""
    keys, rows = round(KEYS * scale), round(ROWS * scale)
    job = simulated_job(
        np.diff(np.linspace(0, rows, 1001).astype(int)).tolist(),
        reducers=round(TASKS * scale), head_limit=round(HEAD_KEYS * scale), stage_overhead=0,
    )  # fmt: skip
    plan = first_plan(job)
    if ring_bits is not None:
        plan = plan.model_copy(update={"ring": plan.ring.model_copy(update={"ring_bits": ring_bits})})
    return Simulation(job, [f"key-{number}" for number in range(keys)], zipf(keys, EXPONENT, rows, 15) - 1).play(plan)


def written(simulation: Simulation, folder: Path) -> RunDirectory:
    """A run directory with everything but the decisions and the plans that they made."""
    run = RunDirectory(str(folder))
    run.write_once("job.json", simulation.job)
    run.write_once("plans/0000.json", simulation.plans[0])
    for report in simulation.reports:
        attempt = run.new_attempt(stage_step(report.stage))
        attempt.write(STAGE_REPORT, report)
        attempt.commit([], {"rows": report.processed_rows})
    return run


def decided(root: str, stage: int) -> dict[str, float]:
    """Make a decision of a run; seconds of the processor for the planner and for the whole task, and its peak."""
    planner_seconds = 0.0

    def planner(job: Job, plan: RoutingPlan, report: StageReport, earlier: Sequence[StageReport]) -> Decision:
        nonlocal planner_seconds
        began = time.process_time()
        decision = plan_next_stage(job, plan, report, earlier)
        planner_seconds = time.process_time() - began
        return decision

    began = time.process_time()
    RunDirectory(root).decide(stage, planner)
    return {
        "planner_seconds": round(planner_seconds, 3),
        "decision_seconds": round(time.process_time() - began, 3),
        "process_seconds": round(time.process_time(), 3),
        "peak_mib": _peak_mib(),
    }


def _peak_mib() -> int:
    """The most memory that this process held; a child's ``ru_maxrss`` would be at least its parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) // 1024


def sentence(document: dict[str, Any]) -> str:
    """The figures in words."""
    lines = document["lines"]
    worst = max(lines, key=lambda line: line["planner_seconds"])
    verdict = "met" if worst["planner_seconds"] <= document["aim_seconds"] else "NOT MET"
    return (
        f"for {document['tasks']:,} tasks and {document['head_keys']:,} head keys one call of the planner takes at most"
        f" {worst['planner_seconds']:.2f} s of a processor ({document['aim_seconds']:g} s allowed: {verdict}), with"
        f" reading reports and writing the decision {max(line['decision_seconds'] for line in lines):.2f} s, and the"
        f" process at most {max(line['peak_mib'] for line in lines):,} MiB"
    )


def page(document: dict[str, Any]) -> str:
    """The page, in Markdown."""
    rows = []
    for ring in dict.fromkeys(line["ring"] for line in document["lines"]):
        mine = [line for line in document["lines"] if line["ring"] == ring]
        planner, decision, peak = (max(line[name] for line in mine) for name in _FIGURES)
        rows.append((ring, str(len(mine)), f"{planner:.2f}", f"{decision:.2f}", f"{peak:,}"))
    head = ("ring", "decisions", "planner at most, s", "with reading and writing, s", "peak, MiB")
    about = (
        f"A simulated run of {document['rows']:,} rows of {document['keys']:,} keys, Zipf {document['exponent']:g}, in"
        f" four waves, and the stage that drains. A decision reads the reports of all stages before it. Seconds are"
        f" those of the processor. Setting: {in_words(document['setting'])}."
    )
    first = sentence(document)
    return page_of("Planning", f"{first[:1].upper()}{first[1:]}.", about, table(head, rows))


def _decisions(simulation: Simulation, folder: Path, ring: str, *, apart: bool) -> list[dict[str, Any]]:
    run = written(simulation, folder)
    lines = []
    for decision in simulation.decisions:
        made = (_decided_apart if apart else decided)(run.root, decision.stage)
        gap = None if decision.certificate is None else decision.certificate.gap
        over = None if gap is None else round(1.0 + gap, 4)
        lines.append({"ring": ring, "stage": decision.stage, **made, "over_bound": over})
    return lines


def _decided_apart(root: str, stage: int) -> dict[str, float]:
    words = [sys.executable, "-m", "benchmarks.planning", "--run-dir", root, "--stage", str(stage)]
    made = subprocess.run(words, check=True, stdout=subprocess.PIPE, cwd=PROJECT)  # noqa: S603
    found: dict[str, float] = json.loads(made.stdout)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-dir", required=True)
    parser.add_argument("--stage", type=int, required=True)
    given = parser.parse_args()
    print(json.dumps(decided(given.run_dir, given.stage)))
