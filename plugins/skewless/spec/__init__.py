"""What to compute: the job spec, its input, routing and sharing, and the options of one run."""
