"""Models built on aggregates, and the corpus of the demo. Not part of the wheel."""
