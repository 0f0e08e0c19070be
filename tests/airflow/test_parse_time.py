"""What Airflow's DAG processor pays for a DAG file of Skewless, each time it reads the file: imports, and copies."""

import json
import subprocess
import sys
from pathlib import Path

import yaml

from skewless.spec.spec import JobSpec
from skewless_airflow import build_dag
from tests import airflow_setting
from tests.airflow.test_dag_structure import SPEC

pytestmark = airflow_setting.IN_PROCESS

#: What only tasks need, or only jobs that say so.
LATE = (
    "fsspec", "numpy", "obstore", "pandas", "pyarrow", "pyspark", "great_expectations",
    "skewless.aggregates", "skewless.bounds", "skewless.documents.job", "skewless.planner", "skewless.routing.plan",
    "skewless.run.directory", "skewless.standing", "skewless_lake", "skewless_leases", "skewless_spark",
    "skewless_airflow.observability.lineage",
    "airflow.providers.standard.operators.trigger_dagrun",
)  # fmt: skip
#: Reads the DAG file as the DAG processor does, and says which modules are loaded then.
_READ = """
import json, sys
from airflow.sdk import DAG
before = set(sys.modules)
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), {"__file__": sys.argv[1], "__name__": "dag_file"})
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_a_dag_file_loads_nothing_that_only_tasks_need(tmp_path: Path) -> None:
    for number in range(3):
        own = {"name": f"job_{number}", "output": {"path": f"out_{number}"}, "schedule": {"cron": "0 2 * * *"}}
        (tmp_path / f"job_{number}.yaml").write_text(yaml.safe_dump({**SPEC, **own}))
    (tmp_path / "mine.py").write_text(
        "from skewless_airflow import catalog_dags\nassert len(catalog_dags('.')) == 3  # airflow\n"
    )
    command = [sys.executable, "-c", _READ, str(tmp_path / "mine.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert [name for name in loaded if any(name == late or name.startswith(f"{late}.") for late in LATE)] == []


def test_the_form_is_that_of_the_dag_and_no_task_has_a_copy_which_airflow_would_validate_anew() -> None:
    dag = build_dag(JobSpec.model_validate(SPEC))
    assert "policy" in dag.params
    assert [task.task_id for task in dag.tasks if task.params] == []
