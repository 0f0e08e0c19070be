"""A query of Spark SQL, read without Spark: what it takes of the input, what it adds up, and what it makes of that."""
