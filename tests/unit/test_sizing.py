"""The size of the next night: what is advised, and what a spec lets the nights before set."""

from __future__ import annotations

from typing import Any

import pytest

from skewless.errors import SpecError
from skewless.run.sizing import Measured, advice_of, applied
from skewless.spec.clusters import SparkSizing
from skewless.spec.options import with_options
from skewless.spec.reading import parse_spec
from skewless.spec.result import Output
from skewless.spec.routing import Routing
from skewless.spec.spec import JobSpec
from tests.unit import synthetic
from tests.unit.test_bill import night

OPEN = ("spark.cores", "spark.executor_memory", "routing.reducers", "output.files")


def spec(**sections: Any) -> JobSpec:
    raw = {"name": "n", "input": {"path": "in"}, "key": "key", "aggregates": {"n": "count"}, "output": {"path": "out"}}
    return JobSpec.model_validate({**raw, "sizing": "auto", **sections})


def told(reducers: int = 8, spec: JobSpec | None = None, **fields: Any) -> Measured:
    """A night of 4 cores, whose 8 tasks were not short."""
    return Measured(spec or synthetic.spec(reducers=reducers), night(**fields))


def ran(workload: tuple[float, float], last: JobSpec, base: int | None, cores: int) -> Measured:
    """A night that takes ``fixed`` seconds and, divided by its cores, those of its tasks."""
    fixed, work = workload
    held = fixed * cores + work
    return told(spec=last, cores=cores, held_seconds=held, used_seconds=work, skew_seconds=0.0)._replace(
        base_cores=base
    )


def test_the_fewest_cores_are_those_with_which_a_night_takes_a_tenth_longer() -> None:
    last = told(64, cores=64, held_seconds=6_400.0, used_seconds=640.0, skew_seconds=640.0)
    cores, reducers, memory, _ = advice_of([last])
    took = 100.0
    assert cores.then == 32
    assert took - 640 / 64 + 640 / 32 <= 1.1 * took < took - 640 / 64 + 640 / 31
    assert "10%" in cores.reason
    followed = told(64, cores=32, held_seconds=3_520.0, used_seconds=640.0, skew_seconds=640.0)
    assert advice_of([last, last, followed]) == advice_of([followed]), "other cores are of another size"
    assert not reducers.changes
    assert not memory.changes


def test_busy_cores_may_be_twice_as_many_and_tasks_that_spilled_half_as_large() -> None:
    busy: dict[str, Any] = {"used_seconds": 95.0, "skew_seconds": 0.0, "spilled_bytes": 5_000}
    cores, reducers, memory, _ = advice_of([told(2, **busy)])
    assert (cores.now, cores.then) == (4, 8)
    assert (reducers.now, reducers.then) == (2, 4)
    assert (memory.then, "5,000 bytes" in memory.reason) == ("more", True)
    assert advice_of([]) == ()
    assert advice_of([told(used_seconds=0.0, skew_seconds=0.0)])[0].then == 1
    calm = told(4)
    assert advice_of([told(2, **busy), calm])[1].then == 4, "what spilled with fewer reducers is mended"


@pytest.mark.parametrize("workload", [(100.0, 640.0), (10.0, 900.0), (50.0, 25_000.0), (30.0, 30.0)])
def test_cores_that_follow_the_advice_stay_where_they_are_and_no_night_is_two_tenths_longer(
    workload: tuple[float, float],
) -> None:
    """Without the cores of the first night each would be a tenth longer than the one before."""
    now, base, seen = spec(), None, [64]
    for _ in range(12):
        now, lines = applied(spec(), [ran(workload, now, base, seen[-1])])
        base = next((one.cores for one in lines if one.field == "spark.cores"), None)
        seen.append(now.spark.cores or seen[-1])
    fixed, work = workload
    assert len(set(seen[4:])) == 1
    assert fixed + work / seen[-1] <= 1.1 * (fixed + work / max(seen)) + 1e-9


def test_cores_that_the_cluster_does_not_give_are_not_asked_for_again() -> None:
    asked = spec(spark={"cores": 2})
    now, lines = applied(spec(), [ran((100.0, 64.0), asked, 4, 4)])
    assert now.spark.cores is None
    assert "spark.cores" not in [one.field for one in lines]


def test_short_tasks_are_fewer_but_each_core_has_one_and_none_that_spilled_comes_back() -> None:
    short: dict[str, Any] = {"used_seconds": 4.0, "skew_seconds": 0.0, "tasks": 64}  # 0.0625 s each
    assert advice_of([told(64, **short)])[1].then == 32
    assert advice_of([told(64, **{**short, "tasks": 6_400})])[1].then == 2, "2 cores are enough"
    assert advice_of([told(64, **{**short, "used_seconds": 12.8})])[1].then == 64, "0.2 s are enough"
    spilled = told(32, spilled_bytes=1)
    assert advice_of([spilled, told(64, **short)])[1].then == 64


def test_reducers_stay_in_their_range_and_say_nothing_of_splits_that_slots_cut() -> None:
    short: dict[str, Any] = {"used_seconds": 4.0, "skew_seconds": 0.0, "tasks": 6_400}
    ranged = spec(routing={"policy": {"name": "adaptive", "reducer_range": [6, 80]}})
    assert applied(ranged, [told(64, **short)])[0].routing.reducers == 6
    assert applied(ranged, [told(64, spilled_bytes=1)])[0].routing.reducers == 80
    assert applied(spec(), [told(10_000, spilled_bytes=1)])[0].routing.reducers == 10_000
    split = told(spec=spec(routing={"slots": 4, "reducers": 64}), **short, reduce_used_seconds=3.0)
    assert advice_of([split])[1].then == 64
    assert advice_of([split._replace(tasks=64)])[1].then == 16
    assert advice_of([split._replace(tasks=10)])[1].then == 64, "the others read short files, whatever the reducers"


def test_files_of_the_result_are_neither_small_nor_large() -> None:
    def files(size: int) -> int | str | None:
        return advice_of([told()._replace(result_bytes=size)])[3].then

    assert [files(size << 20) for size in (0, 1, 40, 300, 512, 1_300)] == [4, 1, 2, 4, 4, 11]


def test_the_state_of_the_heaviest_key_is_held_beside_the_memory_of_an_executor() -> None:
    last = told(memory_bytes=600 << 20)._replace(state_bytes=1 << 30, heaviest=(0.5, 0.001))
    memory = advice_of([last])[2]
    assert not memory.changes
    assert "50% of the rows" in memory.reason
    assert "1,073,742 bytes in files, or 536,870,912 if states grow with rows" in memory.reason
    assert "629,145,600 for all of its tasks" in memory.reason
    assert advice_of([last._replace(heaviest=(0.7, 0.001))])[2].then == "more"


def test_what_is_set_wins_and_what_is_open_follows_and_both_say_why() -> None:
    nights = [told(2, used_seconds=95.0, skew_seconds=0.0, spilled_bytes=5_000)]
    now, lines = applied(spec(routing={"reducers": 8}), nights)
    assert (now.routing.reducers, now.spark.cores) == (8, 8)
    words = {one.field: one.words for one in lines}
    assert words["routing.reducers"].startswith("routing.reducers: 8, as the spec sets it, where 4 was advised: ")
    assert words["spark.cores"].startswith("spark.cores: 8 in place of as it is, as 4 cores ran tasks for 95%")
    assert applied(spec(), nights)[0].routing.reducers == 4
    assert applied(spec(), []) == (spec(), ()), "without history as written"
    assert applied(spec(), [told(4)])[0].routing.reducers == 4, "what was applied stays"


def test_memory_is_only_set_where_no_reducers_can_be_added() -> None:
    nights = [told(8, spilled_bytes=1, memory_bytes=600 << 20)]
    assert applied(spec(), nights)[0].spark.executor_memory is None
    assert applied(spec(routing={"reducers": 8}), nights)[0].spark.executor_memory == "2600m", "of a heap of 1,300 MiB"
    mended = told(spec=spec(routing={"reducers": 8}, spark={"executor_memory": "2600m"}))
    assert applied(spec(routing={"reducers": 8}), [*nights, mended])[0].spark.executor_memory == "2600m"


def test_what_nights_have_doubled_is_doubled_again_only_if_that_has_helped() -> None:
    def last(reducers: int, spilled: int, memory: int = 600 << 20) -> Measured:
        set_by_nights = frozenset({"routing.reducers", "spark.executor_memory"})
        return told(reducers, spilled_bytes=spilled, memory_bytes=memory)._replace(was_set=set_by_nights)

    first = told(8, spilled_bytes=1000, memory_bytes=600 << 20)
    assert advice_of([first, last(16, 500)])[1].then == 32
    kept = advice_of([first, last(16, 1000)])
    assert (kept[1].then, kept[2].then) == (16, kept[2].now)
    assert "1,000 bytes were spilled to disks, no fewer than before" in kept[1].reason
    assert advice_of([first, last(8, 500, 1200 << 20)])[2].changes
    assert not advice_of([first, last(8, 1000, 1200 << 20)])[2].changes


def test_cores_that_were_spared_come_back_when_they_are_needed() -> None:
    grown = ran((1.0, 2_000.0), spec(spark={"cores": 17}), 20, 17)
    assert advice_of([grown])[0].then == 20
    assert advice_of([ran((100.0, 2_000.0), spec(spark={"cores": 17}), 20, 17)])[0].then != 20


def test_auto_is_all_that_is_not_set_also_of_a_spec_that_is_made_in_python() -> None:
    made = {"routing": Routing(reducers=64), "spark": SparkSizing(cores=8), "output": Output(path="out", files=2)}
    assert spec(**made).sizing == ("spark.executor_memory",)


def test_auto_is_all_that_is_not_set_also_after_the_spec_was_written_into_a_document() -> None:
    assert spec().sizing == OPEN
    some = spec(routing={"reducers": 8}, spark={"cores": None})
    assert some.sizing == ("spark.executor_memory", "output.files")
    assert JobSpec.model_validate(some.model_dump(mode="json")) == some
    assert with_options(some, {"executor_memory": "4g"}, "form").sizing == ("output.files",)
    assert spec(sizing=["routing.reducers"], routing={"reducers": 8}).sizing == ("routing.reducers",)
    with pytest.raises(SpecError, match="field sizing"):
        parse_spec("name: n\ninput: {path: in}\nkey: k\naggregates: {n: count}\noutput: {path: o}\nsizing: always\n")


def test_a_job_gives_its_spec_back_as_it_was_written() -> None:
    now, lines = applied(spec(), [told(2, used_seconds=95.0, skew_seconds=0.0, spilled_bytes=5_000)])
    job = synthetic.job([1_000]).model_copy(update={"spec": now, "sizing": lines})
    assert job.spec != spec()
    assert job.written == spec()
