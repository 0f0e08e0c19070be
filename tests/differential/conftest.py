"""A real Spark, as the tests of the Spark face have it."""

from tests.spark.conftest import spark

__all__ = ["spark"]
