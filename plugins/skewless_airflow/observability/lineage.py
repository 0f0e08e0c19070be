"""Inputs and outputs of a run for OpenLineage, where its provider is installed.

The provider calls ``get_openlineage_facets_on_complete`` of an operator that has succeeded. Datasets are named by
OpenLineage's naming conventions (spec/Naming.md), so that they are the same ones that other jobs read and write. The
provider is an extra: it is imported only when it calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.run.publication.records import Publication, publication_of
from skewless.spec.input import is_named
from skewless_lake.staged import STAGED, StagedResult

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.generated.base import DatasetFacet, InputDataset, OutputDataset

#: Hadoop's schemes of S3: the naming conventions know one, and OpenLineage's own clients map them to it, too.
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
    # Not by urlsplit, which would take a wildcard for a query and a # in a key for a fragment.
    scheme, _, rest = path.partition("://")
    place, _, name = rest.partition("/")
    who, at, host = place.rpartition("@")
    # A user with a password must not be shown; the container before an @, as in abfss, is part of the place.
    place = host if ":" in who else f"{who}{at}{host}"
    # A bucket's keys have no leading slash.
    return f"{_SCHEMES.get(scheme, scheme)}://{place}", f"/{name}" if scheme == "hdfs" else name or "/"


def input_lineage(run: RunDirectory) -> OperatorLineage:
    """The input of a run, once it has been prepared."""
    from airflow.providers.openlineage.extractors import OperatorLineage  # an extra

    return OperatorLineage(inputs=[_read(run)] if run.exists("job.json") else [])


def published_lineage(run: RunDirectory) -> OperatorLineage:
    """The input and the output of a run, once it has been published."""
    from airflow.providers.openlineage.extractors import OperatorLineage  # an extra

    published = publication_of(run)
    if published is None:
        return OperatorLineage()
    return OperatorLineage(inputs=[_read(run)], outputs=[_written(run, published)])


def _read(run: RunDirectory) -> InputDataset:
    from openlineage.client.generated.base import InputDataset
    from openlineage.client.generated.input_statistics_input_dataset import InputStatisticsInputDatasetFacet

    job = run.job()
    namespace, name = dataset_name(job.input_path)
    files = {unit.path: unit.size_bytes for unit in job.units}
    # Estimated rows are not reported as a count.
    rows = job.rows if all(unit.counted for unit in job.units) else None
    statistics = InputStatisticsInputDatasetFacet(rowCount=rows, size=sum(files.values()), fileCount=len(files))
    table = job.source.pinned
    of_table = _table_facets(table.name if is_named(table.kind) else None, table.snapshot) if table else {}
    return InputDataset(namespace, name, facets=of_table, inputFacets={"inputStatistics": statistics})


def _written(run: RunDirectory, published: Publication) -> OutputDataset:
    """The folder of the result, whose days are its partitions."""
    from openlineage.client.generated.base import OutputDataset
    from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet

    result = run.committed(RESULT_STEP)
    files = result.of_kind("published") or result.of_kind("result")
    job = run.job()
    output = job.spec.output
    # Of a table its location, by which the integrations of Iceberg and Delta name it, too.
    namespace, name = dataset_name(run.read(STAGED, StagedResult).location if output.is_table else job.output_path)
    statistics = OutputStatisticsOutputDatasetFacet(
        rowCount=published.keys, size=sum(file.size_bytes for file in files), fileCount=len(files)
    )
    of_table = _table_facets(output.path if is_named(output.format) else None, published.snapshot)
    return OutputDataset(namespace, name, facets=of_table, outputFacets={"outputStatistics": statistics})


def _table_facets(named: str | None, snapshot: int | str | None) -> dict[str, DatasetFacet]:
    """Of a table: its snapshot or version, and its name in a catalog, if it has one, as a second name."""
    from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
    from openlineage.client.generated.symlinks_dataset import Identifier, SymlinksDatasetFacet

    found: dict[str, DatasetFacet] = {}
    if snapshot is not None:
        found["version"] = DatasetVersionDatasetFacet(datasetVersion=str(snapshot))
    if named is not None:
        catalog, _, name = named.partition(".")
        found["symlinks"] = SymlinksDatasetFacet(identifiers=[Identifier(namespace=catalog, name=name, type="TABLE")])
    return found
