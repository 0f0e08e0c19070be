"""One Airflow DAG for each sound spec of the job catalog; wiring only."""

from __future__ import annotations

from skewless_airflow.dags.catalog import read_catalog

globals().update(read_catalog().dags)
