"""spark-submit entry: Freeze a run."""

from skewless_spark.entries.entry import prepare_run

if __name__ == "__main__":
    prepare_run()
