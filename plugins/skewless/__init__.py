"""The pure core of Skewless: documents, hashing, ring, planner, bounds and ledger.

Nothing here knows Spark or Airflow. Every decision is a pure function of the documents of a run directory. Only
``skewless.run`` touches a file system, and the planner never imports it (import-linter checks that).
"""

__version__ = "0.1.0"
