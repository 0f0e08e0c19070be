"""Publishing a validated result: a version of the day is built beside the output folder, and exchanged at once.

Readers that list a day see one version whole or find no file, never a mix: the names of files are those of their
version. Runs of one day are ordered by their turns, so that an older one never undoes a newer one. What can happen
between any two steps is told in ``docs/decisions/0013-publication.md``.
"""

from skewless.run.publication.places import beside, place_of, turns_folder
from skewless.run.publication.publish import publish, publishing, require_passed
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
from skewless.run.publication.turns import Turns, draw_turn, with_turn

__all__ = [
    "PUBLISHED",
    "Identity",
    "Overtaken",
    "Publication",
    "Turns",
    "VersionManifest",
    "beside",
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
    "with_turn",
]
