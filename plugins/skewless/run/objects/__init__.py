"""Paths on object stores: the client, its files, and how only the first writer of an object wins."""

#: The schemes that the client reaches. ``s3a`` is Hadoop's name for S3, ``abfss`` that for Azure.
OBJECT_SCHEMES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
#: How the variables of the environment begin that a client is set up by.
SETTINGS = ("AWS_", "GOOGLE_", "AZURE_")
