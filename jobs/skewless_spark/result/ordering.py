"""Results in the order that a spec asks for (``output.sort``)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

from skewless.errors import SpecError
from skewless.spec.result import Output
from skewless_spark.states.columns import JobColumns
from skewless_spark.states.results import own_names

_NESTED = (ArrayType, MapType, StructType, VariantType)


def refuse_without_order(schema: StructType, output: Output, where: str) -> None:
    """Refuse to sort a result by a column of lists, structs or maps: Iceberg has no order of them."""
    for name, _ in output.order:
        kind = schema[name].dataType
        if isinstance(kind, _NESTED):
            raise SpecError(
                f"{where}, field output.sort", "columns of one value each",
                f"{name!r} of type {kind.simpleString()}", "sort by another column",
            )  # fmt: skip


def sorted_results(results: DataFrame, columns: JobColumns) -> DataFrame:
    """Results with the columns of the order ascending from partition to partition and in each; as they are without one.

    Spark draws a sample of the results to cut them into ranges, so they are evaluated twice if there is more than one
    file.
    """
    output, numbered = columns.job.spec.output, {own: number for number, own in own_names(columns).items()}
    if not output.sort:
        return results
    order = [_ordered(F.col(numbered[name]), descending) for name, descending in output.order]
    return results.repartitionByRange(output.files, *order).sortWithinPartitions(*order)


def _ordered(column: Column, descending: bool) -> Column:  # as SortColumn has it
    return column.desc_nulls_last() if descending else column.asc_nulls_first()
