"""The rows there are, in order; B8 is measured in Airflow, not here."""

from __future__ import annotations

from benchmarks.spark.cell import Row
from benchmarks.spark.rows.b6_awkward import B6
from benchmarks.spark.rows.b10_nights import B10
from benchmarks.spark.rows.b16_actions import B16
from benchmarks.spark.rows.native import B1, B3, B7
from benchmarks.spark.rows.slept import B2, B4, B5, B9

ROWS: dict[str, Row] = {row.ident: row for row in (B1, B2, B3, B4, B5, B6, B7, B9, B10, B16)}
