"""Which files of kept states runs under way need: each run says so before it begins, and a prune looks again.

A run writes its pin first, and then looks whether the versions that it has chosen are still there. A prune removes
versions first, and then reads the pins, and then removes files. So whichever comes first: the run finds that a version
is gone, and chooses anew; or the prune finds the pin, and leaves the files.
"""

from __future__ import annotations

import datetime as dt

from skewless.document import Document
from skewless.documents.window import JobWindow, WindowPart
from skewless.errors import DocumentError, RunDirectoryError
from skewless.run.attempt import commit_path
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless.standing.store import StatesStore, names_in

_PINS = "pins"


class Pin(Document):
    """What a run needs of the kept states, from before it begins until its result is committed.

    Attributes:
        run: the run directory.
        files: files with states, below the store.
    """

    run: str
    files: tuple[str, ...]


def pin(window: JobWindow, run: RunDirectory) -> bool:
    """Keep the states that a run has chosen from being removed.

    Args:
        window: of the job that is about to be written.
        run: its directory.

    Returns:
        Whether all of them are still there; if not, the run has to choose anew.
    """
    store = StatesStore(window.store)
    based = [part for part in window.parts if part.base is not None]
    if not based:
        return True
    document = Pin(run=str(run), files=tuple(sorted(file.path for part in based for file in part.base_states)))
    store.write_once(f"{_PINS}/{document.digest()[:24]}.json", document)
    return all(_is_there(store, part) for part in based)


def _is_there(store: StatesStore, part: WindowPart) -> bool:
    try:
        # The number alone does not tell: it is given anew if all versions of a part were removed.
        return store.version(part.name, part.base or 0).states == part.base_states
    except (DocumentError, RunDirectoryError):
        return False


def pins(store: StatesStore, now: dt.datetime, grace: dt.timedelta) -> tuple[set[str], list[str]]:
    """What runs under way need.

    Args:
        store: where it is.
        now: the moment that ages are counted to, with a time zone.
        grace: a run without a directory may be about to begin while its pin is not older.

    Returns:
        The files, and the pins that nobody needs: of runs that have their result, or that are gone.

    Raises:
        DocumentError: a pin is damaged, so that nobody knows.
        RunDirectoryError: a pin cannot be read.
    """
    files, released = set[str](), list[str]()
    for name in sorted(names_in(store, _PINS)):
        path = f"{_PINS}/{name}"
        if not name.endswith(".json"):
            continue
        try:
            one, young = store.read(path, Pin), now - modified(store, path) <= grace
        except (FileNotFoundError, RunDirectoryError):
            if store.exists(path):
                raise
            continue  # another prune has removed it, as nobody needs it
        if _needs(one.run, young=young):
            files.update(one.files)
        else:
            released.append(path)
    return files, released


def _needs(run: str, *, young: bool) -> bool:
    directory = RunDirectory(run)
    if not directory.exists("job.json"):
        return young
    return not directory.exists(commit_path(RESULT_STEP))


def modified(store: StatesStore, path: str) -> dt.datetime:
    """When a file was written, with a time zone."""
    moment: dt.datetime = store.fs.modified(f"{store.root}/{path}")
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
