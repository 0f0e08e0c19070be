"""The pages and the JSON API of the Airflow plugin."""
