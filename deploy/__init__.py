"""Ways to run Skewless: a local Airflow, a cluster as processes, images. Not part of the wheel."""
