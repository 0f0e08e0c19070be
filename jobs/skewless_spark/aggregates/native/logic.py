"""Logical and bitwise AND, OR and XOR."""

from __future__ import annotations

from pyspark.sql import functions as F

from skewless.aggregates.argument_types import boolean_required, integer_required
from skewless_spark.aggregates.native.simple_states import of_itself

BOOL_AND = of_itself("bool_and", boolean_required, F.bool_and)
BOOL_OR = of_itself("bool_or", boolean_required, F.bool_or)
BIT_AND = of_itself("bit_and", integer_required, F.bit_and)
BIT_OR = of_itself("bit_or", integer_required, F.bit_or)
BIT_XOR = of_itself("bit_xor", integer_required, F.bit_xor)
