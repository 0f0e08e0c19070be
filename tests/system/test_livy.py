"""A night of a job by Livy, in a whole Airflow: no slot is held, and a task that is marked as failed ends its batch.

Livy is a stand-in (``tests.stand_in_livy``); Airflow, its provider's operator and trigger, and ``spark-submit`` are
real. Workers that are killed are in ``test_killed_workers.py``.
"""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from skewless.documents.ledger import balance
from skewless.run.directory import RESULT_STEP, RunDirectory
from tests.processes import until
from tests.served_airflow import PATIENCE_SECONDS, dag_of, served_airflow
from tests.stand_in_livy import stand_in_livy

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

JOB = "livy_words"
COUNTS = {"self": 900, "if": 300, "": 20, **{f"word-{n}": 1 + n % 9 for n in range(60)}}
SPEC = {
    "name": JOB,
    "input": {"path": "words"},
    "key": "word",
    "aggregates": {"n": "count"},
    "routing": {"waves": [1], "reducers": 2},
    "spark": {
        "submit": {"runner": "livy", "livy_conn_id": "livy_night", "polling_interval": 1, "driver_memory": "700m"},
        "conf": {"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false"},
    },
    "output": {"path": "published/words", "files": 1},
}
STAGE = "stage_00.run"
STEPS = ("prepare", STAGE, "merge", "validate")


def test_a_deferred_step_holds_no_slot_and_its_batch_ends_when_it_is_marked_as_failed(tmp_path: Path) -> None:
    (tmp_path / "root" / "words").mkdir(parents=True)
    words = [word for word, rows in COUNTS.items() for _ in range(rows)]
    pq.write_table(pa.table({"word": words}), tmp_path / "root" / "words" / "0.parquet")
    (spec := tmp_path / "job.yaml").write_text(yaml.safe_dump(SPEC))
    runs = (tmp_path / "root" / "runs").as_uri()
    with stand_in_livy(tmp_path / "batches") as livy:
        settings = {"AIRFLOW_CONN_LIVY_NIGHT": livy.connection, "SKEWLESS_RUNS": runs}
        with served_airflow(tmp_path, settings, dags={JOB: dag_of(spec)}) as airflow:
            rest = airflow.rest

            def is_in(task: str, *states: str) -> None:
                until(lambda: rest.states(JOB, "night")[task] in states, f"{task} to be {states}", PATIENCE_SECONDS)

            rest.trigger(JOB, "night")
            is_in("prepare", "success", "failed")
            livy.hold()
            is_in(STAGE, "deferred")
            assert rest.call("GET", "/pools/default_pool")["running_slots"] == 0
            # Before its trigger runs, Airflow asks none to end the batch.
            until(lambda: livy.batches[-1].followed, "its trigger to run", PATIENCE_SECONDS)
            rest.of_run("PATCH", JOB, "night", f"/taskInstances/{STAGE}", {"new_state": "failed"})
            until(lambda: livy.batches[-1].deleted, "the batch to end with its task", PATIENCE_SECONDS)
            livy.release()
            assert airflow.await_end(JOB, "night") == "failed"
            rest.of_run("POST", JOB, "night", "/clear", {"dry_run": False, "only_failed": True})
            assert airflow.await_end(JOB, "night") == "success"
            log = rest.log_lines(JOB, "night", STAGE, 2)
            names = Counter(batch.name for batch in livy.batches if not batch.deleted)
    assert [line for line in log if "stage 0: " in line and "rows admitted" in line]
    assert (set(names.values()), len(names)) == ({1}, len(STEPS))
    (published,) = (tmp_path / "root" / "published" / "words").glob("date=*")
    assert dict(zip(*pq.read_table(published, partitioning=None).to_pydict().values(), strict=True)) == COUNTS
    run = RunDirectory(f"{runs}/{JOB}/night")
    ledger = balance(run.job(), run.reports(), run.committed(RESULT_STEP).counts["rows"])
    assert (ledger.problems, ledger.input_rows) == ((), sum(COUNTS.values()))
