"""Packages: the wheel, environments of their own to install it in, and somebody's own with aggregates or mappers."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


class Environment(NamedTuple):
    """A Python with packages of its own, and a folder to work in."""

    python: Path
    home: Path

    def run(self, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        ours = ("SKEWLESS_", "AIRFLOW_", "PYTHONPATH")
        passed = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        environment = {
            **passed,
            "PATH": f"{self.python.parent}{os.pathsep}{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYSPARK_PYTHON": str(self.python),
            "AIRFLOW_HOME": str(self.home / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            **variables,
        }
        return subprocess.run(
            [str(word) for word in words], cwd=self.home, env=environment, capture_output=True, text=True, check=False
        )

    def install(self, *words: str | Path) -> None:
        command = [BIN / "uv", "pip", "install", "--quiet", "--python", self.python, *words]
        subprocess.run([str(word) for word in command], cwd=self.home, check=True)

    def versions(self) -> dict[str, str]:
        listed = self.run(BIN / "uv", "pip", "list", "--format", "json", "--python", self.python).stdout
        return {one["name"]: one["version"] for one in json.loads(listed)}


def built_wheel(folder: Path) -> Path:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=PROJECT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def new_environment(folder: Path, interpreter: str = sys.executable) -> Environment:
    """Make an environment without any package, not even pip, and an empty folder beside it."""
    subprocess.run([interpreter, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    (home := folder / "home").mkdir()
    return Environment(folder / "venv" / "bin" / "python", home)


def dependencies_alone(folder: Path) -> Path:
    """Fill a new folder with links to all installed packages but this one; no ``.pth`` file leads to the checkout."""
    folder.mkdir()
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if "skewless" not in package.name and package.suffix != ".pth":
            (folder / package.name).symlink_to(package)
    return folder


def install(folder: Path, name: str, code: str, **entry_points: str) -> Path:
    """What an installer leaves of a package of one module.

    Args:
        folder: where packages are, to be put on the path of Python; it is made.
        entry_points: by the group behind ``skewless.``, what is registered as ``name = attribute``, one a line.
    """
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = [f"[skewless.{group}]\n{lines}\n" for group, lines in entry_points.items()]
    (info / "entry_points.txt").write_text("".join(groups))
    return folder
