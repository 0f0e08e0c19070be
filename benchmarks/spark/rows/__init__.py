"""The rows there are, in order; B8 is measured in Airflow, not here."""

from __future__ import annotations

from benchmarks.spark.row import Row
from benchmarks.spark.rows.b1_native import B1
from benchmarks.spark.rows.b2_delay import B2
from benchmarks.spark.rows.b3_big_state import B3
from benchmarks.spark.rows.b4_drift import B4
from benchmarks.spark.rows.b5_no_skew import B5
from benchmarks.spark.rows.b6_awkward import B6
from benchmarks.spark.rows.b7_many_groups import B7
from benchmarks.spark.rows.b9_set_up import B9
from benchmarks.spark.rows.b10_nights import B10

ROWS: dict[str, Row] = {row.ident: row for row in (B1, B2, B3, B4, B5, B6, B7, B9, B10)}
