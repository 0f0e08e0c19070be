"""How a task that fails ends in Airflow: one line at level ERROR, the report's address beside it, no stack."""

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from airflow.dag_processing.dagbag import DagBag

from skewless_airflow.run_store import run_directory
from tests import airflow_setting
from tests.airflow.recorded_run import NIGHT

pytestmark = [airflow_setting.IN_PROCESS, pytest.mark.usefixtures("airflow_database")]

_FAILING = """
import datetime as dt
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowException
from skewless.errors import QualityError, UnreachableError
from skewless_airflow.operators import end_with_sentence

ERRORS = {{
    "data": QualityError.saying("3 of 20 checks failed", "page: values not null", "see /runs/x"),
    "spark": UnreachableError.saying("Spark", "it does not answer"),
    "runner": AirflowException("stage: exit code 137"),
}}


class Fail(BaseOperator):
    def execute(self, context):
        with end_with_sentence(context, {group!r}):
            raise ERRORS[self.task_id]


with DAG("failing", schedule=None, default_args={{"retries": 2, "retry_delay": dt.timedelta(0)}}) as dag:
    Fail(task_id={task!r})
"""


@pytest.mark.parametrize(
    ("task", "group", "tries", "line", "page"),
    [
        (
            "data", "", 1, "3 of 20 checks failed: page: values not null; see /runs/x.",
            "https://airflow.example/skewless/dags/failing/runs/{}/quality",
        ),
        (
            "data", "a b", 1, "3 of 20 checks failed: page: values not null; see /runs/x.",
            "https://airflow.example/skewless/dags/failing/runs/{}/quality?group=a%20b",
        ),
        ("spark", "", 3, "Spark: it does not answer.", "https://airflow.example/dags/failing/runs/{}/plugin/skew"),
        ("runner", "", 3, "stage: exit code 137", "https://airflow.example/dags/failing/runs/{}/plugin/skew"),
    ],
)  # fmt: skip
def test_a_task_that_fails_ends_with_its_sentence_its_report_and_no_stack(
    task: str,
    group: str,
    tries: int,
    line: str,
    page: str,
    dags_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/")
    (dags_folder / "failing.py").write_text(_FAILING.format(task=task, group=group))
    done = DagBag(dags_folder / "failing.py").dags["failing"].test(logical_date=NIGHT, run_after=NIGHT)
    told = capsys.readouterr().out
    said = [one for one in told.splitlines() if "[error" in one]
    assert len(said) == tries
    assert all(line in one and page.format(quote(done.run_id, safe="")) in one for one in said)
    left = Path(str(run_directory(done, group)), "failures").glob(f"{task}-*.json")
    assert [json.loads(path.read_text())["sentence"] for path in left] == [line] * (tries if task != "runner" else 0)
    assert "Traceback" not in told
    assert "Task failed with exception" not in told
    assert str(done.get_task_instance(task).state) == "failed"
