"""A table in a bucket behind a wire that breaks: nothing is done twice, and a store that is away is one sentence."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest

from skewless.errors import UnreachableError
from skewless_lake.publication import publish_run, published_parts, require_fitting, roll_back, turn_in_table
from skewless_lake.staged import OutputPart
from tests.broken_wire import Fault, broken_wire
from tests.faults.lake import wires
from tests.faults.lake.harness import ROLLBACK, LakeHarness, Stage
from tests.faults.lake.scene import Scene, days
from tests.faults.lake.steps import Patience, looked

pytestmark = pytest.mark.long
NOW = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    harness = LakeHarness(tmp_path_factory.mktemp("tables"))
    yield harness.stage("delta", bucket=True)
    harness.close()


@pytest.mark.parametrize("words", ["answer is lost", "answer is cut in the middle", "later than its client waits"])
def test_a_day_goes_back_once_though_nobody_has_said_that_it_did(stage: Stage, words: str) -> None:
    """To go back once more would undo it, and say that all is well."""
    commit = "PUT /lake/marts/clicks/_delta_log/0004.json"
    [trial] = [
        one
        for one in wires.trials(stage, 0)
        if one.step.startswith(ROLLBACK.name) and one.fault.startswith(commit) and words in one.fault
    ]
    assert trial.act(None, trial.seed) == "right"


def sentences(scene: Scene) -> list[str]:
    said, target = list[str](), OutputPart.of(scene.directory("old").job())
    for act in (
        lambda: roll_back(target, NOW),
        lambda: turn_in_table(target),
        lambda: published_parts(target),
        lambda: require_fitting(target),
    ):
        try:
            act()
        except UnreachableError as err:
            said.append(str(err))
    return said


def late_turn(scene: Scene) -> None:
    publish_run(scene.run, NOW)


@pytest.mark.parametrize(
    ("fault", "words"),
    [("503", "the store answered 503, SlowDown"), ("lose request", "connection closed before message completed")],
)
def test_a_table_that_is_away_is_one_sentence_and_the_published_day_stays(
    stage: Stage, fault: Fault, words: str
) -> None:
    stage.begin("validated")
    assert stage.server is not None

    def only_the_table(number: int, request: str) -> Fault:
        del number
        return fault if "marts" in request else "none"

    with broken_wire(stage.server.port, only_the_table) as wire:
        said = stage.process(sentences, wire.port, Patience(retries=1)).answer()
        ended = stage.process(late_turn, wire.port, Patience(retries=1)).ended()
    assert len(said) == 4
    assert ended.code == 1
    for sentence in (*said, ended.sentence):
        assert sentence.startswith("delta+s3://lake/marts/clicks: its store or its catalog cannot be read or written (")
        assert words in sentence
        assert sentence.endswith("; mend that, and try again.")
    assert stage.process(looked).answer() == days(before="before", day="old")
    assert stage.process(late_turn).ended().code == 0
    assert stage.process(looked).answer() == days(before="before", day="new")


def latest(scene: Scene) -> None:
    turn_in_table(OutputPart.of(scene.run.job()))


def test_deltalake_asks_as_often_as_our_own_clients(stage: Stage) -> None:
    """As shipped it would ask for three minutes, request by request."""
    stage.begin("validated")
    assert stage.server is not None
    with broken_wire(stage.server.port, lambda _, request: "500" if "marts" in request else "none") as wire:
        assert stage.process(latest, wire.port, Patience(retries=2)).ended().code == 1
        asked = [request for request, what in wire.seen if what == "500"]
    assert max(asked.count(request) for request in asked) == 3
