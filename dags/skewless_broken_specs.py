"""No DAGs: an Airflow import error here names every spec of the catalog that is broken."""

from __future__ import annotations

from skewless_airflow.dags.catalog import read_catalog, refuse_faults

refuse_faults(read_catalog())
