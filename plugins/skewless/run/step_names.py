"""The names of steps in a run directory. DAG files need them when they are read, and not the directory itself."""

from typing import NamedTuple

from skewless.spec.spec import JobSpec

#: The spec of a run that was given as a value and not as a file.
SPEC_DOCUMENT = "spec.json"
QUALITY_REPORT = "result.json"

RESULT_STEP = "result"
QUALITY_STEP = "quality"
COMPARISON_STEP, COMPARISON_REPORT = "comparison", "comparison.json"


class LastStep(NamedTuple):
    """What becomes of a result that was validated."""

    name: str
    """Of the step, and of its task."""
    publishes: bool
    """Whether readers will see the result: then a turn orders it among others of its day, and what a table would get is
    staged there before it is validated."""
    on_spark: str
    """The last step of the run that needs Spark."""


PUBLISH = LastStep("publish", publishes=True, on_spark=QUALITY_STEP)
COMPARE = LastStep("compare", publishes=False, on_spark=COMPARISON_STEP)


def last_step_of(spec: JobSpec) -> LastStep:
    """What the last step of a spec's runs does."""
    return PUBLISH if spec.shadow is None else COMPARE


def stage_step(stage: int) -> str:
    """The folder of a stage, below the run directory."""
    return f"stages/{stage:04d}"
