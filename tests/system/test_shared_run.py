"""A DAG whose stages three connections are to share, of which one leads nowhere: whole Airflow, real Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skewless.documents.commit import STAGE_SHARES, StageShares
from skewless.run.directory import RunDirectory, stage_step
from tests.served_airflow import ServedAirflow

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

JOB, RUN = "shared_words", "by_hand"
WORDS = [f"word-{n % 37 if n % 3 else 0}" for n in range(6_000)]
SPEC = {
    "name": JOB,
    "input": {"path": f"{JOB}/words"},
    "key": "word",
    "aggregates": {"n": "count", "total": {"function": "paced_sum", "column": "size"}},
    "engine": "staged",
    "sharing": {"connections": ["spark_second", "spark_nowhere"], "lease_seconds": 1},
    "routing": {"policy": "static", "reducers": 12, "waves": [1], "first_plan": ["last_run"]},
    "output": {"path": f"{JOB}/published", "files": 1},
}


class Done(NamedTuple):
    """A finished run."""

    state: str
    tasks: dict[str, str]
    run: RunDirectory
    root: Path


@pytest.fixture(scope="module")
def done(served: ServedAirflow) -> Done:
    folder = served.root / JOB / "words"
    folder.mkdir(parents=True)
    for number in range(4):
        words = WORDS[number::4]
        sizes = pa.array([len(word) for word in words], pa.int64())
        pq.write_table(pa.table({"word": words, "size": sizes}), folder / f"{number}.parquet")
    served.add_job(SPEC)
    served.rest.trigger(JOB, RUN)
    state = served.await_end(JOB, RUN)
    return Done(state, served.rest.states(JOB, RUN), served.run(JOB, RUN), served.root / JOB)


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
