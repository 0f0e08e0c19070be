"""What was changed so well that every checksum is right does not add up, and nothing of it is published."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skewless.documents.commit import CommittedFile
from skewless.run.directory import RESULT_STEP, RunDirectory, stage_step
from skewless.run.publication.records import PUBLISHED
from tests.faults.damaged import tampered
from tests.faults.harness import Harness
from tests.faults.tampering import CASES, Case


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """Steps, documents and checks of the product; plain Python in the place of Spark."""
    one = Harness(tmp_path_factory.mktemp("ledger"), spark=False)
    yield one
    one.close()


@pytest.mark.parametrize("case", CASES, ids=[case.words for case in CASES])
def test_the_ledger_tells_of_it_in_one_sentence_and_nothing_is_published(harness: Harness, case: Case) -> None:
    assert tampered(case, True, harness, 0) == "stopped"
    assert "\n" not in harness.last_sentence
    assert not harness.world.run.exists(PUBLISHED)
    harness.world.check_published(new=False)


@pytest.mark.parametrize("case", CASES, ids=[case.words for case in CASES])
def test_every_checksum_is_right_before_the_ledger_is_asked(harness: Harness, case: Case) -> None:
    """Or the sentence above might be that of a checksum."""
    harness.begin(harness.step(case.before))
    run = harness.world.run
    files, reports = _committed(run), run.reports()
    case.tamper(run, True)
    after = _committed(run)
    for file in after:
        run.verify(file)
    assert (after, run.reports()) != (files, reports), "nothing was changed"
    assert not run.exists(f"{RESULT_STEP}/COMMIT.json")


@pytest.mark.parametrize("case", CASES, ids=[case.words for case in CASES])
def test_the_same_done_clumsily_is_told_by_a_length_or_a_checksum(harness: Harness, case: Case) -> None:
    assert tampered(case, False, harness, 0) == "stopped"


def test_a_run_that_nobody_touched_ends_well(harness: Harness) -> None:
    harness.begin(harness.step("stage-1"))
    assert harness.go_on(harness.step("stage-1"), to_the_end=True) == "right"


def _committed(run: RunDirectory) -> list[CommittedFile]:
    return [file for stage in range(run.committed_stages()) for file in run.committed(stage_step(stage)).files]
