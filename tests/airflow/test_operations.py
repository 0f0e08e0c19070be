"""Retention and the plugin: what those who operate a job rely on."""

import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from skewless_airflow.run_store import prune_runs
from tests.airflow.recorded_run import record, validate
from tests.airflow_setting import PROJECT
from tests.packages import dependencies_alone
from tests.unit.synthetic import simulated, zipf_rows


def test_pruning_says_what_it_does_and_a_dry_run_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    counts = zipf_rows(20, 1.2, 500)
    old = dt.datetime.now(tz=dt.UTC) - dt.timedelta(days=100)
    roots = []
    for day in (1, 2, 3):
        night = dt.datetime(2026, 3, day, 2, tzinfo=dt.UTC)
        played = simulated(counts, waves=(1, 3), reducers=2)
        played.job = played.job.model_copy(update={"date": night.date()})
        run = record(played.play(), "small", night)
        for plan in played.plans[1:]:
            run.write_once(f"plans/{plan.epoch:04d}.json", plan)
        validate(run, {f"key-{number}": int(rows) for number, rows in enumerate(counts)})
        for path in Path(run.root).rglob("*"):
            os.utime(path, (old.timestamp(), old.timestamp()))
        roots.append(Path(run.root))
    said = prune_runs(30, 7, dry_run=True)
    assert (said["keep"], said["thin"], said["remove"]) == (2, 0, 1)
    assert all(root.exists() for root in roots)
    assert prune_runs(30, 7, dry_run=False) == said
    assert [root.exists() for root in roots] == [False, True, True]
    told = capsys.readouterr().out
    assert "warm start" in told
    assert "dry run: remove" in told


# Airflow's own loader over our plugins folder and over the entry point of the installed package.

# In a process of its own: the loader keeps what it loaded, and so does sys.modules.
_LOADER = """
import json, sys
from pathlib import Path
from airflow import plugins_manager
before = set(sys.modules)
plugins, errors = plugins_manager._get_plugins()
stems = {path.stem for path in Path(sys.argv[1]).rglob("*.py")} - {"skewless_plugin"}
print(json.dumps({
    "plugins": [plugin.name for plugin in plugins if plugin.name == "skewless"],
    "errors": errors,
    "stray": sorted((set(sys.modules) - before) & stems),
    "scanned": "skewless_plugin" in sys.modules,
}))
"""
_ONCE = {"plugins": ["skewless"], "errors": {}, "stray": [], "scanned": True}


def loaded(options: list[str], environment: dict[str, str]) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, *options, "-c", _LOADER, str(PROJECT / "plugins")],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_airflow_loads_the_plugin_once_where_the_package_is_installed_and_the_folder_is_scanned() -> None:
    assert loaded([], {}) == _ONCE


@pytest.mark.long
def test_airflow_loads_the_plugin_from_a_checkout_that_is_not_installed(tmp_path: Path) -> None:
    dependencies = dependencies_alone(tmp_path / "dependencies")
    assert loaded(["-S"], {"PYTHONPATH": f"{dependencies}{os.pathsep}{PROJECT / 'plugins'}"}) == _ONCE
