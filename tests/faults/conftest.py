"""Real Spark, in this process."""

from tests.spark.conftest import spark

__all__ = ["spark"]
