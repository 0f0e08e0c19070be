"""What Airflow is told about a run: links, metrics, lineage and logs."""
