"""Publishing a validated result: a version of the day is built beside the output folder, and exchanged at once.

Readers that list a day see one version, whole, or find no file, but never a mix: each version has its own file names.
Turns order the runs of a day, so that an older run never undoes a newer one. ``docs/decisions/0013-publication.md``
tells what can happen between any two steps.
"""

from skewless.run.publication.places import beside, beside_table, place_of, turns_folder, turns_of_table
from skewless.run.publication.publish import Turns, draw_turn, publish, publishing, require_passed, with_turn
from skewless.run.publication.records import (
    PUBLISHED,
    Identity,
    Overtaken,
    Publication,
    VersionManifest,
    identity_of,
    manifest_of,
    publication_of,
    published_path,
    record_of,
    superseded_by,
)

__all__ = [
    "PUBLISHED",
    "Identity",
    "Overtaken",
    "Publication",
    "Turns",
    "VersionManifest",
    "beside",
    "beside_table",
    "draw_turn",
    "identity_of",
    "manifest_of",
    "place_of",
    "publication_of",
    "publish",
    "published_path",
    "publishing",
    "record_of",
    "require_passed",
    "superseded_by",
    "turns_folder",
    "turns_of_table",
    "with_turn",
]
