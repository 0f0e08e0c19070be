"""No DAGs: the import error of this file in Airflow names every broken spec of the catalog."""

from __future__ import annotations

from skewless_airflow.dags.catalog import read_catalog, refuse_faults

refuse_faults(read_catalog())
