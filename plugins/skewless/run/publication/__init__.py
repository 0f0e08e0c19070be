"""Publishing a validated result: a version of the day is built beside the output folder, and exchanged at once.

Readers that list a day see one version, whole, or find no file, but never a mix: each version has its own file names.
Turns order the runs of a day, so that an older run never undoes a newer one. ``docs/decisions/0013-publication.md``
tells what can happen between any two steps.
"""
