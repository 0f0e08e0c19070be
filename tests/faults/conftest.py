"""Real Spark, in this process."""

from tests.spark_face.conftest import spark

__all__ = ["spark"]
