"""Many partitions shared among several workers without a coordinator."""
