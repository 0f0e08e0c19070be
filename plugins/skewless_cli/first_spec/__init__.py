"""``skewless init``: an input is looked at, and a first spec and the file of its DAG are written, with comments."""
