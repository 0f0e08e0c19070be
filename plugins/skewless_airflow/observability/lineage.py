"""Inputs and outputs of a run for OpenLineage, where its provider is installed.

The provider calls ``get_openlineage_facets_on_complete`` of an operator that has ended, well or not. Datasets are named
by OpenLineage's naming conventions (spec/Naming.md), so that they are the same ones that other jobs read and write. No
key and no other value of a row is told. The provider is an extra: this module is imported only when it calls.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.generated.base import DatasetFacet, InputDataset, OutputDataset
from openlineage.client.generated.column_lineage_dataset import (
    ColumnLineageDatasetFacet,
    Fields,
    InputField,
    Transformation,
)
from openlineage.client.generated.data_quality_assertions_dataset import Assertion, DataQualityAssertionsDatasetFacet
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.input_statistics_input_dataset import InputStatisticsInputDatasetFacet
from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields
from openlineage.client.generated.symlinks_dataset import Identifier, SymlinksDatasetFacet

from skewless.columns import column
from skewless.documents.job import Job
from skewless.errors import without_secrets
from skewless.publication.publish import Validated
from skewless.publication.records import Publication, publication_of
from skewless.run.directory import RunDirectory
from skewless.run.step_names import last_step_of
from skewless.spec.input import is_named
from skewless_lake.staged_files import staged_parts

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
    >>> dataset_name("https://account.example/box/clicks?sv=2024&sig=abc")
    ('https://account.example', 'box/clicks')
    """
    if (shown := without_secrets(path)) != path:  # a query with one goes; a wildcard stays
        path = re.split(r"[?&;#](?=[\w.-]+=)", shown, maxsplit=1)[0]
    if "://" not in path or path.startswith("file:"):
        return "file", path.removeprefix("file:").removeprefix("//")
    # Not by urlsplit, which would take a wildcard for a query and a # in a key for a fragment.
    scheme, _, rest = path.partition("://")
    place, _, name = rest.partition("/")
    who, at, host = place.rpartition("@")
    # A user with a password must not be shown; the container before an @, as in abfss, is part of the place.
    place = host if ":" in who or who == "***" else f"{who}{at}{host}"
    # A bucket's keys have no leading slash.
    return f"{_SCHEMES.get(scheme, scheme)}://{place}", f"/{name}" if scheme == "hdfs" else name or "/"


def input_lineage(run: RunDirectory) -> OperatorLineage:
    """The input and the lookups of a run, once it has been prepared."""
    return OperatorLineage(inputs=[*_all_read(run).values()] if run.exists("job.json") else [])


def published_lineage(run: RunDirectory) -> OperatorLineage:
    """The input, the lookups and the output of a run, once it has been published."""
    published = publication_of(run)
    if published is None:
        return OperatorLineage()
    read = _all_read(run)
    return OperatorLineage(inputs=[*read.values()], outputs=[_written(run, published, read)])


def checked_lineage(run: RunDirectory) -> OperatorLineage:
    """The result of a run as what its validation reads, with each check as an assertion, also of a run that failed."""
    report = run.quality()
    # The output of a job in the shadow of another one may be that other job's.
    if report is None or not last_step_of(run.job().spec).publishes:
        return OperatorLineage()
    told = [
        Assertion(
            assertion=check.expectation, success=check.success, column=check.column or None, name=name,
            expected=check.required or None,
        )
        for name, check in report.named(len(run.job().spec.quality.expectations))
    ]  # fmt: skip
    facet = DataQualityAssertionsDatasetFacet(assertions=told)
    facets = {"schema": _schema(report.columns)}
    return OperatorLineage(
        inputs=[InputDataset(*_output_name(run), facets=facets, inputFacets={"dataQualityAssertions": facet})]
    )


def _all_read(run: RunDirectory) -> dict[str, InputDataset]:
    """The input, by an empty name, and the lookups by theirs."""
    job = run.job()
    return {"": _read(job), **{one.name: _read(job.of_lookup(one)) for one in job.lookups}}


def _read(job: Job) -> InputDataset:
    namespace, name = dataset_name(job.input_path)
    files = dict(zip(column(job.units, "path"), column(job.units, "size_bytes"), strict=True))
    # Estimated rows are not reported as a count.
    rows = job.rows if all(column(job.units, "counted")) else None
    statistics = InputStatisticsInputDatasetFacet(rowCount=rows, size=sum(files.values()), fileCount=len(files))
    table = job.source.pinned
    of_table = _table_facets(table.name if is_named(table.kind) else None, table.snapshot) if table else {}
    facets = {"schema": _schema(_read_columns(job)), **of_table}
    return InputDataset(namespace, name, facets=facets, inputFacets={"inputStatistics": statistics})


def _written(run: RunDirectory, published: Publication, read: Mapping[str, InputDataset]) -> OutputDataset:
    files, job = Validated.of(run).kept, run.job()
    output, report = job.spec.output, run.quality()
    statistics = OutputStatisticsOutputDatasetFacet(
        rowCount=published.keys, size=sum(file.size_bytes for file in files), fileCount=len(files)
    )
    of_table = _table_facets(output.path if is_named(output.format) else None, published.snapshot)
    facets = {"schema": _schema(report.columns if report else {}), "columnLineage": _columns(job, read), **of_table}
    return OutputDataset(*_output_name(run), facets=facets, outputFacets={"outputStatistics": statistics})


def _output_name(run: RunDirectory) -> tuple[str, str]:
    """Of a table its location, by which the integrations of Iceberg and Delta name it, too."""
    job = run.job()
    return dataset_name(staged_parts(run)[-1][1].location if job.spec.output.is_table else job.output_path)


def _schema(types: Mapping[str, str]) -> DatasetFacet:
    return SchemaDatasetFacet(fields=[SchemaDatasetFacetFields(name=name, type=kind) for name, kind in types.items()])


def _read_columns(job: Job) -> dict[str, str]:
    return {**job.source.columns, **job.source.partition_columns}


def _columns(job: Job, read: Mapping[str, InputDataset]) -> ColumnLineageDatasetFacet:
    known, of_lookup = job.spec.key, ("TRANSFORMATION", tuple[tuple[str, str], ...]())
    made = {key: _made_from(job, key) if key in known else of_lookup for key in job.spec.of_results.key}
    for name, algebra in job.algebra.items():
        sources = [field for column in algebra.reads for field in _made_from(job, column)[1]]
        made[name] = ("AGGREGATION", tuple(dict.fromkeys(sources)))
    if job.spec.result is not None:
        keys, parts = made, job.spec.result.reads
        made = {name: keys[one] for one, name in job.spec.result.plain.items()}
        for name, of in parts.items():
            sources = [field for one in of for field in keys[one][1]]
            made.setdefault(name, ("AGGREGATION", tuple(dict.fromkeys(sources))))
    grouped = dict.fromkeys(field for key in job.spec.key for field in _made_from(job, key)[1])
    return ColumnLineageDatasetFacet(
        fields={name: Fields(inputFields=[*_fields(read, how, fields)]) for name, (how, fields) in made.items()},
        dataset=[
            *_fields(read, "FILTER", _of_input(job, job.source.condition), "INDIRECT"),
            *_fields(read, "GROUP_BY", grouped, "INDIRECT"),
        ],
    )


def _made_from(job: Job, column: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The columns that a column is made from, after the names of their tables, and the kind of transformation."""
    if job.spec.map is None:
        return "IDENTITY", (("", column),)
    # A mapper of Python does not say which column becomes which.
    one = job.source.made.get(column)
    found = _of_input(job, one.reads if one else job.source.reads)
    beside = [(table, name) for table, names in (one.beside if one else {}).items() for name in names]
    return "IDENTITY" if one is not None and one.plain else "TRANSFORMATION", (*found, *beside)


def _of_input(job: Job, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    lower = {name.lower() for name in names}
    return tuple(("", name) for name in _read_columns(job) if name.lower() in lower)


def _fields(
    read: Mapping[str, InputDataset], how: str, fields: Iterable[tuple[str, str]], kind: str = "DIRECT"
) -> Iterator[InputField]:
    for table, field in fields:
        yield InputField(read[table].namespace, read[table].name, field, [Transformation(kind, how, "", masking=False)])


def _table_facets(named: str | None, snapshot: int | str | None) -> dict[str, DatasetFacet]:
    """Of a table: its snapshot or version, and its name in a catalog, if it has one, as a second name."""
    found: dict[str, DatasetFacet] = {}
    if snapshot is not None:
        found["version"] = DatasetVersionDatasetFacet(datasetVersion=str(snapshot))
    if named is not None:
        catalog, _, name = named.partition(".")
        found["symlinks"] = SymlinksDatasetFacet(identifiers=[Identifier(namespace=catalog, name=name, type="TABLE")])
    return found
