"""Nights over kept states: files that come late, change and go, runs beside each other, and prunes meanwhile.

A file of states lists the input files that it stands for, so that whoever reads states knows what they are of.
"""

import datetime as dt
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from skewless.document import HASHES
from skewless.documents.commit import CommittedFile
from skewless.documents.job import Job, Unit
from skewless.documents.window import JobWindow, PartVersion, WindowPart, WindowSpan
from skewless.errors import SkewlessError
from skewless.run.directory import RESULT_STEP, Attempt, RunDirectory
from skewless.spec.part import Part
from skewless.standing.parts import FoundFile, next_version, plan_part
from skewless.standing.states_retention import StatesLimits, doomed_states, pin, pins, remove_states
from skewless.standing.states_store import (
    STATES_STEP,
    Fingerprint,
    MergedPart,
    MergedParts,
    Numbered,
    StatesStore,
    open_states,
    states_checksum,
)
from skewless.standing.tree import plan_night
from tests.simulation.publications import plain_job
from tests.simulation.scenario import Scenario

DAY, ROWS, LENGTH = 86_400.0, 10, 3
FIRST = dt.date(2026, 11, 20)
#: Runs take hours, and what is younger is never removed.
LIMITS = StatesLimits(parts=LENGTH, grace=dt.timedelta(days=1), unused=dt.timedelta(days=9))
FINGERPRINT = Fingerprint(shapes={"key": "key"})
Lake = dict[str, dict[str, int]]


def _name(day: int) -> str:
    return (FIRST + dt.timedelta(days=day)).isoformat()


class Nights(Scenario):
    """The files of each part, with their contents' numbers, and the runs of some nights."""

    lasts = True

    def begin(self) -> None:
        place = self.draws.choice(["/sim/lake", "s3://lake/clicks"])
        self.states, self.runs = f"{place}/states", f"{place}/runs/job"
        self.lake: Lake = {_name(day): {"a": 1, "b": 1} for day in range(2)}
        self.committed = set[str]()
        for day in range(2, self.draws.randint(4, 6)):
            self.world.begin(f"source {day}", partial(self.comes, day), after=(day - 2) * DAY)
            for number in range(self.draws.choice([1, 1, 2])):
                name, after = f"night {day}-{number}", (day - 2) * DAY + self.draws.choice([1.0, 3600.0])
                again = self.draws.choice([1, 2])
                for _ in range(again):
                    self.world.begin(name, partial(self.night, name[6:], day), after=after)
        for number in range(self.draws.choice([0, 1, 2])):
            self.world.begin(f"prune {number}", self.prune, after=DAY + number)

    def comes(self, day: int) -> None:
        """What the lake gets: a new part, and in an older one a file that is late, another one, or gone."""
        self.lake.setdefault(_name(day), {"a": 1, "b": 1})
        for _ in range(self.draws.choice([1, 3])):
            part = _name(max(0, day - self.draws.choice([0, 1, 2])))
            name, now = self.draws.choice("abcd"), self.lake.setdefault(part, {"a": 1, "b": 1})
            if name in now and self.draws.random() < 0.3 and len(now) > 1:
                del now[name]
            else:
                now[name] = now.get(name, 0) + 1
            self.world.sleep(self.draws.choice([0.01, 1800.0]))

    def prune(self) -> None:
        for _ in range(5):
            self.tried(self._prune)
            self.world.sleep(self.draws.choice([DAY / 3, DAY]))

    def _prune(self) -> None:
        now = self.now
        doomed = doomed_states(self.states, now, LIMITS)
        self.world.sleep(self.draws.choice([0.0, 0.0, 5.0]))
        remove_states(self.states, doomed, now, LIMITS)

    def night(self, name: str, day: int) -> bool:
        return self.tried(lambda: self._night(RunDirectory(f"{self.runs}/{name}"), day))

    def _night(self, run: RunDirectory, day: int) -> None:
        store = open_states(self.states, FINGERPRINT)
        if not run.exists("job.json"):
            job = self._planned(store, day)
            while not pin(job.covered, run):  # as ``prepare``
                job = self._planned(store, day)
            run.begin(job)
        if run.commit_of(RESULT_STEP) is None:
            self._merged(run, run.job(), store)

    def _planned(self, store: StatesStore, day: int) -> Job:
        parts, units = list[WindowPart](), list[Unit]()
        for one in range(max(0, day - LENGTH + 1), day + 1):
            self.world.call(f"list {_name(one)}")
            listed = [
                FoundFile(f"/in/{_name(one)}/{name}", ROWS, str(at))
                for name, at in self.lake.get(_name(one), {}).items()
            ]
            versions = {file.path: file.version for file in listed}

            def cut(paths: Sequence[str], versions: dict[str, str] = versions) -> list[Unit]:
                return [Unit(path=path, rows=ROWS, size_bytes=ROWS, version=versions[path]) for path in paths]

            part, more = plan_part(
                Part.named(_name(one)), listed, store.newest(_name(one))[0], cut,
                lambda was, found: "" if was.version == found.version else "another one", len(units),
            )  # fmt: skip
            parts.append(part)
            units += more
        window = JobWindow(
            store=str(store), fingerprint=FINGERPRINT.name, shapes=FINGERPRINT.shapes, parts=tuple(parts),
            windows=(WindowSpan(length=LENGTH),),
        )  # fmt: skip
        # No spec is needed here, and one of a window would be.
        return plain_job().model_copy(
            update={
                "units": tuple(units), "waves": (tuple(range(len(units))),), "window": window, "spec": _spec(),
                "date": FIRST + dt.timedelta(days=day),
            }
        )  # fmt: skip

    def _merged(self, run: RunDirectory, job: Job, store: StatesStore) -> None:
        """As the merge does it: states of what was read, a version of each part that has changed, and the result."""
        attempt, rows = run.new_attempt(RESULT_STEP), 0
        store.begin(FINGERPRINT)
        self.world.sleep(self.draws.choice([0.0, 10.0, 3600.0]))
        versions = list[Numbered]()
        for part in job.covered.parts:
            new = [f"{unit.path} {unit.version}" for unit in job.units[slice(*part.units)]]
            made = [self._states(store, attempt.ident, part.name, new)] if new else []
            version = next_version(job.covered, part, str(run), made, ROWS * len(new), _hashed(new))
            self._stands(store, version, f"{run} has {part.name}")
            rows += version.rows
            versions.append(store.commit_all([version])[0] if part.changed else Numbered(part.base or 0, version))
            if part.changed:
                self.committed.add(part.name)
        self._merge_windows(store, job, attempt.ident, versions)
        attempt.commit([], {"rows": rows, "keys": 1})
        listed = ROWS * sum(len(part.files) for part in job.covered.parts)
        self.require(rows == listed, f"{rows} rows of {listed} in {run}")

    def _merge_windows(self, store: StatesStore, job: Job, ident: str, versions: list[Numbered]) -> None:
        """Nodes are made and kept, and the window is read of them; of parts alone, if a prune was faster."""
        plan = plan_night(store, versions, [part.place for part in job.covered.parts], job.covered.windows)
        self.world.sleep(self.draws.choice([0.0, 5.0]))
        files = dict(plan.files)
        try:
            read = {
                name: self._read(store, files[name])
                for name in sorted({*plan.pieces, *plan.document.results[f"{LENGTH}"]} & files.keys())
            }
        except FileNotFoundError:
            read = {f"{one.version.part}@{one.number}": self._read(store, one.version.states) for one in versions}
            seen = list(read.values())
        else:
            for number, (name, (first, end)) in enumerate(plan.document.made.items()):
                read[name] = [row for piece, nodes in plan.pieces.items() if number in nodes for row in read[piece]]
                made = self._states(store, ident, name, read[name])
                parts = (
                    MergedPart(part=one.version.part, states=states_checksum(one.version))
                    for one in versions[first:end]
                )
                store.keep_merges(
                    [MergedParts(fingerprint="", run=ident, parts=tuple(parts), rows=made.rows, states=(made,))]
                )
            seen = [read[name] for name in plan.document.results[f"{LENGTH}"]]
        listed = Counter(f"{file.path} {file.version}" for part in job.covered.parts for file in part.files)
        self.require(Counter(row for rows in seen for row in rows) == listed, f"a window of {listed}, and {seen}")

    def _read(self, store: StatesStore, files: Sequence[CommittedFile]) -> list[str]:
        return [row for file in files for row in json.loads(store.fs.cat_file(f"{store.root}/{file.path}"))]

    def _states(self, store: StatesStore, ident: str, part: str, files: list[str]) -> CommittedFile:
        attempt = Attempt(store, STATES_STEP, ident)
        path = f"{store.root}/{attempt.folder}/{part}.states"
        store.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        with store.fs.open(path, "wb") as out:
            out.write(json.dumps(files).encode())
        return attempt.described("standing", path, ROWS * len(files))

    def _stands(self, store: StatesStore, version: PartVersion, where: str) -> None:
        """States that are read are there, and stand for just the files that they should."""
        seen = Counter[str]()
        for file in version.states:
            try:
                text = store.fs.cat_file(f"{store.root}/{file.path}")
            except FileNotFoundError:
                self.require(False, f"{where}, of which {file.path} is gone")
                return
            seen.update(json.loads(text))
        files = Counter(f"{file.path} {file.version}" for file in version.files)
        self.require(seen == files, f"{where} of {sorted(files)}, and its states of {sorted(seen.elements())}")
        self.require(version.rows_hash == _hashed(files), f"{where}, whose rows have another hash")

    def end(self) -> None:
        """What is kept is whole; another night, long after, finds all that it should not make anew."""
        store = open_states(self.states, FINGERPRINT)
        kept = store.kept_parts(LENGTH, self.now)
        for part in store.parts():
            for number in store.numbers(part):
                try:
                    version = store.usable(part, number)
                except SkewlessError as err:
                    self.require(False, f"a kept version cannot be used: {err}")
                else:
                    self._stands(store, version, f"version {number} of {part}")
            self.require(
                bool(store.numbers(part)) or part not in kept & self.committed, f"no version of {part} is left"
            )
        self.require(self.night("last", max(map(_day, self.lake))), "no night can follow")
        self.world.sleep(30 * DAY)
        self._prune()
        files = {str(path) for path in store.fs.find(f"{store.root}/{STATES_STEP}")}
        listed = [one.states for one in self._versions(store)] + [store.merge(name).states for name in store.merges()]
        named = {f"{store.root}/{file.path}" for states in listed for file in states}
        pinned = {f"{store.root}/{path}" for path in pins(store, self.now, LIMITS.grace)[0]}
        self.require(named <= files <= named | pinned, f"kept, or not kept: {sorted(files ^ named)}")

    def _versions(self, store: StatesStore) -> list[PartVersion]:
        return [store.version(part, number) for part in store.parts() for number in store.numbers(part)]


def _hashed(files: Iterable[str]) -> int:
    return sum(zlib.crc32(file.encode()) for file in files) % HASHES


def _day(part: str) -> int:
    return (dt.date.fromisoformat(part) - FIRST).days


def _spec() -> object:
    spec = plain_job().spec
    return spec.model_copy(update={"window": type(spec).model_validate({**_PLAIN, "window": LENGTH}).window})


_PLAIN = {
    "name": "synthetic", "input": {"path": "in/date={date}"}, "key": "key", "aggregates": {"occurrences": "count"},
    "output": {"path": "out"},
}  # fmt: skip
