"""Inputs and outputs of a run for OpenLineage, as far as its provider is installed.

The provider asks an operator that has finished for its ``get_openlineage_facets_on_complete``. Datasets are named as
OpenLineage's naming conventions have it, so that they are the same ones that others read and write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from skewless.publication import Publication
from skewless.quality_report import QualityReport
from skewless.run_directory import PUBLISH_STEP, QUALITY_REPORT, QUALITY_STEP, RESULT_STEP, RunDirectory

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset


def dataset_name(path: str) -> tuple[str, str]:
    """The namespace and the name of a path.

    >>> dataset_name("/lake/clicks")
    ('file', '/lake/clicks')
    >>> dataset_name("s3a://lake/clicks")
    ('s3://lake', 'clicks')
    >>> dataset_name("hdfs://node:8020/clicks")
    ('hdfs://node:8020', '/clicks')
    """
    parts = urlsplit(path)
    if parts.scheme in {"", "file"}:
        return "file", parts.path if parts.scheme else path
    if parts.scheme == "hdfs":
        return f"hdfs://{parts.netloc}", parts.path
    scheme = {"s3a": "s3", "s3n": "s3"}.get(parts.scheme, parts.scheme)
    return f"{scheme}://{parts.netloc}", parts.path.lstrip("/") or "/"


def input_lineage(run: RunDirectory) -> OperatorLineage:
    """What a prepared run reads."""
    from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415  # an extra

    return OperatorLineage(inputs=[_read(run)])


def published_lineage(run: RunDirectory) -> OperatorLineage:
    """What a published run has read and written, and which expectations held."""
    from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415  # an extra

    return OperatorLineage(inputs=[_read(run)], outputs=[_written(run)])


def _read(run: RunDirectory) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset  # noqa: PLC0415  # an extra
    from openlineage.client.generated.input_statistics_input_dataset import (  # noqa: PLC0415
        InputStatisticsInputDatasetFacet,
    )

    job = run.job()
    namespace, name = dataset_name(job.input_path)
    files = {unit.path: unit.size_bytes for unit in job.units}
    # An estimate is no count.
    rows = job.rows if all(unit.counted for unit in job.units) else None
    counted = InputStatisticsInputDatasetFacet(rowCount=rows, size=sum(files.values()), fileCount=len(files))
    return InputDataset(namespace, name, inputFacets={"inputStatistics": counted})
