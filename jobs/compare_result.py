"""The entry of the same name in ``skewless_spark.entries``, for spark-submit from a checkout."""

from skewless_spark.entries.compare_result import main

if __name__ == "__main__":
    main()
