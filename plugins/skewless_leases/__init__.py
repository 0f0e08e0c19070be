"""Ownership by leases: several workers share partitions without a coordinator.

An independent library over a small key-value interface, which a folder or an object store provides. It knows neither
Spark nor Airflow. ``docs/leases.md`` tells how it works and what it is good for.
"""

from skewless_leases.balancing.member import Member, Work
from skewless_leases.balancing.worker import Worker
from skewless_leases.lease_errors import FencedOutError, LeaseError, StoreError
from skewless_leases.liveness.spans import TimeSpans
from skewless_leases.ownership.fence import Grant, check, commit, keep, read, release
from skewless_leases.ownership.lease import Lease, Turns
from skewless_leases.stores import open_store
from skewless_leases.stores.store import KeyValueStore, Versioned

__all__ = [
    "FencedOutError",
    "Grant",
    "KeyValueStore",
    "Lease",
    "LeaseError",
    "Member",
    "StoreError",
    "TimeSpans",
    "Turns",
    "Versioned",
    "Work",
    "Worker",
    "check",
    "commit",
    "keep",
    "open_store",
    "read",
    "release",
]
