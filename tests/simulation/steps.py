"""Attempts of a run's steps, at once and one after the other: all see one job and one commit of each step for ever."""

from functools import partial

from skewless.run.directory import Fence, RunDirectory
from skewless_spark.session.step_lease import leased_step
from tests.simulation.publications import plain_job
from tests.simulation.scenario import Scenario

STEPS = ("stages/0000", "result")


class Steps(Scenario):
    """A run directory on a disk, on one that a network loses answers of, or in a bucket."""

    def begin(self) -> None:
        self.where = self.draws.choice(["/sim/runs/job/run", "s3://lake/runs/job/run"])
        self.machine.disk.remote = self.draws.random() < 0.5
        self.asked, self.admitted = ({step: set[str]() for step in STEPS} for _ in range(2))
        for number in range(self.draws.randint(2, 3)):
            after = self.draws.choice([0.0, 0.0, 20.0])
            self.world.begin(f"attempt {number}", partial(self.attempt, number), after=after)

    def attempt(self, number: int) -> bool:
        return self.tried(lambda: self._attempted(number))

    def _attempted(self, number: int) -> None:
        run = RunDirectory(self.where)
        self.same("the job", run.begin(plain_job().model_copy(update={"turn": number + 1})).turn)
        for step in STEPS:
            with leased_step(run, step) as fence:
                assert fence is not None, "there are leases on disks and in buckets"
                if run.commit_of(step) is None:
                    self._work(run, step, fence)
            commit = run.committed(step)
            self.same(step, commit)
            for file in commit.files:
                run.verify(file)

    def _work(self, run: RunDirectory, step: str, fence: Fence) -> None:
        attempt = run.new_attempt(step, _Watched(self, step, fence))
        run.fs.makedirs(f"{run.root}/{attempt.folder}", exist_ok=True)
        with run.fs.open(f"{run.root}/{attempt.folder}/rows.txt", "wb") as out:
            out.write(attempt.ident.encode())
        self.world.sleep(self.draws.choice([0.0, 1.0, 30.0]))
        attempt.commit([attempt.described("rows", f"{run.root}/{attempt.folder}/rows.txt", 1)], {"rows": 1})

    def end(self) -> None:
        self.require(self.attempt(9), "it cannot be ended")
        run = RunDirectory(self.where)
        for step in STEPS:
            admitted, committed = self.admitted[step], run.committed(step).attempt
            self.require(admitted <= {committed}, f"{step} was granted to {sorted(admitted)}")
            self.require(committed in self.asked[step], f"{committed} has committed {step} without its fence")


class _Watched:
    """A fence, and which attempts have asked it, and were admitted for certain."""

    def __init__(self, steps: Steps, step: str, fence: Fence) -> None:
        self._steps, self._step, self._fence = steps, step, fence

    def admit(self, attempt: str) -> None:
        self._steps.asked[self._step].add(attempt)
        self._fence.admit(attempt)
        self._steps.admitted[self._step].add(attempt)
