"""Results in Iceberg tables."""
