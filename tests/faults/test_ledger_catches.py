"""What was changed so well that every checksum is right does not add up, and nothing of it is published."""

from __future__ import annotations

import pytest

from skewless.documents.commit import CommittedFile
from skewless.run.directory import RESULT_STEP, RunDirectory, stage_step
from skewless.run.publication.records import PUBLISHED
from tests.faults.damaged import tampered
from tests.faults.harness import Harness
from tests.faults.tampering import CASES, Case


@pytest.mark.parametrize("resealed", [True, False], ids=["and all checksums are right", "clumsily"])
@pytest.mark.parametrize("case", CASES, ids=[case.words for case in CASES])
def test_it_is_told_in_one_sentence_and_nothing_is_published(light: Harness, case: Case, resealed: bool) -> None:
    assert tampered(case, resealed, light, 0) == "stopped"
    assert "\n" not in light.last_sentence
    assert not light.world.run.exists(PUBLISHED)
    light.world.check_published(new=False)


@pytest.mark.parametrize("case", CASES, ids=[case.words for case in CASES])
def test_every_checksum_is_right_before_the_ledger_is_asked(light: Harness, case: Case) -> None:
    """Or the sentence above might be that of a checksum."""
    light.begin(light.step(case.before))
    run = light.world.run
    files, reports = _committed(run), run.reports()
    case.tamper(run, True)
    after = _committed(run)
    for file in after:
        run.verify(file)
    assert (after, run.reports()) != (files, reports), "nothing was changed"
    assert not run.exists(f"{RESULT_STEP}/COMMIT.json")


def _committed(run: RunDirectory) -> list[CommittedFile]:
    return [file for stage in range(run.committed_stages()) for file in run.committed(stage_step(stage)).files]
