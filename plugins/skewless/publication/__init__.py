"""Publishing a validated result: turn, stage, exchange or commit, record; and what is kept of runs and versions.

Readers see one version of a day, whole, and an older run never undoes a newer one.
``docs/decisions/0013-publication.md`` tells what can happen between any two steps.
"""
