"""The names of steps in a run directory. DAG files need them when they are read, and not the directory itself."""

from __future__ import annotations

#: The spec of a run that was given as a value and not as a file.
SPEC_DOCUMENT = "spec.json"
QUALITY_REPORT = "result.json"

RESULT_STEP = "result"
QUALITY_STEP = "quality"


def stage_step(stage: int) -> str:
    """The folder of a stage, below the run directory."""
    return f"stages/{stage:04d}"
