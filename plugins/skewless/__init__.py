"""The pure core of Skewless: documents, hashing, ring, planner, bounds and ledger.

Nothing here knows Spark or Airflow. Every decision is a pure function of the documents
of a run directory; only ``run_directory`` and ``publication`` touch a file system, and
the planner never imports them (import-linter holds that).
"""

__version__ = "0.1.0"
