"""Models built on aggregates, and the corpus of the demo. Not part of the wheel."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def data_root() -> Path:
    """``$SKEWLESS_ROOT``, or ``data``: the examples read and write below it."""
    return Path(os.environ.get("SKEWLESS_ROOT", "data"))


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """A draft that takes the place of a folder when all of it is written."""
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    yield draft
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
