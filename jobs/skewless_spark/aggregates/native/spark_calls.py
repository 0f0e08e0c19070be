"""Functions of Spark's whose states nobody else can merge: it computes them where all rows of a key are."""

from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from skewless.aggregates.accumulator import anything
from skewless.errors import SpecError, first_line
from skewless.query.functions import SparkCall
from skewless_spark.aggregates.definition import NativeAggregate
from skewless_spark.aggregates.native.sums import Options, merged_by, the_state


class SparkOptions(Options):
    """Options of ``spark``."""

    expression: str = Field(min_length=1, max_length=10_000)
    """One call of an aggregate function of Spark's."""

    @model_validator(mode="after")
    def _one_call(self) -> Self:
        SparkCall(self.expression)
        return self

    @property
    def call(self) -> SparkCall:
        """The call, taken apart."""
        return SparkCall(self.expression)


#: Rows come in the order of the input, so that those which are alike in an ORDER BY always come in the same one.
SPARK = NativeAggregate(
    "spark",
    accepts=anything,
    update=lambda arguments, options: (
        F.expr(options.call.over(dict(zip(options.call.columns, arguments.names, strict=True)))),
    ),
    merge=merged_by(F.first),  # a key has one state
    evaluate=the_state,
    options=SparkOptions,
    named=lambda options: options.call.columns,
    needs_column=False,
    mergeable=False,
    at_once=True,
    reads_origin=True,
    state_bytes=256,
)


def require_analyzed(spark: SparkSession, options: SparkOptions, types: Mapping[str, str], at: str) -> None:
    """Refuse, by a ``SpecError``, a call that Spark does not take, or whose result no file can hold."""
    named = {name: f"c{number}" for number, name in enumerate(options.call.columns)}
    empty = spark.range(0).selectExpr("id", *(f"CAST(NULL AS {types[name]}) AS {new}" for name, new in named.items()))
    try:
        (kind,) = (one for _, one in empty.groupBy().agg(F.expr(options.call.over(named)).alias("x")).dtypes)
    except (AnalysisException, ParseException) as err:
        raise SpecError(at, "an expression that Spark takes", first_line(err)) from None
    if required := anything(kind):
        raise SpecError(at, f"a result of {required}", kind)
