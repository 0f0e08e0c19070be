"""The data root and the folder of runs: reached, written to, and of two writers of one document only the first wins."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from skewless.documents.commit import StepCommit
from skewless.errors import SkewlessError, without_secrets
from skewless.run.folder import RUN_GROUP, RUNS_FOLDER, runs_below
from skewless.run.objects.location import plain_path
from skewless.run.storage import Storage
from skewless_cli.doctor.finding import Finding, Surroundings, pip_install

#: How the folder is called in which two commits compete; it is removed at once.
PROBE = ".skewless-doctor-"


def check_places(asked: Surroundings) -> Iterator[Finding]:
    """The data root, and the folder of runs where it is another one."""
    yield _tried("SKEWLESS_ROOT", asked.root)
    if os.environ.get(RUNS_FOLDER):
        yield _tried(RUNS_FOLDER, runs_below(asked.root))


def _tried(variable: str, location: str) -> Finding:
    place = plain_path(location).rstrip("/")
    if "://" not in place and not Path(place).is_dir():
        told = f"there is no folder {Path(place).absolute()}"
        return Finding(variable, "wrong", told, f"mkdir -p {Path(place).absolute()}")
    shown = without_secrets(place)
    try:
        won = _compete(f"{place}/{PROBE}{secrets.token_hex(8)}")
    except (SkewlessError, OSError) as err:
        told = err.came if isinstance(err, SkewlessError) else err.strerror or type(err).__name__
        return Finding(variable, "wrong", f"{shown}: {told}", _mended(shown, told, getattr(err, "hint", "")))
    if won != [True, False]:
        told = f"{shown}: of two writers of one file, not only the first has won"
        return Finding(variable, "wrong", told, f"export {variable}=FOLDER, on a local or shared file system")
    return Finding(variable, "good", f"{shown}, where only the first writer of a file wins")


def _compete(folder: str) -> list[bool]:
    """Let two attempts commit one step, as in a run, and leave nothing behind; whether each has won."""
    storage = Storage(folder, os.environ.get(RUN_GROUP, ""))
    attempts = [StepCommit(step="doctor", attempt=name, files=()) for name in ("first", "second")]
    try:
        return [storage.write_once("COMMIT.json", one) for one in attempts]
    finally:
        if storage.fs.exists(storage.root):
            storage.fs.rm(storage.root, recursive=True)


def _mended(place: str, told: str, hint: str) -> str:
    if "obstore" in told:
        return pip_install("skewless[object-stores]")
    if "does not let us in" in told:
        return "export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=..., or what else the store asks for"
    if "://" not in place and "Permission denied" in told:
        return f"sudo chown $USER {place}"
    return hint
