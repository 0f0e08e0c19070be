"""What is on disk in a run directory, document by document."""
