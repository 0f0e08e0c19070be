"""A run on disk: its directory, its commits, its publication, and how long it is kept."""

#: The schemes that the client of object stores reaches. ``s3a`` is Hadoop's name for S3, ``abfss`` that for Azure.
OBJECT_SCHEMES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
