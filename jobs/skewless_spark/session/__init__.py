"""The Spark session of a step: how it is built, watched, and what ended it."""
