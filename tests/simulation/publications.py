"""Runs of one day that are prepared, published, tried again and pruned at once, and readers of the day meanwhile."""

import datetime as dt
from functools import lru_cache, partial
from pathlib import Path

from skewless.documents.job import Job
from skewless.documents.ledger import balance
from skewless.documents.quality import Check, QualityReport
from skewless.errors import LostRaceError
from skewless.publication.folder_output import FolderOutput, draw_turn, faults_of, shown_turn
from skewless.publication.places import BUILDING, beside, kept_versions
from skewless.publication.publish import publish, publishing
from skewless.publication.records import manifest_of, record_of
from skewless.publication.retention import Limits, enact_fate, fates
from skewless.run.directory import QUALITY_STEP, RESULT_STEP, RunDirectory
from skewless.run.folder import sync_file
from skewless_leases import Turns, open_store
from tests.publication.days import DAY
from tests.simulation.machine import Machine
from tests.simulation.scenario import Scenario
from tests.unit import synthetic

RUNS, OUT = "/sim/lake/runs", "/sim/lake/out"
FILES = 2
#: Runs that are older may go: no attempt is stopped for so long.
LIMITS = Limits(finished=dt.timedelta(minutes=20), unfinished=dt.timedelta(minutes=20))


@lru_cache(maxsize=1)
def plain_job() -> Job:
    job = synthetic.job([], output_path=OUT)
    output = job.spec.output.model_copy(update={"grace_hours": 0.1})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"output": output})})


@lru_cache(maxsize=1)
def _report() -> QualityReport:
    check = Check(subject="result", expectation="expect_x", column="n", success=True, observed="3", found="x")
    return QualityReport(success=True, keys=FILES, checks=(check,), ledger=balance(plain_job(), [], 0))


class Day(Scenario):
    """A history of a day. The newest input that there is when a run lists it is what the run's result says."""

    lasts = True

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.day, self.inputs, self.count = Path(OUT, DAY), 1, 0
        #: The input that there was when each turn was drawn; and the turns that a caller was told are published.
        self.drawn: dict[int, int] = {}
        self.told: dict[int, int] = {}
        self.seen = 0

    def begin(self) -> None:
        draws = self.draws
        self.world.power_lost.append(self._forget)
        self.run(0)
        for number in range(1, draws.randint(3, 5)):
            after = draws.choice([0.0, 1.0, 300.0, 1300.0])
            for _ in range(draws.choice([1, 1, 2])):
                self.world.begin(f"run {number}", partial(self.run, number), after=after, restarts=3)
            self.count = number
        self.world.begin("source", self.source, restarts=0)
        for number in range(2):
            self.world.begin(f"reader {number}", self.read, restarts=0, serves=True)
        if draws.random() < 0.5:
            for number in range(2):
                self.world.begin(f"prune {number}", self.prune, after=draws.choice([1200.0, 1300.0, 1500.0]))

    # What runs beside each other.

    def run(self, number: int) -> None:
        """All steps of a run that matter here; a task that lost a race is tried again."""
        run = RunDirectory(f"{RUNS}/simulation/{number}")
        for _ in range(4):
            try:
                self._run(run)
            except LostRaceError:
                self.world.sleep(self.draws.expovariate(1 / 30))
            else:
                return

    def _run(self, run: RunDirectory) -> None:
        job = plain_job()
        turns = Turns(open_store(f"{beside(OUT)}/turns"))
        if not run.exists("job.json"):
            shown = turn = 0
            while turn <= shown:  # as ``prepare``
                before, turn = self.inputs, draw_turn(OUT, turns, shown)
                self.world.call("list the input")
                self.drawn[turn], listed = before, self.inputs
                job = job.model_copy(update={"input_path": f"/{listed}", "turn": turn})
                shown = shown_turn(job)
            run.begin(job)
        job = run.job()
        if run.commit_of(RESULT_STEP) is None:
            attempt, made = run.new_attempt(RESULT_STEP), []
            for part in range(FILES):
                path = Path(attempt.path(f"{part}.txt"))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{job.turn} {job.input_path[1:]}")
                sync_file(path)  # of what Spark has written and the disk has not, a run says that it is gone
                made.append(attempt.described("result", str(path), 1, copied=True))
            attempt.commit(made, {"rows": 7, "keys": FILES})
        if run.commit_of(QUALITY_STEP) is None:
            quality = run.new_attempt(QUALITY_STEP)
            quality.write("result.json", _report())
            quality.commit([], {})
        record = publish(publishing(run, FolderOutput(run, self.now), turns))
        if record.superseded is None:
            self.told[record.turn] = record.rows

    def source(self) -> None:
        for _ in range(6):
            self.world.sleep(self.draws.choice([0.1, 1.0, 300.0]))
            self.inputs += 1

    def prune(self) -> None:
        for fate in fates(RUNS, self.now, LIMITS):
            enact_fate(fate)

    def read(self) -> None:
        """Read the day again and again: once it was there it is there, one version whole, and none is older."""
        while True:
            self.world.sleep(self.draws.choice([0.0, 0.02, 0.1, 1.0, 900.0]))
            least, told = self.seen, max(self.told, default=0)
            try:
                texts = self.texts
            except FileNotFoundError as err:
                if str(err.filename) == str(self.day):
                    self.world.fault("the day is not there")
                continue  # it was published under the reader's hands
            self._judge(texts, max(told, least))

    def _forget(self) -> None:
        self.seen = max(self.told, default=0)

    def _judge(self, texts: list[str], least: int) -> None:
        if len(texts) != FILES or len(set(texts)) != 1:
            self.world.fault(f"a reader got {texts}")
            return
        turn = int(texts[0].partition(" ")[0])
        if turn < least:
            self.world.fault(f"a reader got turn {turn} after turn {least}")
        self.seen = max(self.seen, turn)

    # What must hold in the end.

    def end(self) -> None:
        """Each task is called until it is done; then all is as it would be had nothing happened."""
        self._judge(self.texts, max(self.told, default=0))
        left = [number for number in range(self.count + 1) if Path(f"{RUNS}/simulation/{number}/job.json").exists()]
        for number in (*left, *left):  # whoever waited for a later claim finds that it was published
            self.run(number)
        runs = [RunDirectory(f"{RUNS}/simulation/{number}") for number in left]
        turns = {run.job().turn: run for run in runs}
        records = {turn: record_of(run) for turn, run in turns.items()}
        newest = max(turns)
        self.require(len(turns) == len(runs), "two runs have one turn")
        self.require(None not in records.values(), f"not done: {records}")
        for turn, record in records.items():
            over = record.superseded if record else None
            self.require(over is None or over.turn > turn, f"turn {turn} is superseded by an earlier one")
            self.require(turn != newest or over is None, "the last turn is superseded")
        listed = int(turns[newest].job().input_path[1:])
        self.require(
            listed >= max(self.drawn[turn] for turn in turns),
            f"turn {newest} has listed before others have drawn theirs",
        )
        texts = self.texts
        self.require(texts == [f"{newest} {listed}"] * FILES, f"turn {newest} is the last, and readers get {texts}")
        beside = [path.name for path in Path(OUT).iterdir()]
        self.require(beside == [DAY], f"beside the day: {beside}")
        manifest = manifest_of(self.day)
        whole = manifest is not None and len(manifest.files) == FILES and not faults_of(self.day, manifest)
        self.require(whole, "the day is not as its manifest says")
        drafts = [path.name for path in Path(OUT).with_name(".out.skewless").joinpath("drafts", DAY).iterdir()]
        self.require(not drafts, f"left over: {drafts}")
        for version in kept_versions(Path(OUT).with_name(".out.skewless")):
            if version.folder.name.endswith(BUILDING):
                continue  # half removed
            kept = manifest_of(version.folder)
            self.require(kept is not None and not faults_of(version.folder, kept), f"kept: {version.folder}")

    @property
    def texts(self) -> list[str]:
        return [path.read_text() for path in sorted(self.day.iterdir()) if path.name[0] not in "._"]
