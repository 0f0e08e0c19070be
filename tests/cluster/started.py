"""A cluster for the tests of a module: in a home of its own, with the catalog of jobs that they bring."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import running
from tests.cluster.running import Cluster


@contextmanager
def home_of_tests() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="skewless-cluster-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def started(home: Path, job: Mapping[str, Any], settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """The cluster, with one job in its catalog and no demo."""
    catalog = home / "catalog"
    catalog.mkdir()
    (catalog / f"{job['name']}.yaml").write_text(yaml.safe_dump(dict(job)))
    setting = {
        "SKEWLESS_CATALOG": str(catalog),
        "SKEWLESS_DEMO_CORPUS": "no",
        "SKEWLESS_DRIVER_MEMORY": "1g",
        "SPARK_WORKER_MEMORY": "1500m",
        **(settings or {}),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in setting.items():
            patch.setenv(name, value)
        try:
            cluster = running.start(home, lambda _: None)
            yield cluster
        finally:
            running.stop(home)
    assert not cluster.alive(), "a cluster that was stopped leaves nothing behind"
