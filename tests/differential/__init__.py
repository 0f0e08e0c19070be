"""Each type of Parquet by many writers, read in every way: all read the same rows."""
