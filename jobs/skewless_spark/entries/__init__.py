"""What spark-submit runs: one file for each step of a run, and the whole run in one session."""
