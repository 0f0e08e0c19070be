"""One scenario, two runtimes: the simulator and Spark send every row to the same task."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from benchmarks.simulation import NULL, Simulation
from skewless.bounds import makespan
from skewless.run.directory import RunDirectory
from skewless_spark.entries.pipeline import run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.sources.cutting import split_bytes
from tests.spark.scenario import DATE, reduce_job, spec_of, without_times
from tests.tiers import mostly_long

ROWS = 30_000
FILES = 40


@pytest.fixture(scope="module")
def skewed_input(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Skewed keys of all lengths, some rows without a key, in files of different size."""
    rng = np.random.default_rng(11)
    weights = np.arange(1, 1501) ** -1.3
    drawn = rng.choice(1500, size=ROWS, p=weights / weights.sum())
    texts = ["k\u00e9y" * (number % 5) + str(number) for number in range(1500)]
    keys = [None if number == 7 else texts[number] for number in drawn.tolist()]
    folder = tmp_path_factory.mktemp("same_loads") / "input"
    folder.mkdir()
    cuts = np.sort(rng.choice(ROWS, size=FILES - 1, replace=False)).tolist()
    for file, (start, end) in enumerate(zip([0, *cuts], [*cuts, ROWS], strict=True)):
        pq.write_table(pa.table({"key": pa.array(keys[start:end], pa.string())}), folder / f"part-{file:03d}.parquet")
    return folder


def simulated(run: RunDirectory) -> Simulation:
    job = run.job()
    columns = [pq.read_table(unit.path).column("key").to_pylist() for unit in job.units]
    texts = sorted({key for column in columns for key in column if key is not None})
    number = {text: at for at, text in enumerate(texts)} | {None: NULL}
    rows = np.array([number[key] for column in columns for key in column], dtype=np.int64)
    return Simulation(job, texts, rows).play()


@pytest.mark.parametrize("policy", mostly_long(["halving", "d_choices", "adaptive"], "adaptive"))
def test_the_simulator_and_spark_give_every_task_the_same_rows(
    spark: SparkSession, skewed_input: Path, tmp_path: Path, policy: str
) -> None:
    routing = {"policy": policy, "reducers": 6, "slots": 8, "stage_overhead": 0, "first_plan": [], "waves": [1, 4, 15]}
    spec = spec_of(skewed_input, "key", {"occurrences": "count"}, routing=routing)
    run, reports = reduce_job(spark, spec, tmp_path / "run")
    said = simulated(run)
    counted = [without_times(report).model_copy(update={"rows_hash": None}) for report in reports]  # not simulated
    assert [without_times(report) for report in said.reports] == counted
    assert said.plans == [run.plan(report.stage) for report in reports]
    assert [one.to_json() for one in said.decisions] == [run.decision(one.stage).to_json() for one in said.decisions]
    assert any(plan.ring != said.plans[0].ring or plan.head or plan.factors for plan in said.plans)


# Input splits: filled as Spark fills them, and so that no slot waits for a few splits that are left over.


def as_spark_fills(sizes: list[int], limit: int) -> list[int]:
    """Next fit decreasing, file by file, as in Spark's ``FilePartition``."""
    found, current = list[int](), 0
    for size in sorted(sizes, reverse=True):
        if current and current + size > limit:
            found.append(current)
            current = 0
        current += size
    return [*found, current] if current else found


@pytest.mark.parametrize(
    ("files", "slots", "splits", "longest"),
    [(120, 8, 24, 15), (120, 2, 4, 60), (32, 2, 4, 16), (17, 8, 9, 3), (9, 4, 5, 3), (1000, 8, 16, 126)],
)
def test_alike_files_are_shared_out_evenly(files: int, slots: int, splits: int, longest: int) -> None:
    filled = as_spark_fills([1_000] * files, split_bytes([1_000] * files, 2 * slots, slots))
    assert len(filled) == splits
    assert makespan(np.array(filled), slots) == 1_000 * longest


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=200), st.integers(1, 9))
def test_it_ends_no_later_than_with_an_even_share(sizes: list[int], slots: int) -> None:
    splits = 2 * slots
    even = -(-sum(sizes) // splits)
    limit = split_bytes(sizes, splits, slots)
    if max(sizes) > even:
        assert limit == max(sizes), "files that are smaller than a piece should be are not cut"
        return
    filled = as_spark_fills(sizes, limit)
    assert makespan(np.array(filled), slots) <= makespan(np.array(as_spark_fills(sizes, even)), slots) / 0.99


@pytest.mark.long
def test_spark_makes_these_splits(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(30):
        table = pa.table({"key": [f"k{one % 7}" for one in range(1_000)]})
        pq.write_table(table, tmp_path / "in" / f"{number:02d}.parquet")
    routing = {"slots": 4}
    run = RunDirectory(str(tmp_path / "run"))
    prepare(
        run, spec_of(tmp_path / "in", "key", {"n": "count"}, engine="combine", routing=routing), DATE, str(tmp_path)
    )
    run_stages(spark, run)
    (report,) = run.reports()
    assert sorted(split.rows for split in report.splits) == [2_000, *[4_000] * 7]
    assert not [path for path in (tmp_path / "in").iterdir() if path.suffix != ".parquet"]
