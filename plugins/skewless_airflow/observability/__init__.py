"""What Airflow is told about a run: links, metrics, lineage, logs and callbacks."""
