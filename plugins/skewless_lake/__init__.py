"""Tables of a lake, without Spark and without a jar: Iceberg by pyiceberg, Delta by deltalake.

A result is written into files of the table, staged, validated and then published in one commit
(write, audit, publish). ``docs/tables.md`` tells how it is used, ``docs/decisions/0043-tables-as-outputs.md`` why it is
made so.
"""
