"""Publishing as the last step of a command: with the turns that are stored beside the output, at the present time."""

from __future__ import annotations

import datetime as dt

from skewless.run.directory import RunDirectory
from skewless.run.publication import Publication, publish, turns_folder
from skewless_leases import Turns, open_store


def publish_now(run: RunDirectory) -> Publication:
    """Publish the committed result of a run (``skewless.run.publication.publish``); it needs no Spark."""
    turns = Turns(open_store(turns_folder(run.job().output_path)))
    return publish(run, turns, dt.datetime.now(tz=dt.UTC))
