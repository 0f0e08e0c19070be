"""Conf that is not of the form ends a run before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag

from skewless_airflow.run_store import run_location
from tests import airflow_setting
from tests.airflow.recorded_run import NIGHT
from tests.airflow.test_dag_structure import SPEC


@pytest.mark.long
@airflow_setting.IN_PROCESS
@pytest.mark.usefixtures("airflow_database")
def test_a_field_that_the_form_does_not_have_fails_prepare_in_one_sentence_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dags_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SPEC))
    (dags_folder / "small.py").write_text(
        f"# airflow\nfrom skewless_airflow import build_dag\ndag = build_dag({str(tmp_path / 'small.yaml')!r})\n"
    )
    dag = DagBag(dags_folder / "small.py").dags["small"]
    done = dag.test(logical_date=NIGHT, run_after=NIGHT, run_conf={"polcy": "static"})
    states = {ti.task_id: str(ti.state) for ti in done.get_task_instances()}
    assert states["prepare"] == "failed", "and not up for a retry"
    assert states["publish"] == "upstream_failed"
    told = capsys.readouterr().out
    assert "trigger form of small: expected fields of the trigger form, but got 'polcy'; did you mean 'policy'" in told
    assert "Spark-Submit cmd" not in told
    assert not Path(run_location("small", done.run_id)).exists()
