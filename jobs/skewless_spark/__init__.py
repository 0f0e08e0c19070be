"""The Spark side of Skewless: it reads plans, runs stages, and writes reports."""

from skewless_spark.session.versions import unfit_spark

# Before anything of ours imports PySpark. What imports us is a program's main file or a worker: neither can go on.
if _unfit := unfit_spark():
    raise SystemExit(f"skewless: {_unfit}")
