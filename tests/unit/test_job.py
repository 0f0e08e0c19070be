"""What a frozen job foretells, and a ledger of rows that no footer counts."""

from __future__ import annotations

import pytest

from skewless.documents.job import Job
from skewless.documents.ledger import balance
from skewless.documents.stage_report import StageReport
from skewless.planner.first_plan import first_plan
from skewless.spec.calls import Map
from tests.unit import synthetic

COUNTED = synthetic.job([100, 400], waves=(1, 4))
MAPPED = COUNTED.model_copy(update={"spec": COUNTED.spec.model_copy(update={"map": Map(select=("value AS key",))})})


def stage(number: int, admitted: int, source: int | None, given: int | None, job: Job = MAPPED) -> StageReport:
    return synthetic.report(first_plan(job), {}).model_copy(
        update={
            "stage": number, "waves": (number, number + 1), "admitted_rows": admitted, "processed_rows": admitted,
            "source_rows": source, "given_rows": given,
        }
    )  # fmt: skip


def test_rows_are_foretold_as_they_came_for_each_one_listed() -> None:
    assert COUNTED.counted
    assert COUNTED.predicted_rows((1, 2), seen_rows=90, seen_waves=1) == 400
    assert not MAPPED.counted
    assert MAPPED.predicted_rows((1, 2), seen_rows=250, seen_waves=1) == 1000
    assert MAPPED.predicted_rows((0, 1), seen_rows=0, seen_waves=0) == 100


def test_the_first_stage_of_a_mapped_run_has_no_budget() -> None:
    assert first_plan(COUNTED).budget_rows is not None
    assert first_plan(MAPPED).budget_rows is None


def test_a_mapped_run_balances_by_what_reader_and_map_gave_out() -> None:
    ledger = balance(MAPPED, [stage(0, 250, 100, 250), stage(1, 1000, 400, 1000)], 1250)
    assert ledger.balanced
    assert ledger.input_rows == 1250


@pytest.mark.parametrize(
    ("reports", "problem"),
    [
        ([stage(0, 249, 100, 250), stage(1, 1000, 400, 1000)], "stage 0 admitted 249 rows of the 250 listed"),
        ([stage(0, 250, 99, 250), stage(1, 1000, 400, 1000)], "stage 0 read 1 rows more or less than the footers list"),
        ([stage(0, 250, None, None), stage(1, 1000, 400, 1000)], "stage 0 admitted 250 rows of the 0 listed"),
        ([stage(0, 250, 100, 250)], "1 of 2 waves were admitted"),
    ],
    ids=["a mapped row lost", "a source row not read", "nothing counted", "a wave left out"],
)
def test_a_mapped_run_that_loses_rows_does_not_balance(reports: list[StageReport], problem: str) -> None:
    assert problem in balance(MAPPED, reports, sum(report.processed_rows for report in reports)).problems


def test_an_estimate_need_not_be_met() -> None:
    units = tuple(unit.model_copy(update={"counted": False}) for unit in COUNTED.units)
    job = COUNTED.model_copy(update={"units": units})
    assert balance(job, [stage(0, 130, 130, 130, job), stage(1, 350, 350, 350, job)], 480).balanced


def test_the_extent_of_an_input_says_what_is_estimated_and_what_is_cut() -> None:
    assert COUNTED.extent == "500 rows in 2 files"
    unit = COUNTED.units[0].model_copy(update={"counted": False})
    cut = COUNTED.model_copy(update={"units": (unit, unit.model_copy(update={"rows": 400}))})
    assert cut.extent == "about 500 rows in 1 files, cut into 2 units"
