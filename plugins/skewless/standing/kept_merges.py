"""Running merges in the store, and the plan of a night that is made with them.

    STORE/FINGERPRINT/merges/NAME.json     the part versions that were merged, and the files with the merged states
    STORE/FINGERPRINT/dropped/NAME.json    no night to come needs it; a prune removes it a while later

They only save time. One that is damaged, or whose files are gone, is passed over, and the states of parts are merged.
"""

from __future__ import annotations

import datetime as dt
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from skewless.columns import column
from skewless.documents.commit import CommittedFile
from skewless.documents.job import Algebra
from skewless.documents.window import PartVersion, WindowSpan
from skewless.errors import DocumentError, RunDirectoryError
from skewless.run.directory import RESULT_STEP, WINDOW_CHOICE, RunDirectory
from skewless.standing.night import Addition, Night, PartStates, RunningMerge, Window
from skewless.standing.retention import modified
from skewless.standing.store import KeptMerge, MergedPart, Numbered, StatesStore, states_checksum, version_path
from skewless.standing.window_choice import MergeStep, PartId, WindowChoice, name_of
from skewless.standing.window_plan import plan_windows

#: A version is subtracted if another one followed it no longer ago: a prune leaves it for a week.
_FOLLOWED_LATELY = dt.timedelta(days=3)
#: From so many of the newest parts before a run's own it is told to how many of them late rows come.
_RECENT_PARTS = 7


class NightPlan(NamedTuple):
    """The plan of a night's merges, and the files of the part versions and kept merges that it starts from, by name."""

    choice: WindowChoice
    files: dict[str, tuple[CommittedFile, ...]]


def plan_night(
    store: StatesStore,
    parts: Sequence[Numbered],
    windows: Sequence[WindowSpan],
    algebra: Mapping[str, Algebra],
    *,
    held_parts: int | None,
    now: dt.datetime,
    result_keys: int = 0,
    preferred: str = "",
) -> NightPlan:
    """Choose how the results of a night are made. Every file of a running merge that the choice takes was looked at.

    ``parts`` are the versions of the longest window, oldest first, the run's own the last. States of ``held_parts`` of
    the newest parts are kept for certain (``StatesStore.kept_parts``). For the others see ``Night``.
    """
    # In this order: a merge that another run keeps comes after the version of that run's own part.
    found = _Found(store, parts, held_parts, now)
    # A part without others in its window shares nothing with other nights: what these keep is left alone.
    slides = len(parts) > 1 and not store.newer_parts(parts[-1].version.part, now)
    sizes = [_sizes(one) for one in parts]
    of_windows = [Window(one.length, tuple(sizes[one.first :])) for one in windows]
    night = Night(
        of_windows, algebra, slides=slides, unsettled=unsettled(parts), result_keys=result_keys, preferred=preferred
    )
    while True:
        choice = plan_windows(
            night._replace(kept=found.running(), left=found.left(), additions=[one for one, _ in found.additions()])
        )
        fault = found.fault_of(choice)
        if fault is None:
            return NightPlan(choice.model_copy(update={"passed_over": tuple(found.faults)}), found.files())
        found.pass_over(*fault)


def unsettled(parts: Sequence[Numbered]) -> int:
    """To how many of the newest parts late rows usually come: as many versions as the last parts have, if several."""
    versions = [one.number for one in parts[:-1]][-_RECENT_PARTS:]
    usual = statistics.median_low(versions) if versions else 1
    return usual if usual > 1 else 0


def kept_merge(
    choice: WindowChoice, step: MergeStep, parts: Sequence[Numbered], files: Sequence[CommittedFile], run: str
) -> KeptMerge:
    """The document of a merge that was made."""
    of_step = parts[slice(*step.span)]
    return KeptMerge(
        fingerprint=of_step[0].version.fingerprint,
        run=run,
        parts=tuple(
            MergedPart(part=part, number=number, states=states_checksum(one.version))
            for (part, number), one in zip(choice.parts_of(step), of_step, strict=True)
        ),
        rows=sum(one.version.rows for one in of_step),
        states=tuple(files),
    )


def choice_of(run: RunDirectory) -> WindowChoice | None:
    """How a run made the results of its windows; None without a window, or before the result is committed."""
    commit = run.commit_of(RESULT_STEP) if run.job().window else None
    if commit is None or not any(path.endswith(f"/{WINDOW_CHOICE}") for path in column(commit.files, "path")):
        return None
    return run.committed_document(commit, WINDOW_CHOICE, WindowChoice)


class _Found:
    """The running merges that a night can use, and the part versions that left its windows."""

    def __init__(self, store: StatesStore, parts: Sequence[Numbered], held_parts: int | None, now: dt.datetime) -> None:
        self._store, self._held, self._now = store, store.kept_parts(held_parts, now), now
        self._versions: dict[PartId, PartVersion | None]
        self._versions = {(one.version.part, one.number): one.version for one in parts}
        self._window = set(self._versions)
        self._checksums: dict[PartId, str] = {}
        self.merges: dict[str, KeptMerge] = {}
        self.faults: list[str] = []
        for name in store.merges():
            try:
                merge = store.merge(name)
            except (DocumentError, RunDirectoryError) as err:
                self.faults.append(f"{name} ({err})")
                continue
            # Numbers begin anew if all versions of a part were removed: then a merge may be of another version 1.
            if all(self._checksum(part) in {part.states, ""} for part in merge.parts):
                self.merges[name] = merge

    def _checksum(self, part: MergedPart) -> str:
        """That of the version which has the number now; empty if there is none."""
        ident = (part.part, part.number)
        if ident not in self._checksums:
            version = self._version(part)
            self._checksums[ident] = states_checksum(version) if version else ""
        return self._checksums[ident]

    def _version(self, part: MergedPart) -> PartVersion | None:
        """None if it is gone, is damaged, or may be removed at any time: then it is not subtracted from anything."""
        ident = (part.part, part.number)
        if ident not in self._versions:
            self._versions[ident] = None
            with suppress(DocumentError, RunDirectoryError):
                self._versions[ident] = self._store.version(*ident) if self._stays(part) else None
        return self._versions[ident]

    def _stays(self, part: MergedPart) -> bool:
        later = [number for number in self._store.numbers(part.part) if number > part.number]
        followed = modified(self._store, version_path(part.part, later[0])) if later else self._now
        return part.part in self._held and self._now - followed < _FOLLOWED_LATELY

    def running(self) -> list[RunningMerge]:
        return [
            RunningMerge(tuple((part.part, part.number) for part in one.parts), *_size(one.states))
            for one in self.merges.values()
        ]

    def left(self) -> list[PartStates]:
        """The versions of parts that are in a running merge, and in no window of the night."""
        return [
            _sizes(Numbered(number, version))
            for (part, number), version in self._versions.items()
            if version is not None and (part, number) not in self._window
        ]

    def additions(self) -> Iterator[tuple[Addition, tuple[CommittedFile, ...]]]:
        """What came to parts of the window since they were merged, where nothing else of them changed."""
        current = dict(self._window)
        for (part, before), earlier in self._versions.items():
            after = current.get(part, before)
            now = self._versions.get((part, after))
            if earlier is None or now is None or after == before or not set(earlier.states) <= set(now.states):
                continue
            files = tuple(file for file in now.states if file not in earlier.states)
            yield Addition(part, before, after, *_size(files)), files

    def files(self) -> dict[str, tuple[CommittedFile, ...]]:
        parts = {name_of((ident,)): one.states for ident, one in self._versions.items() if one is not None}
        parts |= {name_of((one.ident,)): files for one, files in self.additions()}
        return parts | {name: one.states for name, one in self.merges.items()}

    def fault_of(self, choice: WindowChoice) -> tuple[str, str] | None:
        """What the choice takes beside the parts of its windows, and cannot be read: its name, and why."""
        files, window = self.files(), {name_of((ident,)) for ident in self._window}
        window |= {name_of((one.ident,)) for one, _ in self.additions()}
        for name in _taken(choice):
            if name in window or name not in files:
                continue
            for file in files[name]:
                try:
                    self._store.verify(file)
                except RunDirectoryError as err:
                    return name, str(err)
        return None

    def pass_over(self, name: str, why: str) -> None:
        self.faults.append(f"{name} ({why})")
        if self.merges.pop(name, None) is None:
            ident = next(ident for ident in self._versions if name_of((ident,)) == name)
            self._versions[ident] = None


def _taken(choice: WindowChoice) -> Iterator[str]:
    for step in choice.steps:
        yield from (*step.add, *step.subtract, *step.touched_by)
        if step.copy_from:
            yield step.copy_from
    yield from choice.results.values()


def _sizes(one: Numbered) -> PartStates:
    return PartStates(one.version.part, one.number, *_size(one.version.states))


def _size(files: Sequence[CommittedFile]) -> tuple[int, int]:
    return sum(file.rows for file in files), sum(file.size_bytes for file in files)
