"""What spark-submit runs: one step of a run, or a driver for all of them; and the whole run in one session."""
