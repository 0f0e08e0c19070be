"""A run on disk: its directory, its commits, its publication, and how long it is kept."""
