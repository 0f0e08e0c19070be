"""A cluster's process: ``python -m skewless_spark.sharing``, as ``jobs/share_stage.py`` without spark-submit."""

from skewless_spark.entries.entry import stage_share

if __name__ == "__main__":
    stage_share()
