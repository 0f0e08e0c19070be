"""spark-submit entry: Run one stage."""

from skewless_spark.entries.entry import stage_run

if __name__ == "__main__":
    stage_run()
