"""A PySpark that is too old, or has files of another one, is told in one sentence, before it is imported."""

import importlib.util
import os
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from skewless_spark.session.versions import LOWEST, unfit_spark

ROOT = Path(__file__).parents[2]
OLD = "pyspark: expected Spark 3.5.6 or newer, but got Spark 3.5.5; take a newer one."
ENTRIES = sorted((ROOT / "jobs" / "skewless_spark" / "entries").glob("[a-z]*_*.py"))
OVER = (
    "pyspark: expected the files of pyspark 4.3.0, but got those of 4.2.0, which pyspark-client has laid over them; "
    "run pip install --force-reinstall --no-deps pyspark==4.3.0."
)


def package(folder: Path, files: str, jar: str | None) -> Path:
    """A package pyspark that cannot be imported, as where some of its files belong to another version."""
    (folder / "pyspark" / "jars").mkdir(parents=True)
    (folder / "pyspark" / "__init__.py").write_text("raise ImportError('files of two versions')\n")
    (folder / "pyspark" / "version.py").write_text(f"__version__: str = '{files}'\n")
    if jar is not None:
        (folder / "pyspark" / "jars" / f"spark-core_2.13-{jar}.jar").touch()
    return folder / "pyspark"


@pytest.mark.parametrize(
    ("files", "jar", "sentence"),
    [
        ("4.2.0", "4.3.0", OVER),
        ("4.3.0", "4.3.0", ""),
        ("4.3.0.dev1", "4.3.0-preview1", ""),
        ("4.3.1+amzn.0", "4.3.1-amzn-0", ""),
        ("4.3.0", None, ""),
        ("3.5.6", "3.5.6", ""),
        ("3.5.5", "3.5.5", OLD),
    ],
)
def test_what_cannot_be_ours_is_found(tmp_path: Path, files: str, jar: str | None, sentence: str) -> None:
    assert unfit_spark(package(tmp_path, files, jar)) == sentence


def test_the_pyspark_of_these_tests_is_whole_and_none_is_no_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unfit_spark() == ""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert unfit_spark() == ""


def test_the_lowest_spark_is_that_of_the_extra() -> None:
    required = {Requirement(text).name: Requirement(text).specifier for text in requires("skewless") or ()}
    assert f">={'.'.join(map(str, LOWEST))}" in str(required["pyspark"])


@pytest.mark.parametrize("program", [*(one.name for one in ENTRIES), "skewless check"])
def test_a_mixed_installation_ends_each_program_in_one_sentence(tmp_path: Path, program: str) -> None:
    package(tmp_path, "4.2.0", "4.3.0")
    (tmp_path / "spec.yaml").write_text(
        "name: a\ninput: {path: x}\nkey: k\naggregates: {n: count}\noutput: {path: y}\n"
    )
    entry = ROOT / "jobs" / "skewless_spark" / "entries" / program
    words = ["-m", "skewless_cli.main", "check", str(tmp_path / "spec.yaml")] if " " in program else [str(entry)]
    path = os.pathsep.join(map(str, (tmp_path, ROOT / "jobs", ROOT / "plugins")))
    done = subprocess.run(
        [sys.executable, *words], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, f"skewless: {OVER}\n")


def test_the_doctor_says_how_a_mixed_installation_is_mended(tmp_path: Path) -> None:
    package(tmp_path, "4.2.0", "4.3.0")
    path = os.pathsep.join(map(str, (tmp_path, ROOT / "jobs", ROOT / "plugins")))
    code = "from skewless_cli.doctor import check_pyspark; print(*check_pyspark())"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"wrong   PySpark: {OVER.removeprefix('pyspark: ')}\n"
