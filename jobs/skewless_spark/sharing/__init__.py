"""Several Spark clusters share the virtual tasks of a stage: ``docs/several_clusters.md``.

One cluster routes the rows of the stage and writes those of each task as files. Then all clusters take tasks under
leases, reduce them as an unshared stage does, and commit each task through its fence. At the end one cluster counts
the tasks and commits the stage.
"""

from skewless_spark.sharing.shared_stage import share_stage, share_stages

__all__ = ["share_stage", "share_stages"]
