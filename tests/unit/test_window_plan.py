"""The plan of a window's merges: whatever the nights were, the result has exactly the parts of the window."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from skewless.documents.job import Algebra
from skewless.errors import PlanError
from skewless.standing.night import Addition, Night, PartStates, RunningMerge, Window
from skewless.standing.window_choice import PartId, Piece, WindowCandidate, WindowChoice, name_of
from skewless.standing.window_plan import plan_windows
from tests.tiers import mostly_long
from tests.unit.states import Counts, follow, merged

EXACT = {"n": Algebra(mergeable=True, ordered=False, invertible=True)}
FLOATS = {**EXACT, "mean": Algebra(mergeable=True, ordered=False)}
WAYS = {"merge all", "running merges", "subtract", "touched keys"}


@dataclass
class Nights:
    """A store of states, and what is done there: parts come, change and go; a night's plan is followed."""

    algebra: Mapping[str, Algebra]
    lengths: tuple[int | None, ...]
    #: Of each part version the versions with which its files came.
    files: dict[PartId, tuple[PartId, ...]] = field(default_factory=dict)
    #: Of what came with each part version the keys that it really has, and how many it says it has.
    keys: dict[PartId, tuple[frozenset[int], int]] = field(default_factory=dict)
    current: dict[str, int] = field(default_factory=dict)
    gone: set[PartId] = field(default_factory=set)
    kept: dict[str, tuple[Piece, Counts]] = field(default_factory=dict)
    chosen: set[str] = field(default_factory=set)
    unsettled: int = 0
    preferred: str = ""

    def change(self, part: str, keys: frozenset[int], said: int, *, add: bool = False) -> None:
        """A part comes, is reduced anew, or is added to."""
        version = max((version for name, version in self.keys if name == part), default=0) + 1
        self.keys[part, version] = (keys, said)
        self.files[part, version] = (*(self.files[part, self.current[part]] if add else ()), (part, version))
        self.current[part] = version

    def part(self, ident: PartId) -> PartStates:
        said = sum(self.keys[file][1] for file in self.files[ident])
        return PartStates(*ident, said, 20 * said)

    def states_of(self, ident: PartId) -> Counts:
        assert ident not in self.gone
        return self.came(self.files[ident])

    def came(self, files: Iterable[PartId]) -> Counts:
        return merged({key: Counter([file]) for key in self.keys[file][0]} for file in files)

    def additions(self) -> dict[Addition, tuple[PartId, ...]]:
        """What the current versions have beside the files of earlier ones."""
        found = {}
        for before, earlier in self.files.items():
            after = self.current.get(before[0], before[1])
            now = self.files[before[0], after]
            if after != before[1] and set(earlier) <= set(now):
                files = now[len(earlier) :]
                said = sum(self.keys[file][1] for file in files)
                found[Addition(before[0], before[1], after, said, 20 * said)] = files
        return found

    def night(self, *, upto: str | None = None) -> WindowChoice | None:
        """Plan a night, follow the plan, and compare every result with a merge of all parts."""
        names = [name for name in sorted(self.current) if upto is None or name <= upto]
        if not names:
            return None
        windows = [
            Window(length, tuple(self.part((name, self.current[name])) for name in names[-(length or len(names)) :]))
            for length in self.lengths
        ]
        needed = {part for window in windows for part in window.piece}
        left = [self.part(ident) for ident in self.keys if ident not in self.gone | needed]
        kept = [RunningMerge(piece, len(states), 20 * len(states)) for piece, states in self.kept.values()]
        said = max(len(of.parts) and max(part.keys for part in of.parts) for of in windows)
        choice = plan_windows(
            Night(
                windows,
                self.algebra,
                [one._replace(keys=said, size_bytes=20 * said) for one in kept],
                left=left,
                additions=list(self.additions()),
                slides=upto is None,
                unsettled=self.unsettled,
                preferred=self.preferred,
            )
        )
        assert WindowChoice.from_json(choice.to_json()) == choice
        found = {name_of((ident,)): self.states_of(ident) for ident in self.keys if ident not in self.gone}
        found |= {name_of((one.ident,)): self.came(files) for one, files in self.additions().items()}
        found |= {name: states for name, (_, states) in self.kept.items()}
        for step in choice.steps:
            assert step.makes not in found, "nothing is made that is there already"
            assert not step.subtract or self.algebra is EXACT
            found[step.makes] = follow(step, found.__getitem__)
            assert name_of(choice.parts_of(step)) == step.makes
            if step.keep:
                assert upto is None
                self.kept[step.makes] = (choice.parts_of(step), found[step.makes])
        for window in windows:
            assert found[choice.results[window.name]] == merged(map(self.states_of, window.piece))
        for name in choice.dropped:
            assert upto is None
            del self.kept[name]
        self.chosen |= {one.action for one in choice.candidates if one.chosen and one.seconds}
        return choice


def day(number: int) -> str:
    return f"2026-{1 + number // 28:02}-{1 + number % 28:02}"


KEYS = st.frozensets(st.integers(0, 5), max_size=4)
SAID = st.sampled_from([0, 100, 10**5, 10**7])
EVENTS = st.one_of(
    st.tuples(st.just("night"), KEYS, SAID),
    st.tuples(st.just("night"), KEYS, SAID),
    st.tuples(st.just("change"), st.integers(1, 9), KEYS, SAID),
    st.tuples(st.just("add"), st.integers(1, 9), KEYS, SAID),
    st.tuples(st.just("vanish"), st.integers(1, 9)),
    st.tuples(st.just("late part"), st.integers(1, 9), KEYS, SAID),
    st.tuples(st.just("backfill"), st.integers(1, 9)),
    st.tuples(st.just("again")),
    st.tuples(st.just("lose merges"), st.integers(0, 3)),
    st.tuples(st.just("lose old states")),
)


def played(nights: Nights, events: Iterable[tuple[Any, ...]]) -> None:
    today = 40
    for event, *given_ in events:
        back = day(max(0, today - given_[0])) if event in {"change", "add", "vanish", "late part", "backfill"} else ""
        if event == "night":
            today += 1
            nights.change(day(today), *given_)
            nights.night()
        elif event in {"change", "add"} and back in nights.current:
            nights.change(back, *given_[1:], add=event == "add")
        elif event == "vanish":
            nights.current.pop(back, None)
        elif event == "late part" and back not in nights.current:
            nights.change(back, *given_[1:])
        elif event == "backfill":
            nights.night(upto=back)
        elif event == "again":
            nights.night()
        elif event == "lose merges":
            nights.kept = dict(list(nights.kept.items())[given_[0] :])
        elif event == "lose old states":
            nights.gone |= {ident for ident in nights.keys if nights.current.get(ident[0]) != ident[1]}
    nights.night()


@pytest.mark.parametrize("sequences", [12, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize("preferred", mostly_long(["", *sorted(WAYS)], "", "running merges"))
@pytest.mark.parametrize("algebra", [EXACT, FLOATS], ids=["invertible", "not invertible"])
def test_the_merges_of_a_night_give_exactly_the_parts_of_its_windows(
    algebra: Mapping[str, Algebra], preferred: str, sequences: int
) -> None:
    ways: Counter[str] = Counter()

    @settings(max_examples=sequences, phases=[Phase.generate])  # making a failing example small takes minutes
    @given(
        lengths=st.sampled_from([(7,), (1, 3, 8), (None,), (5, None)]),
        unsettled=st.integers(0, 2),
        events=st.lists(EVENTS, min_size=12, max_size=40),
    )
    def check(lengths: tuple[int | None, ...], unsettled: int, events: list[tuple[Any, ...]]) -> None:
        nights = Nights(algebra, lengths, unsettled=unsettled, preferred=preferred)
        played(nights, events)
        ways.update(nights.chosen)

    check()
    assert ways[preferred or "merge all"] > sequences // 6


def sliding(nights: Nights, count: int, keys: int = 10**6) -> list[WindowChoice]:
    choices = []
    for number in range(count):
        nights.change(day(number), frozenset({number % 3, 7}), keys)
        choice = nights.night()
        assert choice is not None
        choices.append(choice)
    return choices


def taken(choices: Iterable[WindowChoice], window: str) -> list[WindowCandidate]:
    return [one for choice in choices for one in choice.candidates if one.chosen and one.window == window]


@pytest.mark.parametrize("length", mostly_long([14, 28, 60], 14))
def test_running_merges_merge_at_most_three_times_a_night_however_long_the_window_is(length: int) -> None:
    """On average: once per window all of its suffixes are made. Merging all merges as often as there are parts."""
    nights = Nights(FLOATS, (length,))
    choices = sliding(nights, 5 * length)
    assert {one.action for one in taken(choices[length:], str(length))} == {"running merges"}
    merges = [sum(step.merges for step in choice.steps) for choice in choices]
    assert all(sum(merges[first : first + length]) <= 3 * length for first in range(length, 4 * length + 1))
    assert len(nights.kept) <= length, "suffixes of the older parts, and one merge of the newer ones"


def test_a_short_window_is_merged_whole_and_an_exact_long_one_is_subtracted() -> None:
    assert {one.action for one in taken(sliding(Nights(FLOATS, (5,)), 20), "5")} == {"merge all"}
    nights = Nights(EXACT, (28,))
    choices = sliding(nights, 60)
    assert {one.action for one in taken(choices[28:], "28")} == {"subtract"}
    assert {sum(step.merges for step in choice.steps) for choice in choices[28:]} == {2}, "one leaves and one comes"
    (last,) = choices[-1].steps
    assert last.subtract == (f"{day(31)}@1",)
    assert last.add[1:] == (f"{day(59)}@1",)
    assert len(nights.kept) == 1


def test_a_changed_old_part_is_taken_out_in_its_old_version_and_added_in_its_new_one() -> None:
    nights = Nights(EXACT, (28,))
    sliding(nights, 40)
    nights.change(day(20), frozenset({1, 5}), 10**6)
    choice = nights.night()
    assert choice is not None
    (step,) = choice.steps
    assert (step.subtract, step.add[1:]) == ((f"{day(20)}@1",), (f"{day(20)}@2",))


def test_of_a_part_that_was_added_to_only_the_addition_is_merged() -> None:
    """Its old states are in the merge already: they are neither read nor taken out."""
    nights = Nights(EXACT, (28,))
    sliding(nights, 40)
    nights.change(day(20), frozenset({1, 5}), 10**4, add=True)
    choice = nights.night()
    assert choice is not None
    (step,) = choice.steps
    assert (step.subtract, step.add[1:]) == ((), (f"{day(20)}@1..@2",))
    (one,) = taken([choice], "28")
    assert one.states < 1.1 * 10**6, "those of the merge, and what was added"


def test_rounded_sums_are_never_subtracted() -> None:
    """A result over all parts only grows, so that nothing has to be taken out, until an old part changes."""
    nights = Nights(FLOATS, (None,), preferred="subtract")
    assert sliding(nights, 10)[-1].steps[0].merges == 1
    nights.change(day(3), frozenset({1, 5}), 10**6)
    choice = nights.night()
    assert choice is not None
    assert [step.subtract for step in choice.steps] == [()]


def test_only_touched_keys_are_merged_anew_where_few_keys_changed() -> None:
    """Sketches cannot be subtracted. A day of few keys, beside days of many, touches few."""
    nights = Nights(FLOATS, (28,))
    for number in range(40):
        nights.change(day(number), frozenset({number % 6}), 1000 if number % 28 > 1 else 10**7)
        choice = nights.night()
    assert choice is not None
    (one,) = taken([choice], "28")
    assert one.action == "touched keys"
    assert choice.steps[0].touched_by == (f"{day(11)}@1", f"{day(39)}@1")


def test_windows_share_their_merges() -> None:
    nights = Nights(FLOATS, (1, 3, 7), preferred="merge all")
    (short, long) = sliding(nights, 12)[-1].steps
    assert short.merges == 2
    assert long.add == (*(f"{day(number)}@1" for number in range(5, 9)), short.makes)
    assert sliding(Nights(FLOATS, (1,)), 3)[-1].results == {"1": f"{day(2)}@1"}


def test_what_was_refused_says_why_with_its_price() -> None:
    choice = sliding(Nights(FLOATS, (28,)), 40)[-1]
    said = {one.action: one.sentence for one in choice.candidates}
    assert said["subtract"] == "not every aggregate is invertible: mean"
    assert said["merge all"] == (
        "28 parts at once: 28,000,000 states, 19.6 s tonight and 19.6 s a night hereafter; running merges is cheaper"
    )
    assert choice.sentence.startswith("window 28: running merges, ")
    assert all(one.possible or not one.seconds for one in choice.candidates)


def test_parts_that_late_rows_reach_are_left_out_of_running_merges() -> None:
    """Yesterday's part changes every night: a running merge with it would be made for nothing."""

    def merges_of(unsettled: int) -> list[int]:
        nights, merges = Nights(FLOATS, (28,), unsettled=unsettled, preferred="running merges"), []
        for number in range(60):
            if number:
                nights.change(day(number - 1), frozenset({1}), 10**6)
            nights.change(day(number), frozenset({2}), 10**6)
            choice = nights.night()
            assert choice is not None
            merges.append(sum(step.merges for step in choice.steps))
        return merges[40:]

    assert sum(merges_of(2)) <= 6 * 20
    assert sum(merges_of(0)) > 10 * 20


def test_a_night_that_is_planned_again_has_nothing_to_merge() -> None:
    nights = Nights(EXACT, (28,))
    sliding(nights, 60)
    again = nights.night()
    assert again is not None
    assert again.steps == ()


def test_a_merge_that_is_kept_is_not_made_of_another_one() -> None:
    """A merge of parts without a state costs as little to start from."""
    parts = tuple(PartStates(day(number), 1, 0 if number == 3 else 10, 100) for number in (3, 4, 5))
    kept = [RunningMerge(Window(3, parts[first:]).piece, 10 * (1 + first), 100) for first in (0, 1)]
    for preferred in sorted(WAYS):
        choice = plan_windows(Night([Window(2, parts[1:])], EXACT, kept, left=parts[:1], preferred=preferred))
        assert choice.steps == ()


def test_what_is_merged_in_the_order_of_parts_is_added_only_behind_them() -> None:
    """A part came late, between two that were merged: then sums go on from their merge, and sessions do not."""
    parts = tuple(PartStates(day(number), 1, 10, 100) for number in (1, 2, 3))
    kept = [RunningMerge((parts[0].ident, parts[2].ident), 10, 100)]
    sessions = {"visits": Algebra(mergeable=False, ordered=True), **FLOATS}
    added = [
        plan_windows(Night([Window(None, parts)], algebra, kept, preferred="subtract")).steps[0].add[1:]
        for algebra in (FLOATS, sessions)
    ]
    assert added == [(f"{day(2)}@1",), (f"{day(2)}@1", f"{day(3)}@1")]
    before = [RunningMerge(Window(None, parts[:2]).piece, 10, 100)]
    (step,) = plan_windows(Night([Window(None, parts)], sessions, before, preferred="subtract")).steps
    assert step.add[1:] == (f"{day(3)}@1",)


def test_windows_that_do_not_end_together_are_refused() -> None:
    one, other = (PartStates(day(number), 1, 1, 1) for number in (1, 2))
    with pytest.raises(PlanError, match="each the end of the longest one"):
        plan_windows(Night([Window(2, (one, other)), Window(1, (one,))], EXACT))
    with pytest.raises(PlanError, match="windows with parts"):
        plan_windows(Night([Window(2, ())], EXACT))


@pytest.mark.long
def test_a_plan_over_a_month_of_hours_takes_under_a_second() -> None:
    """All suffixes of 672 parts; seconds of this process, not of the clock."""
    parts = tuple(PartStates(f"{day(number // 24)}/{number % 24:02}", 1, 10**6, 10**7) for number in range(673))
    begun = plan_windows(Night([Window(672, parts[:672])], FLOATS, preferred="running merges"))
    kept = [RunningMerge(begun.parts_of(step), 10**6, 10**7) for step in begun.steps if step.keep]
    before = time.process_time()
    choice = plan_windows(Night([Window(672, parts[1:])], FLOATS, kept, left=parts[:1]))
    assert [one.action for one in choice.candidates if one.chosen] == ["running merges"]
    assert time.process_time() - before < 1.0
