"""Parts that nobody has computed, between the last computed one and that of a run: a night was skipped."""

from __future__ import annotations

from skewless.errors import SkewlessError
from skewless.run.directory import RunDirectory
from skewless.spec.part import Part, parts_until
from skewless.spec.spec import JobSpec
from skewless_spark.prepare.earlier_runs import siblings
from skewless_spark.prepare.restating import published_results

#: So many parts before that of a run are looked at. If none of them is published, the job is new there.
LOOKS_BACK = 400


def skipped_parts(run: RunDirectory, spec: JobSpec, part: Part, root: str, where: str) -> tuple[Part, ...]:
    """The parts after the last published one before a part that its schedule has, and for which no run was begun.

    Args:
        run: the new run's directory; begun runs are looked for beside it.
        spec: its spec.
        part: what it computes.
        root: where relative paths start.
        where: what error messages call the spec.

    Returns:
        Oldest first; none if nothing is published before the part.
    """
    back = min(LOOKS_BACK, (part.date - spec.schedule.start).days * (1 if part.hour is None else 24) + 24)
    if back < 1 or part.date <= spec.schedule.start:
        return ()
    before = [one for one in parts_until(part, back, spec.schedule.timezone)[:-1] if one.date >= spec.schedule.start]
    newest = next(iter(published_results(spec, before[::-1], root, where)), None)
    if newest is None:
        return ()
    between = [one for one in before if one > newest[0] and spec.schedule.has_run_for(one)]
    begun = _begun(run, spec) if between else set()
    return tuple(one for one in between if one not in begun)


def _begun(run: RunDirectory, spec: JobSpec) -> set[Part]:
    """The parts of the runs beside a run directory, whether they have ended or not."""
    found = set()
    for location in siblings(run):
        try:
            job = RunDirectory(location).job()
        except (SkewlessError, OSError):
            continue
        if job.spec.name == spec.name:
            found.add(job.part)
    return found
