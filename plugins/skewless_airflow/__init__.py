"""The Airflow side of Skewless: operators, DAGs and pages over the run directory."""
