"""The last step of a run, as commands do it: with the store of turns beside the output, and the time of now."""

from __future__ import annotations

import datetime as dt

from skewless.run.directory import RunDirectory
from skewless.run.publication import Publication, publish, turns_folder
from skewless_leases import Turns, open_store


def publish_now(run: RunDirectory) -> Publication:
    """``skewless.run.publication.publish``; it needs no Spark."""
    turns = Turns(open_store(turns_folder(run.job().output_path)))
    return publish(run, turns, dt.datetime.now(tz=dt.UTC))
