"""What ``skewless package`` writes serves a Spark without Skewless, and a step of another version is refused."""

import hashlib
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pyspark
import pytest

from skewless.documents.step_documents import Failure
from skewless.run.directory import RunDirectory
from skewless_cli.package import package

SPARK = Path(pyspark.__file__).parent

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_a_package_serves_a_spark_that_has_no_skewless(tmp_path: Path) -> None:
    address = package(str(tmp_path / "packages"))
    sums = json.loads((Path(address) / "package.json").read_text())["sha256"]
    assert {file.name for file in Path(address).iterdir()} == {*sums, "package.json"}
    for name, checksum in sums.items():
        assert hashlib.sha256((Path(address) / name).read_bytes()).hexdigest() == checksum
    changed = (Path(address) / "package.json").stat().st_mtime_ns
    assert package(str(tmp_path / "packages")) == address
    assert (Path(address) / "package.json").stat().st_mtime_ns == changed, "it is written once"

    with tarfile.open(Path(address) / "environment.tar.gz") as archive:
        archive.extractall(tmp_path / "environment", filter="fully_trusted")
    python = str(tmp_path / "environment" / "bin" / "python")
    run = RunDirectory(str(tmp_path / "run"))
    step = ["prepare", "--run-dir", str(run), "--date", "2026-11-20", "--root", str(tmp_path), "--failure-name", "f"]
    done = subprocess.run(
        [SPARK / "bin" / "spark-submit", f"{address}/steps.py", *step, "--version", "0"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "SPARK_HOME": str(SPARK), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert run.read("failures/f.json", Failure).sentence == (
        "step: expected Skewless 0, as in Airflow, but got 0.1.0 where it runs; install the same one on both sides, or "
        "run skewless package again."
    )
