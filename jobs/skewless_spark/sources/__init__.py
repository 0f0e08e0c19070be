"""The input: its files are listed before a run, and read wave by wave in the stages."""
