"""Publishing as the last step of a command: at the present time."""

from __future__ import annotations

import datetime as dt

from skewless.publication.records import Publication
from skewless.run.directory import RunDirectory
from skewless_lake.publication import keep_night, publish_run
from skewless_lake.replays import keep_savings


def publish_now(run: RunDirectory) -> Publication:
    """Publish the committed result of a run (``skewless_lake.publication.publish_run``); it needs no Spark."""
    now = dt.datetime.now(tz=dt.UTC)
    published = publish_run(run, now)
    keep_savings(run)
    keep_night(run, now)
    return published
