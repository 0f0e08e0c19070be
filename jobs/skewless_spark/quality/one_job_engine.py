"""Great Expectations' engine for Spark, with one query for the figures of all columns.

Importing this module imports Great Expectations: see ``skewless_spark.quality.expectations.great_expectations``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import partial, reduce
from typing import Any, ClassVar

from great_expectations.core import IDDict
from great_expectations.execution_engine.execution_engine import MetricComputationConfiguration
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.util import convert_to_json_serializable
from great_expectations.validator.metric_configuration import MetricConfigurationID
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType

_BRANCH = "branch"
#: Metrics that are the rows of a frame, of which no row is passed over.
_ROW_COUNTS = frozenset({"table.row_count", "compound_columns.unique.filtered_row_count"})


class OneJobEngine(SparkDFExecutionEngine):
    """Aggregates over different rows, such as those that are not null in each column, in one query.

    The parent class runs a query for each selection of rows. What is computed is the same.

    Attributes:
        beside: aggregates of ours over all rows, which the first such query computes beside those that are asked for.
        found: their values, as soon as they are known.
        rows: of the frame, if they have been counted.
    """

    beside: ClassVar[Mapping[str, Column]] = {}
    found: ClassVar[dict[str, Any]] = {}
    rows: ClassVar[int | None] = None

    @classmethod
    def knowing(cls, **attributes: Any) -> type[OneJobEngine]:
        """An engine with some of the attributes ``beside``, ``found`` and ``rows``."""
        return type(cls.__name__, (cls,), attributes)

    def _process_direct_and_bundled_metric_computation_configurations(
        self,
        metric_fn_direct_configurations: list[MetricComputationConfiguration],
        metric_fn_bundle_configurations: list[MetricComputationConfiguration],
    ) -> dict[MetricConfigurationID, Any]:
        """The values of metrics that are ready. Aggregates wait until nothing else is: so they are one query.

        The parent class asks for these as soon as they are ready, and the caller asks again for what has no value.
        """
        known, direct, bundle = dict[MetricConfigurationID, Any](), list[Any](), list[Any]()
        for ready, kept in ((metric_fn_direct_configurations, direct), (metric_fn_bundle_configurations, bundle)):
            for one in ready:
                metric = one.metric_configuration
                if self.rows is not None and metric.metric_name in _ROW_COUNTS:
                    known[metric.id] = self.rows
                else:
                    kept.append(one)
        found = super()._process_direct_and_bundled_metric_computation_configurations(direct, [] if direct else bundle)
        return found | known

    def resolve_metric_bundle(
        self, metric_fn_bundle: Iterable[MetricComputationConfiguration]
    ) -> dict[MetricConfigurationID, Any]:
        """The values of metrics that are aggregates, by the identifier of the metric."""
        selections: dict[Any, tuple[IDDict, dict[MetricConfigurationID, Column]]] = {}
        for one in metric_fn_bundle:
            rows = IDDict(one.compute_domain_kwargs or {})
            selections.setdefault(rows.to_id(), (rows, {}))[1][one.metric_configuration.id] = self._exact(one)
        if not selections:
            return {}
        names = [
            {metric: f"b{branch}_{number}" for number, metric in enumerate(aggregates)}
            for branch, (_, aggregates) in enumerate(selections.values())
        ]
        of_all = next((at for at, (rows, _) in enumerate(selections.values()) if _are_all(rows)), None)
        beside = {} if self.found or of_all is None else self.beside
        branches = [
            self.get_domain_records(dict(rows))
            .agg(
                *(column.alias(names[branch][metric]) for metric, column in aggregates.items()),
                *(column.alias(name) for name, column in beside.items() if branch == of_all),
            )
            .withColumn(_BRANCH, F.lit(branch))
            for branch, (rows, aggregates) in enumerate(selections.values())
        ]
        both = partial(DataFrame.unionByName, allowMissingColumns=True)
        found = {row[_BRANCH]: row for row in reduce(both, branches).collect()}
        self.found.update({name: found[of_all][name] for name in beside})
        return {
            metric: convert_to_json_serializable(data=whole_as_int(found[branch][name]))
            for branch, metrics in enumerate(names)
            for metric, name in metrics.items()
        }

    def _exact(self, one: MetricComputationConfiguration) -> Column:
        """Its expression; integers are added up as decimals, which neither overflow nor lose digits as doubles do."""
        metric = one.metric_configuration
        if metric.metric_name != "column.sum":
            return one.metric_fn
        column = metric.metric_domain_kwargs["column"]
        whole = isinstance(self.dataframe.schema[column].dataType, IntegralType)
        return F.sum(F.col(column).cast("decimal(38,0)")) if whole else one.metric_fn


def _are_all(rows: IDDict) -> bool:
    return not any(rows.get(name) for name in ("column", "row_condition", "filter_conditions"))


def whole_as_int(value: Any) -> Any:
    """A value, in lists and mappings too, with whole decimals as integers: Great Expectations makes floats of them."""
    if isinstance(value, dict):
        return {name: whole_as_int(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [whole_as_int(one) for one in value]
    return int(value) if isinstance(value, Decimal) and value.is_finite() and value == int(value) else value
