"""Ways to run Skewless: a local Airflow, a cluster as processes, images. Not part of the wheel."""

from pathlib import Path

#: The checkout: dags/, plugins/, jobs/ and data/ are below it.
PROJECT = Path(__file__).resolve().parents[1]
