"""spark-submit entry: Merge the partial states."""

from skewless_spark.entries.entry import states_merge

if __name__ == "__main__":
    states_merge()
