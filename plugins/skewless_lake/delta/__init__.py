"""Results in Delta tables."""
