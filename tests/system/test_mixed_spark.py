"""What is told of a Spark that somebody has installed, in an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.packages import dependencies_alone

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
#: The variables by which the tests of this environment find its own Spark.
OWN = ("SPARK_HOME", "SPARK_SUBMIT_OPTS", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")


class Environment:
    """A Python with one Spark and everything else that this one has, its packages by links."""

    def __init__(self, folder: Path, *packages: str) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.folder, self.python = folder, folder / "bin" / "python"
        install = [str(UV), "pip", "install", "--quiet", "--no-config", "--no-deps", "--python", str(self.python)]
        for package in packages:  # one after the other, as the last one's files are to lie over the others'
            subprocess.run([*install, package], check=True)
        others = dependencies_alone(folder / "others")
        for link in [one for one in others.iterdir() if re.match(r"pyspark\b|pyspark_client\b|pyspark-", one.name)]:
            link.unlink()
        own = Path(str(distribution("skewless").locate_file("")))
        for metadata in own.glob("skewless-*.dist-info"):  # its entry points; the code is that of the checkout
            (others / metadata.name).symlink_to(metadata)
        (folder / SITE / "others.pth").write_text(f"{others}\n")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Python in the checkout, with the Spark of this environment."""
        passed = {name: value for name, value in os.environ.items() if name not in OWN}
        environment = {
            **passed,
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "jobs", ROOT / "plugins", ROOT))),
            "PYSPARK_PYTHON": str(self.python),
        }
        return subprocess.run(
            [str(self.python), *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )


@pytest.mark.parametrize(("spark", "client"), [("4.3.0", "4.2.0")])
def test_pyspark_under_pyspark_client_is_told_in_one_sentence(tmp_path: Path, spark: str, client: str) -> None:
    mixed = Environment(tmp_path / "venv", f"pyspark=={spark}", f"pyspark-client=={client}")
    done = mixed.run("jobs/steps.py", "--help")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"skewless: pyspark: expected .* run pip install --force-reinstall .*\.\n", done.stderr)
    assert f"pyspark=={spark}." in done.stderr
