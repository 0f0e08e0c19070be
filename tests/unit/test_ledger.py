import pytest

from skewless.documents.job import Job
from skewless.documents.ledger import (
    LedgerLine,
    PartLine,
    PartLines,
    WindowLine,
    balance,
    require_all_processed,
    require_kept,
    stage_problems,
)
from skewless.documents.stage_report import StageReport
from skewless.documents.window import JobWindow, WindowPart, WindowSpan
from skewless.errors import LedgerError
from skewless.planner.first_plan import first_plan
from skewless.spec.calls import Map
from skewless.spec.spec import JobSpec
from tests.unit import synthetic

JOB = synthetic.job([100, 400], waves=(1, 4))


def stage(number: int, admitted: int, backlog_in: int, processed: int, backlog: int, job: Job = JOB) -> StageReport:
    return synthetic.report(first_plan(job), {}).model_copy(
        update={
            "stage": number,
            "waves": (min(number, len(job.waves)), min(number + 1, len(job.waves))),
            "admitted_rows": admitted,
            "backlog_in_rows": backlog_in,
            "processed_rows": processed,
            "backlog_rows": backlog,
        }
    )


GOOD = [stage(0, 100, 0, 70, 30), stage(1, 400, 30, 420, 10), stage(2, 0, 10, 10, 0)]


def test_a_run_that_counts_each_row_once_balances() -> None:
    ledger = balance(JOB, GOOD, 500)
    assert ledger.balanced
    assert [line.listed_rows for line in ledger.lines] == [100, 400, 0]


@pytest.mark.parametrize(
    ("reports", "state_rows", "problem"),
    [
        (GOOD[:2], 490, "10 backlog rows were never reduced"),
        ([GOOD[0], GOOD[1].model_copy(update={"waves": (0, 2)}), GOOD[2]], 500,
         "stage 1 admitted waves from 0 on, after 1 waves"),
        (GOOD[:1], 70, "1 of 2 waves were admitted"),
        ([], 0, "0 rows were processed of the 500 of the input"),
        (GOOD[:1], 70, "70 rows were processed of the 500 of the input"),
    ],
    ids=[
        "a backlog left at the end", "a wave admitted twice", "a wave never admitted", "no stage",
        "a stage that never ran",
    ],
)  # fmt: skip
def test_an_imbalance_is_named(reports: list[StageReport], state_rows: int, problem: str) -> None:
    ledger = balance(JOB, reports, state_rows)
    assert problem in ledger.problems
    assert not ledger.balanced


@pytest.mark.parametrize("by", [1, -1], ids=["one too many", "one too few"])
@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (("admitted_rows", "processed_rows"), "stage 1 admitted {} rows of the 400 listed"),
        (("backlog_in_rows", "processed_rows"), "stage 1 took in {} backlog rows of the 30 left over"),
        (("processed_rows",), "stage 1 got 430 rows but processed and left over {}"),
    ],
    ids=["admitted", "taken in", "processed"],
)
def test_each_comparison_within_a_stage_sees_a_row_too_many_and_one_too_few(
    changed: tuple[str, ...], problem: str, by: int
) -> None:
    good = LedgerLine.of(JOB, GOOD[1])
    assert stage_problems([good], left_over=30) == ()
    line = good.model_copy(update={name: getattr(good, name) + by for name in changed})
    expected = {"admitted_rows": 400, "backlog_in_rows": 30, "processed_rows": 430}[changed[0]] + by
    assert stage_problems([line], left_over=30) == (problem.format(expected),)


@pytest.mark.parametrize("by", [1, -1], ids=["one too many", "one too few"])
def test_rows_processed_are_held_to_the_input_and_states_to_the_rows_processed(by: int) -> None:
    assert balance(JOB, GOOD, 500 + by).problems == (f"the states account for {500 + by} rows of the 500 processed",)
    changed = [stage(0, 100 + by, 0, 70 + by, 30), *GOOD[1:]]
    assert balance(JOB, changed, 500 + by).problems == (
        f"stage 0 admitted {100 + by} rows of the 100 listed",
        f"{500 + by} rows were processed of the 500 of the input",
    )
    with pytest.raises(LedgerError, match=f"{500 + by} of 500 rows are processed"):
        require_all_processed(JOB, changed, "merge")


@pytest.mark.parametrize("by", [1, -1], ids=["one too many", "one too few"])
def test_a_stage_commits_only_as_many_backlog_rows_as_are_on_disk(by: int) -> None:
    require_kept(JOB, GOOD[1], 30, 10)
    with pytest.raises(
        LedgerError, match=f"{10 + by} backlog rows are on disk of the 10 counted; nothing was committed"
    ):
        require_kept(JOB, GOOD[1], 30, 10 + by)


def test_each_window_has_the_rows_of_its_parts_or_is_named() -> None:
    units, days = len(JOB.units), ("2026-11-19", "2026-11-20")
    parts = [
        WindowPart(name=days[0], place=0, base=1, base_rows=70, before_rows=70),
        WindowPart(name=days[1], place=1, units=(0, units), ranks=tuple(range(units))),
    ]
    windows = (WindowSpan(length=1, first=1), WindowSpan(length=2))
    window = JobWindow(store="/states", fingerprint="f", shapes={}, parts=tuple(parts), windows=windows)
    given = JOB.spec.model_dump() | {"window": [1, 2], "input": {"path": "/in/{date}"}}
    job = Job.model_validate({**dict(JOB), "spec": JobSpec.model_validate(given), "window": window})
    of_parts = (
        PartLine(part=days[0], unchanged_rows=70, new_rows=0, taken_out_rows=0),
        PartLine(part=days[1], unchanged_rows=0, new_rows=500, taken_out_rows=0),
    )
    found = (("1", 500), ("2", 570))
    lines = tuple(WindowLine(name=name, keys=3, rows=rows, of_parts_rows=rows) for name, rows in found)

    def problems(rows: int, parts: tuple[PartLine, ...], windows: tuple[WindowLine, ...]) -> list[str]:
        return [*balance(job, GOOD, rows, PartLines(parts=parts, windows=windows)).problems]

    assert problems(570, of_parts, lines) == []
    assert problems(570, of_parts, lines[1:]) == ["there are lines of the windows 2 instead of 1, 2"]
    for of_days, problem in (
        ({"new_rows": 500, "listed_rows": 501}, "part 2026-11-20 has 500 new rows of the 501 listed"),
        ({"new_rows": 500, "listed_rows": 499}, "part 2026-11-20 has 500 new rows of the 499 listed"),
        ({"new_rows": 499}, "the parts have 499 new rows of 500"),
        ({"new_rows": 500, "unchanged_rows": 1}, "the parts have 71 unchanged rows of 70"),
    ):
        assert problems(570, (of_parts[0], of_parts[1].model_copy(update=of_days)), lines) == [problem]
    of_states = "the states account for 500 rows of the 500 processed and 70 unchanged"
    assert problems(500, of_parts, lines) == [of_states]
    for rows in (499, 501):
        wrong = (lines[0].model_copy(update={"rows": rows}), lines[1])
        assert problems(570, of_parts, wrong) == [f"window 1 has {rows} rows of the 500 in the states of its parts"]
    others = lines[1].model_copy(update={"of_parts_hash": 7})
    of_window = "window 2 has other rows than the states of its parts, by their hashes"
    assert problems(570, of_parts, (lines[0], others)) == [of_window]


def test_rows_that_are_as_many_but_others_do_not_balance() -> None:
    stages = [report.model_copy(update={"rows_hash": 2**31 + at}) for at, report in enumerate(GOOD)]
    whole = sum(2**31 + at for at in range(len(GOOD))) % 2**32
    part = PartLine(part="2026-11-20", unchanged_rows=0, new_rows=500, taken_out_rows=0, new_hash=whole)
    assert not balance(JOB, stages, 500, state_hash=whole).problems
    wrong = balance(JOB, stages, 500, PartLines(parts=(part.model_copy(update={"new_hash": 1}),)), whole + 1).problems
    assert [one.partition(" are not of")[0] for one in wrong if "hashes" in one] == [
        "the states", "the new states of the parts",
    ]  # fmt: skip


def test_a_wave_that_is_left_out_is_named() -> None:
    job = synthetic.job([100, 0, 400], waves=(1, 1, 4)).model_copy(update={"waves": ((0,), (1,), (2,))})
    skipped = [stage(0, 100, 0, 100, 0, job), stage(2, 400, 0, 400, 0, job)]
    assert balance(job, skipped, 500).problems == ("stage 2 admitted waves from 2 on, after 1 waves",)


def test_rows_are_not_all_processed_while_a_wave_is_left() -> None:
    require_all_processed(JOB, GOOD, "merge")
    for reports in ([], GOOD[:2], [stage(0, 500, 0, 500, 0)]):
        with pytest.raises(LedgerError, match="run the next stage first"):
            require_all_processed(JOB, reports, "merge")


MAPPED = JOB.model_copy(update={"spec": JOB.spec.model_copy(update={"map": Map(select=("value AS key",))})})


def mapped(number: int, admitted: int, source: int | None, given: int | None, job: Job = MAPPED) -> StageReport:
    report = stage(number, admitted, 0, admitted, 0, job)
    return report.model_copy(update={"source_rows": source, "given_rows": given})


def test_rows_are_foretold_as_they_came_for_each_one_listed() -> None:
    assert JOB.counted
    assert JOB.predicted_rows((1, 2), seen_rows=90, seen_waves=1) == 400
    assert not MAPPED.counted
    assert MAPPED.predicted_rows((1, 2), seen_rows=250, seen_waves=1) == 1000
    assert MAPPED.predicted_rows((0, 1), seen_rows=0, seen_waves=0) == 100


def test_the_first_stage_of_a_mapped_run_has_no_budget() -> None:
    assert first_plan(JOB).budget_rows is not None
    assert first_plan(MAPPED).budget_rows is None


def test_a_mapped_run_balances_by_what_reader_and_map_gave_out() -> None:
    ledger = balance(MAPPED, [mapped(0, 250, 100, 250), mapped(1, 1000, 400, 1000)], 1250)
    assert ledger.balanced
    assert ledger.input_rows == 1250


@pytest.mark.parametrize(
    ("reports", "problem"),
    [
        ([mapped(0, 249, 100, 250), mapped(1, 1000, 400, 1000)], "stage 0 admitted 249 rows of the 250 listed"),
        ([mapped(0, 250, None, None), mapped(1, 1000, 400, 1000)], "stage 0 admitted 250 rows of the 0 listed"),
        ([mapped(0, 250, 100, 250)], "1 of 2 waves were admitted"),
        ([mapped(0, 250, None, 250).model_copy(update={"waves": (0, 3)})], "3 of 2 waves were admitted"),
    ],
    ids=["a mapped row lost", "nothing counted", "a wave left out", "one too many"],
)
def test_a_mapped_run_that_loses_rows_does_not_balance(reports: list[StageReport], problem: str) -> None:
    assert problem in balance(MAPPED, reports, sum(report.processed_rows for report in reports)).problems


def test_an_estimate_need_not_be_met_and_what_is_counted_is() -> None:
    first, *units = synthetic.job([60, 40, 400]).units
    units = [first.model_copy(update={"counted": False}), *units]
    job = JOB.model_copy(update={"units": tuple(units), "waves": ((0, 1), (2,))})
    estimated = mapped(0, 130, 130, 130, job)
    assert balance(job, [estimated, mapped(1, 400, 400, 400, job)], 530).balanced
    assert "admitted 399 rows of the 400" in balance(job, [estimated, mapped(1, 399, None, 399, job)], 529).problems[0]


def test_the_extent_of_an_input_says_what_is_estimated_and_what_is_cut() -> None:
    assert JOB.extent == "500 rows in 2 files"
    unit = JOB.units[0].model_copy(update={"counted": False})
    cut = JOB.model_copy(update={"units": (unit, unit.model_copy(update={"rows": 400, "counted": True}))})
    assert cut.extent == "about 500 rows in 1 file, cut into 2 units"
