"""Airflow's own loader over our plugins folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.airflow_setting import PROJECT

# In a process of its own: the loader keeps what it loaded, and so does sys.modules.
_LOADER = """
import json, sys
from pathlib import Path
from airflow import plugins_manager
before = set(sys.modules)
plugins, errors = plugins_manager._get_plugins()
stems = {path.stem for path in Path(sys.argv[1]).rglob("*.py")} - {"skewless_plugin"}
print(json.dumps({
    "plugins": [plugin.name for plugin in plugins if isinstance(plugin.source, plugins_manager.PluginsDirectorySource)],
    "errors": errors,
    "stray": sorted((set(sys.modules) - before) & stems),
    "entry": "skewless_plugin" in sys.modules,
}))
"""


def test_airflow_loads_exactly_one_plugin_without_errors_or_stray_modules() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOADER, str(PROJECT / "plugins")],
        check=True,
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"plugins": ["skewless"], "errors": {}, "stray": [], "entry": True}
