"""spark-submit entry: Take part in one stage, beside other clusters."""

from skewless_spark.entries.entry import stage_share

if __name__ == "__main__":
    stage_share()
