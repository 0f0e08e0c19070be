"""Several Spark clusters share the virtual tasks of a stage: ``docs/several_clusters.md``.

One of them routes the stage's rows and leaves those of each task as files; then all of them take tasks under
leases, reduce them as a stage does that nobody shares, and commit each through its fence; one counts the pieces
and commits the stage.
"""

from skewless_spark.sharing.participation import share_stage, share_stages

__all__ = ["share_stage", "share_stages"]
