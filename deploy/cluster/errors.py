"""Errors of the cluster, each in one sentence."""

from __future__ import annotations

from skewless.errors import SkewlessError


class ClusterError(SkewlessError):
    """The cluster cannot be described, started or reached."""
