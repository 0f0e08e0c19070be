"""The DAG file that is being read: where its relative paths start, and where its import errors are listed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from skewless.errors import SkewlessError, SpecError
from skewless.spec.reading import load_spec
from skewless.spec.spec import JobSpec


def beside_caller(path: str | Path) -> Path:
    """A path as a DAG file means it: a relative one starts in the folder of the file that calls Skewless.

    Airflow's processes start anywhere, so their own folder says nothing. Where no file calls, as in a shell, a relative
    path starts in the folder of the process.
    """
    package = __name__.partition(".")[0]
    callers = (one.f_globals for one in _frames() if one.f_globals.get("__name__", "").partition(".")[0] != package)
    file = next(callers, {}).get("__file__")
    return (Path(file).parent / path if file else Path(path)).resolve()


def read_spec(given: JobSpec | str | Path) -> tuple[JobSpec, Path | None]:
    """A spec, and the path of its file; None if the spec itself was given.

    Raises:
        SpecError: the file cannot be read, or is no spec.
    """
    if isinstance(given, JobSpec):
        return given, None
    path = beside_caller(given)
    return load_spec(path), path


def list_import_errors(faults: Mapping[Path, SkewlessError]) -> None:
    """List each broken file as an import error under its own path, beside the sound DAGs of the file that is read.

    Airflow keeps import errors by path, and an error of a DAG file makes all DAGs of that file stale. It has no call to
    report one for another path, so the errors are added to those of the bag that reads the file; the DAG processor
    stores whatever is in it.

    Raises:
        SkewlessError: no bag reads the file, as when Python runs it: then the errors would be lost.
    """
    bag = _bag()
    if faults and bag is None:
        first, *more = faults.values()
        raise first if not more else SpecError.saying("job catalog", " ".join(str(one) for one in (first, *more)))
    for path, fault in faults.items():
        bag.import_errors[os.path.relpath(path, bag.bundle_path) if bag.bundle_path else str(path)] = str(fault)


def _bag() -> Any:
    """The ``DagBag`` that reads the DAG file; None if there is none."""
    module = sys.modules.get("airflow.dag_processing.dagbag")
    held = (one.f_locals.get("self") for one in _frames())
    return next((one for one in held if isinstance(one, module.DagBag)), None) if module else None


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # as `inspect` does, which reads source lines, too
    while frame is not None:
        yield frame
        frame = frame.f_back
