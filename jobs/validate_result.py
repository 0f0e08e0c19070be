"""spark-submit entry: Validate ledger and result."""

from skewless_spark.entries.entry import result_validate

if __name__ == "__main__":
    result_validate()
