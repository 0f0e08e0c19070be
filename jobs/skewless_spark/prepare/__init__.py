"""Freezing a run: the spec, the pinned input, waves, a sample of keys, plan 0."""
