"""One Airflow DAG for each valid spec of the job catalog."""

from __future__ import annotations

from skewless_airflow.dags.catalog import read_catalog

globals().update(read_catalog().dags)
