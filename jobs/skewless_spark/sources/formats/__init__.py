"""File formats: where rows begin in a file, and what types their columns have."""
