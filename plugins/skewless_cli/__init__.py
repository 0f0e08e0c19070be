"""The command `skewless`: it imports Spark only where a command needs it."""
