"""The states of a job for somebody who must not add to them: a folder of links, where new versions do no harm."""

from __future__ import annotations

from pathlib import Path

from fsspec.implementations.local import LocalFileSystem

from skewless.run.storage import Storage


def borrow_states(location: str, folder: Path) -> None:
    """Make a folder with all states that are kept, which may be added to without adding to those.

    Documents are copied, as they are small. Files of states are linked; those that are not local are copied.

    Args:
        location: the folder of the states of a job.
        folder: the new one.
    """
    kept = Storage(location)
    folder.mkdir(parents=True)
    for full in kept.fs.find(kept.root):
        target = folder / str(full)[len(kept.root) + 1 :]
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(kept.fs, LocalFileSystem) and target.suffix != ".json":
            target.symlink_to(full)
        else:
            kept.fs.get_file(full, str(target))
