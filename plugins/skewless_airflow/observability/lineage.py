"""Inputs and outputs of a run for OpenLineage, where its provider is installed.

The provider asks an operator that is done for ``get_openlineage_facets_on_complete``. Datasets are named by
OpenLineage's conventions, so that they are the same ones that other jobs read and write. The provider is an
extra: it is imported when it asks, and not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.run.publication import Publication, publication_of

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.generated.base import InputDataset, OutputDataset

#: Hadoop's names of a store that others know by one.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}


def dataset_name(path: str) -> tuple[str, str]:
    """The namespace and the name of a path, as OpenLineage's naming conventions have it.

    >>> dataset_name("/lake/clicks")
    ('file', '/lake/clicks')
    >>> dataset_name("s3a://lake/clicks")
    ('s3://lake', 'clicks')
    >>> dataset_name("hdfs://node:8020/clicks")
    ('hdfs://node:8020', '/clicks')
    >>> dataset_name("s3a://name:secret@lake/part?.parquet")
    ('s3://lake', 'part?.parquet')
    """
    if "://" not in path or path.startswith("file:"):
        return "file", path.removeprefix("file:").removeprefix("//")
    # Not by urlsplit: a wildcard is no query, and a # in a key no fragment.
    scheme, _, rest = path.partition("://")
    place, _, name = rest.partition("/")
    who, at, host = place.rpartition("@")
    # A name with a secret is nobody's business; that of a container, as abfss has it, is part of the place.
    place = host if ":" in who else f"{who}{at}{host}"
    # A bucket's keys have no leading slash.
    return f"{_SCHEMES.get(scheme, scheme)}://{place}", f"/{name}" if scheme == "hdfs" else name or "/"


def input_lineage(run: RunDirectory) -> OperatorLineage:
    """What a run reads, once it has been prepared."""
    from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415  # an extra

    return OperatorLineage(inputs=[_read(run)] if run.exists("job.json") else [])


def published_lineage(run: RunDirectory) -> OperatorLineage:
    """What a run has read and written, once it has been published."""
    from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415  # an extra

    published = publication_of(run)
    if published is None:
        return OperatorLineage()
    return OperatorLineage(inputs=[_read(run)], outputs=[_written(run, published)])


def _read(run: RunDirectory) -> InputDataset:
    from openlineage.client.generated.base import InputDataset  # noqa: PLC0415
    from openlineage.client.generated.input_statistics_input_dataset import (  # noqa: PLC0415
        InputStatisticsInputDatasetFacet,
    )

    job = run.job()
    namespace, name = dataset_name(job.input_path)
    files = {unit.path: unit.size_bytes for unit in job.units}
    # Where rows are estimated there is no count to tell.
    rows = job.rows if all(unit.counted for unit in job.units) else None
    statistics = InputStatisticsInputDatasetFacet(rowCount=rows, size=sum(files.values()), fileCount=len(files))
    return InputDataset(namespace, name, inputFacets={"inputStatistics": statistics})


def _written(run: RunDirectory, published: Publication) -> OutputDataset:
    """The folder of the result, whose days are its partitions."""
    from openlineage.client.generated.base import OutputDataset  # noqa: PLC0415
    from openlineage.client.generated.output_statistics_output_dataset import (  # noqa: PLC0415
        OutputStatisticsOutputDatasetFacet,
    )

    result = run.committed(RESULT_STEP)
    files = result.of_kind("published") or result.of_kind("result")
    namespace, name = dataset_name(run.job().output_path)
    statistics = OutputStatisticsOutputDatasetFacet(
        rowCount=published.keys, size=sum(file.size_bytes for file in files), fileCount=len(files)
    )
    return OutputDataset(namespace, name, outputFacets={"outputStatistics": statistics})
