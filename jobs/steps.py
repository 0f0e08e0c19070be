"""The steps of a run, for spark-submit from a checkout: ``jobs/steps.py STEP --run-dir RUN ...``."""

from skewless_spark.entries.pipeline import main

if __name__ == "__main__":
    main()
