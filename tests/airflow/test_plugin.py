"""Airflow's own loader over our plugins folder and over the entry point of the installed package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.airflow_setting import PROJECT
from tests.packages import dependencies_alone

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
