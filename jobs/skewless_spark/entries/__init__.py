"""What spark-submit and the command line start: one step, or all of them."""
