"""What is recent counts more where waves come in order, as far as that would have predicted the last stage better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from benchmarks.simulation import simulated_job
from skewless.documents.job import Job
from skewless.documents.stage_report import Histogram, StageReport
from skewless.errors import PlanError
from skewless.planner.first_plan import first_plan
from skewless.planner.forecast.wave_counts import WEIGHTS, weighted
from tests.unit import synthetic

STEADY = {f"cold-{number}": 40 for number in range(100)}


def job(waves: int, *, in_order: bool = True) -> Job:
    return simulated_job([500] * (10 * waves), in_order=in_order, waves=(1.0,) * waves, reducers=4)


def reports(frozen: Job, stages: Sequence[Mapping[str, int]]) -> list[StageReport]:
    """Of stages that saw these rows, nothing left over."""
    found, seen = [], dict[str, int]()
    for number, stage in enumerate(stages):
        seen = {key: seen.get(key, 0) + stage.get(key, 0) for key in {**seen, **stage}}
        plan = first_plan(frozen).model_copy(update={"epoch": number, "waves": (number, number + 1)})
        found.append(synthetic.report(plan, seen).model_copy(update={"admitted_rows": sum(stage.values())}))
    return found


def share(histogram: Histogram | None, key: str) -> float:
    assert histogram is not None
    return histogram.head[key][0] / histogram.seen_rows


def test_samples_weigh_alike() -> None:
    frozen = job(4, in_order=False)
    assert weighted(frozen, reports(frozen, [STEADY] * 3)) is None


def test_nothing_is_weighed_before_a_forecast_can_be_checked() -> None:
    frozen = job(4)
    assert weighted(frozen, reports(frozen, [STEADY])) is None


def test_a_key_that_ended_is_forgotten() -> None:
    frozen = job(6)
    stages = [{**STEADY, "gone": 4000}] * 2 + [{**STEADY, "hot": 4000}] * 2
    found = weighted(frozen, reports(frozen, stages))
    assert share(found, "gone") < 0.01
    assert share(found, "hot") == pytest.approx(0.5, abs=0.02)


def test_keys_that_stay_are_believed() -> None:
    frozen = job(6)
    found = weighted(frozen, reports(frozen, [{**STEADY, "hot": 4000}] * 4))
    assert share(found, "hot") == pytest.approx(0.5, abs=0.01)


def test_of_keys_that_change_each_time_only_their_number_is_believed() -> None:
    """Each stage has hot keys of its own: the next one will too, and nobody knows which."""
    frozen = job(6)
    stages = [{**STEADY, f"hot-{number}": 4000} for number in range(4)]
    found = weighted(frozen, reports(frozen, stages))
    assert max(share(found, f"hot-{number}") for number in range(4)) < 0.1
    assert found is not None
    assert sum(found.seen_tail) > 0.5 * found.seen_rows


def test_a_key_that_is_named_late_did_not_begin_then() -> None:
    """It was steady all along and only now heavy enough to be named: to the forecast it must stay what it was."""
    frozen, steady = job(6), {f"key-{number}": 100 for number in range(40)}
    found = reports(frozen, [steady] * 3)
    late = found[-1].histogram
    for number, report in enumerate(found[:-1]):
        head = {key: rows for key, rows in report.histogram.head.items() if key != "key-7"}
        tail = list(report.histogram.seen_tail)
        tail[first_plan(frozen).ring.slot_of("key-7")] += report.histogram.head["key-7"][0]
        unnamed = report.histogram.model_copy(update={"head": head, "seen_tail": tuple(tail)})
        found[number] = report.model_copy(update={"histogram": unnamed})
    assert "key-7" in late.head
    assert weighted(frozen, found) == weighted(frozen, reports(frozen, [steady] * 3))


def test_reports_that_forget_rows_are_refused() -> None:
    frozen = job(4)
    first, second = reports(frozen, [STEADY, STEADY])
    fewer = second.histogram.model_copy(update={"head": {**second.histogram.head, "cold-3": (10, 0)}})
    with pytest.raises(PlanError, match="report of stage 1: expected at least as many rows seen"):
        weighted(frozen, [first, second.model_copy(update={"histogram": fewer})])


def test_what_is_left_over_is_counted_and_not_weighed() -> None:
    frozen = job(4)
    first, second = reports(frozen, [STEADY, STEADY])
    left = second.histogram.model_copy(
        update={"head": {key: (seen, 7) for key, (seen, _) in second.histogram.head.items()}}
    )
    found = weighted(frozen, [first, second.model_copy(update={"histogram": left})])
    assert found is not None
    assert {over for _, over in found.head.values()} == {7}


@pytest.mark.long
def test_as_many_rows_as_were_weighed_are_left_however_thin_they_are_on_the_ring() -> None:
    """On a ring of more slots than rows each slot has less than half a row, and still they add up."""
    frozen = simulated_job([500] * 60, in_order=True, waves=(1.0,) * 6, reducers=4, ring_bits=14)
    for steady in range(10, 100, 10):
        stages = [{**dict(list(STEADY.items())[:steady]), f"hot-{number}": 2000} for number in range(3)]
        found = weighted(frozen, reports(frozen, stages))
        assert found is not None
        of_one_stage = found.seen_rows / (40 * steady + 2000)
        assert min(abs(of_one_stage - sum(weight**age for age in range(3))) for weight in WEIGHTS) < 0.02
