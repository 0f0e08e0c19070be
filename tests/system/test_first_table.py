"""The lines of README's second section are run as they stand, from an Airflow that is there to a published table."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from tests.spark.test_first_spec import clicks, in_days

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "README.md").read_text(encoding="utf-8").partition("## A first table")[2].partition("\n## ")[0]
DAY = "2026-11-03"


def test_the_lines_of_the_readme_lead_to_a_published_table(tmp_path: Path) -> None:
    (block,) = re.findall(r"```\n(pip freeze.*?)```", SECTION, re.DOTALL)
    assert [line.split()[0] for line in block.splitlines()] == ["pip"] * 3 + ["skewless"] * 3
    in_days(tmp_path, "date=%Y-%m-%d")
    (tmp_path / "airflow" / "dags").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    lines = block.replace("/lake/clicks", str(tmp_path / "clicks")).replace("2026-11-20", DAY)
    # What is installed is this environment, which must fit what the line asks for.
    script = f'pip() {{ echo asked: "$@"; }}\n{lines}'
    own = ("SKEWLESS_", "AIRFLOW_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(own)} | {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    asked = [line for line in done.stdout.splitlines() if line.startswith("asked: ")]
    extras = ("airflow", "spark")  # Spark's last: its files stay
    assert asked == [f"asked: install skewless[{extra}] --constraint theirs.txt" for extra in extras]
    assert "good    PySpark: " in done.stdout
    assert re.findall(r"^wrong   ([^:]*)", done.stdout, re.MULTILINE) == ["Airflow"]  # its database is still to be made
    assert {path.name for path in (tmp_path / "airflow" / "dags").iterdir()} == {"clicks.yaml", "clicks_dag.py"}
    published = pq.read_table(tmp_path / "data" / "results" / "clicks" / f"date={DAY}").to_pydict()
    assert dict(zip(published["page"], published["row_count"], strict=True)) == Counter(clicks()["page"].to_pylist())
