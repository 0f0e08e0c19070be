"""How close a run came to the bound that no plan can beat: one definition for pages, command line and replay.

An application runs ``slots`` tasks side by side (``Job.slots_at``), whatever the number of reducers. So the bound of a
stage is its rows divided by its slots, or the heaviest key where it may not be split. The makespan of a stage is that
of its tasks started in order, each where one ends first (``skewless.bounds``). Stages follow each other: these add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skewless.bounds import Keys, certify, makespan
from skewless.documents.decision import Certificate
from skewless.documents.job import Job
from skewless.documents.stage_report import StageReport


def stage_makespan(job: Job, report: StageReport) -> float | None:
    """The makespan of a stage, in rows; None where the rows of its tasks were not counted."""
    return makespan(report.processed.astype(np.float64), job.slots_at(report)) if report.measured else None


def stage_certificate(job: Job, report: StageReport) -> Certificate:
    """The certificate of one stage by the fair share alone: the rows of the heaviest key are not counted by stage."""
    keys = Keys(float(report.processed_rows), None, splittable=True)
    return certify(keys, job.slots_at(report), stage_makespan(job, report))


@dataclass(frozen=True)
class StageFigures:
    """What the certificate of a run needs of one stage.

    Attributes:
        heaviest: key text of the key with the most rows reduced by the end of the stage, and those rows.
    """

    processed_rows: int
    slots: int
    makespan_rows: float | None
    heaviest: tuple[str, float] | None


def stage_figures(job: Job, report: StageReport) -> StageFigures:
    """The figures of one stage."""
    reduced = ((key, float(seen - left)) for key, (seen, left) in report.histogram.head.items())
    heaviest = max(reduced, key=lambda one: one[1], default=None)
    return StageFigures(report.processed_rows, job.slots_at(report), stage_makespan(job, report), heaviest)


def run_certificate(job: Job, reports: Sequence[StageReport]) -> Certificate:
    """``certificate_of`` of the stages' reports, in order."""
    return certificate_of(job, [stage_figures(job, report) for report in reports])


def certificate_of(job: Job, stages: Sequence[StageFigures]) -> Certificate:
    """The certificate of all stages so far, by their figures, in order.

    The bound holds for the sum of the makespans: each stage takes at least its rows divided by its slots, and at least
    its rows of any one key that may not be split. Bounds about several keys together hold for one stage only, since the
    next stage may place them with other keys. Where stages had unlike slots, ``tasks`` is their mean by rows.
    """
    took = [stage.makespan_rows for stage in stages]
    rows = float(sum(stage.processed_rows for stage in stages))
    keys = Keys(rows, stages[-1].heaviest if stages else None, splittable=job.splittable)
    whole = None if None in took else sum(one for one in took if one is not None)
    fair = sum(stage.processed_rows / stage.slots for stage in stages)
    return certify(keys, rows / fair if fair else job.slots_at(), whole)
