"""The Spark side of Skewless: it reads plans, runs stages, and writes reports."""
