"""The jobs without a window that read all rows of each window of a job."""

from __future__ import annotations

from skewless.documents.job import Job, Unit
from skewless_spark.sources.partition_columns import values_of_folders


def jobs_of_all_rows(job: Job) -> list[tuple[Job, int | None]]:
    """For each window a job over all of its rows, and how many parts long it is; of a job without windows itself."""
    found: list[tuple[Job, int | None]] = [(job, None)]
    return [(job_of_all_rows(job, span.first), span.length) for span in job.covered.windows] or found


def job_of_all_rows(job: Job, first: int) -> Job:
    """A job without a window, over all files of a window in their order.

    Args:
        first: the position of the oldest part in it.
    """
    parts = job.covered.parts[first:]
    names = list(job.source.partition_columns)
    pinned = job.source.pinned is not None
    files = [(file, file.values if pinned else values_of_folders(file.path)) for part in parts for file in part.files]
    units = tuple(
        Unit(
            path=file.path, rows=0, size_bytes=file.size_bytes, version=file.version, checksum=file.checksum,
            counted=False, values=of_file if pinned else {name: of_file.get(name) for name in names},
            deletes=file.deletes, inner=file.inner, header=file.header,
        )
        for file, of_file in files
    )  # fmt: skip
    spec = job.spec.model_copy(update={"window": None})
    return job.model_copy(update={"spec": spec, "units": units, "waves": (), "window": None})
