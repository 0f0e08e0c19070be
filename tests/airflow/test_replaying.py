"""Replays for the what-if page: in processes of their own, joined by those who ask the same, and limited."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulation import Simulation
from skewless.replay.replay import Replayed, replay
from skewless_airflow.web.views.what_if import LIMIT_SECONDS, Replays, TooManyReplaysError
from tests.airflow.players import PATIENCE_SECONDS, await_that, end_all, players, the_player
from tests.airflow.web_scenario import Moments, large_run, synthetic_run

#: A policy that a page would not ask for: its process ends at once.
_NONE = "no such policy"


@pytest.fixture(scope="module")
def small() -> Simulation:
    return synthetic_run()


@pytest.fixture
def run(small: Simulation, tmp_path: Path) -> str:
    """The location of a small run that has all of its stages."""
    return Moments(str(tmp_path / "small"), small).prepare().stages().run.path("")


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The location of a run whose replay takes some seconds of a processor."""
    location = str(tmp_path_factory.mktemp("slow") / "huge")
    return Moments(location, large_run(tasks=10_000, keys=50_000)).prepare().stages().run.path("")


@pytest.fixture
def new_replays() -> Iterator[Callable[..., Replays]]:
    """Makes some; what they have not played at the end is not played."""
    made: list[Replays] = []

    def make(**limits: Any) -> Replays:
        made.append(Replays(**limits))
        return made[-1]

    yield make
    for one in made:
        end_all(one)


def test_a_process_answers_as_the_function_does_and_is_asked_once(
    run: str, small: Simulation, new_replays: Callable[..., Replays]
) -> None:
    replays = new_replays()
    first = replays.ask(run, "3", ["", "static", "adaptive"])
    ran, static, adaptive = (one.result(PATIENCE_SECONDS) for one in first)
    assert static == replay(small.job, small.reports, "static")
    assert adaptive == replay(small.job, small.reports, "adaptive", small.plans[0])
    assert isinstance(ran, Replayed)
    assert ran.policy == "as it ran"
    assert replays.ask(run, "3", ["static"]) == [first[1]], "it is known"
    assert replays.ask(run, "4", ["static"]) != [first[1]], "another stage has committed"


@pytest.mark.long
def test_who_asks_the_same_waits_for_the_same_process(slow: str, new_replays: Callable[..., Replays]) -> None:
    replays = new_replays()
    (first,) = replays.ask(slow, "", ["static"])
    player = the_player()
    (second,) = replays.ask(slow, "", ["static"])
    assert second is first
    replays.ask(slow, "", [_NONE])
    assert the_player() == player, "one plays at a time"
    assert not first.done()
    await_that(lambda: player.nice() == 10, "a low priority")


@pytest.mark.long
def test_a_replay_that_takes_too_long_is_ended_and_says_so(slow: str, new_replays: Callable[..., Replays]) -> None:
    (late,) = new_replays(limit_seconds=1.0).ask(slow, "", ["static"])
    assert late.result(PATIENCE_SECONDS) == (
        "what if: expected an answer within the limits of this page, but got more than 1 s; "
        "run skewless replay, which has none."
    )
    await_that(lambda: not players(), "the end of its process")
    assert LIMIT_SECONDS > 72, "what was measured for 10,000 tasks"


@pytest.mark.long
def test_a_process_that_was_killed_takes_one_question_with_it(slow: str, new_replays: Callable[..., Replays]) -> None:
    replays = new_replays()
    first, second = replays.ask(slow, "", ["static", _NONE])
    the_player().kill()
    assert "a process that ended with code -9" in str(first.result(PATIENCE_SECONDS))
    assert "a process that ended with code 1;" in str(second.result(PATIENCE_SECONDS))


@pytest.mark.long
def test_a_process_that_wants_too_much_memory_refuses_in_a_sentence(
    slow: str, new_replays: Callable[..., Replays]
) -> None:
    (answer,) = new_replays(memory_bytes=64 << 20).ask(slow, "", ["static"])
    assert isinstance(said := answer.result(PATIENCE_SECONDS), str)
    assert "run skewless replay" in said


@pytest.mark.long
def test_more_questions_than_may_wait_are_refused(slow: str, new_replays: Callable[..., Replays]) -> None:
    replays = new_replays(waiting=1)
    replays.ask(slow, "", ["static"])
    the_player()
    replays.ask(slow, "", [_NONE])
    with pytest.raises(TooManyReplaysError, match="at most 1 questions that wait"):
        replays.ask(slow, "", ["doubling"])
    replays.ask(slow, "", ["static", _NONE])
