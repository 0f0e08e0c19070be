"""The steps of a run, as Airflow's tasks run them: the same entries with the same arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from skewless.errors import SkewlessError
from skewless.planner.planner import plan_next_stage
from skewless.run.directory import RunDirectory
from skewless_spark.entries import merge_states, prepare_run, run_stage, share_stage, validate_result
from skewless_spark.result.publishing import publish_now
from skewless_spark.session.spark_errors import sentence_for
from tests.faults import arithmetic
from tests.faults.world import World


class Step(NamedTuple):
    """A task of the DAG.

    Attributes:
        name: for people.
        slug: for files.
        spark: whether it needs Spark.
        script: its entry below ``jobs/``; empty for what runs in the Airflow task itself.
        arguments: those of the entry after the run directory.
    """

    name: str
    slug: str
    spark: bool
    script: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def alike(self) -> bool:
        """Whether any attempt leaves the same bytes; others say in their commit which one they were."""
        return self.slug.startswith(("prepare", "decide"))

    def without_spark(self) -> Step:
        return Step(f"{self.name}, no Spark", self.slug, False) if self.spark else self

    def argv(self, world: World) -> list[str]:
        return ["--run-dir", str(world.folder), *self.arguments]

    def act(self, world: World, name: str) -> int:
        if self.script:
            sys.argv = [self.script, *self.argv(world), "--failure-name", name]
            _ENTRIES[self.script]()
            return 0
        # The operators of Airflow turn these errors into sentences, and no others.
        try:
            self._in_task(RunDirectory(str(world.folder)))
        except SkewlessError as err:
            sys.stderr.write(f"skewless: {err}\n")
            return err.exit_code
        except OSError as err:
            if self.alike or self.slug == "publish":
                raise
            sys.stderr.write(f"skewless: {sentence_for(err)}\n")  # as an entry does, which this stands for
            return 1
        return 0

    def _in_task(self, run: RunDirectory) -> None:
        kind, _, number = self.slug.partition("-")
        if kind == "decide":
            run.decide(int(number), plan_next_stage)
        elif kind == "stage":
            arithmetic.run_stage(run, int(number))
        else:
            {"publish": publish_now, "merge": arithmetic.merge, "validate": arithmetic.validate}[kind](run)


_ENTRIES: dict[str, Callable[[], None]] = {
    "prepare_run.py": prepare_run.main,
    "run_stage.py": run_stage.main,
    "share_stage.py": share_stage.main,
    "merge_states.py": merge_states.main,
    "validate_result.py": validate_result.main,
}
JOBS = Path(__file__).parents[2] / "jobs"


def prepare_step(world: World) -> Step:
    where = ("--spec", str(world.spec), "--date", "2026-11-20", "--root", str(world.root))
    return Step("prepare", "prepare", False, "prepare_run.py", where)


def whole_night(world: World, name: str, date: str) -> int:
    """Another run, from its beginning to its merged result, in this process; returns the exit code."""
    folder = str(world.folder.with_name(name))
    where = ("--spec", str(world.spec), "--date", date, "--root", str(world.root))
    for script, arguments in (("prepare_run.py", where), ("run_stage.py", ("--stage", "0")), ("merge_states.py", ())):
        sys.argv = [script, "--run-dir", folder, *arguments, "--failure-name", name]
        _ENTRIES[script]()
    return 0


def stage_step(number: int) -> Step:
    return Step(f"stage {number}", f"stage-{number}", True, "run_stage.py", ("--stage", str(number)))


def decide_step(number: int) -> Step:
    return Step(f"decide {number}", f"decide-{number}", False)


MERGE = Step("merge", "merge", True, "merge_states.py")
VALIDATE = Step("validate", "validate", True, "validate_result.py")
PUBLISH = Step("publish", "publish", False)


def named_step(world: World, slug: str, *, spark: bool) -> Step:
    kind, _, number = slug.partition("-")
    if number:
        step = (stage_step if kind == "stage" else decide_step)(int(number))
    else:
        step = {"prepare": prepare_step(world), "merge": MERGE, "validate": VALIDATE, "publish": PUBLISH}[slug]
    return step if spark else step.without_spark()
