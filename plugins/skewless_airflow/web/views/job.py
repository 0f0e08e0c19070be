"""The job of a run, in short."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from skewless.documents.job import Job
from skewless.run.directory import RunDirectory
from skewless_airflow.web.run_folders import kept_by, stamp

_JOB = "job.json"


@dataclass(frozen=True)
class AggregateView:
    """One aggregate of the spec."""

    name: str
    function: str
    column: str | None
    mergeable: bool
    ordered: bool


@dataclass(frozen=True)
class JobView:
    """What a run computes, from what."""

    name: str
    description: str
    date: str
    extent: str
    input_path: str
    output_path: str
    key: tuple[str, ...]
    aggregates: tuple[AggregateView, ...]
    policy: str
    engine: str
    reducers: int
    slots: int
    wave_rows: tuple[int, ...]
    splittable: bool
    last_stage: int
    warm_from: tuple[str, ...]
    skipped_words: str


@kept_by(_JOB)
def read_job(run: RunDirectory) -> JobView:
    """The job, if ``prepare`` has written it."""
    job = whole_job(run)
    spec, routing = job.spec, job.spec.routing
    return JobView(
        name=spec.name,
        description=spec.description,
        date=str(job.part),
        extent=job.extent,
        input_path=job.input_path,
        output_path=job.output_path,
        key=spec.key,
        aggregates=tuple(
            AggregateView(name, call.function, call.column, job.algebra[name].mergeable, job.algebra[name].ordered)
            for name, call in spec.aggregates.items()
            if name in job.algebra
        ),
        policy=routing.policy.name,
        engine=spec.engine,
        reducers=routing.reducers,
        slots=routing.parallelism,
        wave_rows=tuple(job.wave_rows(wave) for wave in range(len(job.waves))),
        splittable=job.splittable,
        last_stage=job.last_stage,
        warm_from=job.warm_from,
        skipped_words=job.skipped_words,
    )


def whole_job(run: RunDirectory) -> Job:
    """The document itself; the last few are cached, because every stage needs it."""
    return _job(run.path(""), stamp(run, _JOB))


@lru_cache(maxsize=4)
def _job(location: str, _mark: str | None) -> Job:
    return RunDirectory(location).job()
