"""One scenario, two runtimes: the simulator and Spark send every row to the same task."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from benchmarks.simulation import NULL, Simulation
from skewless.run.directory import RunDirectory
from tests.spark.scenario import reduce_job, spec_of, without_times
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
    assert [without_times(report) for report in said.reports] == [without_times(report) for report in reports]
    assert said.plans == [run.plan(report.stage) for report in reports]
    assert [one.to_json() for one in said.decisions] == [run.decision(one.stage).to_json() for one in said.decisions]
    assert any(plan.ring != said.plans[0].ring or plan.head or plan.factors for plan in said.plans)
