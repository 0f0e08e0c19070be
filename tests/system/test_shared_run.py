"""A DAG whose stages three connections are to share, of which one leads nowhere: whole Airflow, real Spark."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from skewless.documents.shared_stage import STAGE_SHARES, StageShares
from skewless.run.directory import RunDirectory, stage_step
from skewless_airflow.run_store import safe_run_id
from tests.served_airflow import served_airflow
from tests.spark.clusters import install_paced

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

JOB, RUN = "shared_words", "by_hand"
WORDS = [f"word-{n % 37 if n % 3 else 0}" for n in range(6_000)]
SPEC = {
    "name": JOB,
    "input": {"path": "words"},
    "key": "word",
    "aggregates": {"n": "count", "total": {"function": "paced_sum", "column": "size"}},
    "engine": "staged",
    "sharing": {"connections": ["spark_second", "spark_nowhere"], "lease_seconds": 1},
    "routing": {"policy": "static", "reducers": 12, "waves": [1], "key_sample": False},
    "output": {"path": "published", "files": 1},
}


class Done(NamedTuple):
    """A finished run."""

    state: str
    tasks: dict[str, str]
    run: RunDirectory
    root: Path


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    root, folder = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("served")
    (root / "words").mkdir()
    for number in range(4):
        words = WORDS[number::4]
        sizes = pa.array([len(word) for word in words], pa.int64())
        pq.write_table(pa.table({"word": words, "size": sizes}), root / "words" / f"{number}.parquet")
    (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    dag = f"from skewless_airflow.dags.factory import build_dag\ndag = build_dag({str(folder / 'spec.yaml')!r})\n"
    here, nowhere = (json.dumps({"conn_type": "spark", "host": host}) for host in ("local[1]", "spork://nowhere"))
    settings = {
        "SKEWLESS_ROOT": str(root),
        "SKEWLESS_DRIVER_MEMORY": "700m",
        "AIRFLOW_CONN_SPARK_DEFAULT": here,
        "AIRFLOW_CONN_SPARK_SECOND": here,
        "AIRFLOW_CONN_SPARK_NOWHERE": nowhere,
        # Where Spark's Python workers find it, too; slow enough for everybody to have begun before it is over.
        "PYTHONPATH": _with_packages(install_paced(folder / "packages")),
        "PACE_ROW_SECONDS": "0.006",
    }
    with served_airflow(folder, {JOB: dag}, **settings) as airflow:
        airflow.trigger(JOB, RUN)
        state = airflow.await_end(JOB, RUN)
        run = RunDirectory(f"{root}/runs/{JOB}/{safe_run_id(RUN)}")
        yield Done(state, airflow.states(JOB, RUN), run, root)


def _with_packages(folder: Path) -> str:
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


def test_the_run_ends_well_without_the_cluster_that_is_not_there(done: Done) -> None:
    assert done.state == "success", done.tasks
    assert done.tasks["stage_00.share_spark_nowhere"] == "skipped"
    assert done.tasks["stage_00.run"] == done.tasks["stage_00.share_spark_second"] == "success"


def test_both_clusters_that_are_there_did_a_part(done: Done) -> None:
    commit = done.run.committed(stage_step(0))
    shares = done.run.committed_document(commit, STAGE_SHARES, StageShares)
    assert set(shares.done) == {"spark_default", "spark_second"}
    assert sum(shares.done.values()) == len(shares.tasks)


def test_the_published_counts_are_those_of_a_counter(done: Done) -> None:
    counted = Counter(WORDS)
    (day,) = (done.root / "published").glob("date=*")
    rows = {row["word"]: row for row in pq.read_table(day, partitioning=None).to_pylist()}
    assert {word: row["n"] for word, row in rows.items()} == counted
    assert {word: row["total"] for word, row in rows.items()} == {word: n * len(word) for word, n in counted.items()}
