"""One Airflow DAG for each spec of the job catalog; a broken one is an import error of its own."""

from skewless_airflow import catalog_dags

catalog_dags()
