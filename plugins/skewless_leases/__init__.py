"""Ownership by leases: several workers share partitions without a coordinator.

An independent library over a small key-value interface, which a folder or an object store provides. It knows neither
Spark nor Airflow. ``docs/leases.md`` tells how it works and what it is good for.
"""

from skewless_leases.fence import Grant, Turns, check, commit, keep, read, release
from skewless_leases.file_store import open_store
from skewless_leases.lease import Lease
from skewless_leases.lease_tables import TimeSpans
from skewless_leases.store import FencedOutError, KeyValueStore, LeaseError, StoreError, Versioned
from skewless_leases.worker import Member, Work, Worker

__all__ = [
    "FencedOutError", "Grant", "KeyValueStore", "Lease", "LeaseError", "Member", "StoreError", "TimeSpans", "Turns",
    "Versioned", "Work", "Worker", "check", "commit", "keep", "open_store", "read", "release",
]  # fmt: skip
