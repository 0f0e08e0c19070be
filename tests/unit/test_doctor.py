"""``skewless doctor``: each thing good or with its remedy, with the extras and without, and nothing left behind."""

import json
import os
import shlex
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import distribution, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.testing import CliRunner

from skewless_cli import doctor
from skewless_cli.doctor import Finding
from skewless_cli.main import app

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
SPEC = "name: {name}\ninput: {{path: clicks}}\nkey: page\naggregates: {{n: {function}}}\noutput: {{path: {name}}}\n"


def found(check: Callable[..., Iterator[Finding]], *where: str) -> dict[str, Finding]:
    return {one.subject: one for one in check(*where)}


def program(path: Path, says: str, code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all of the PATH, beside a shell's; there is no JAVA_HOME."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return folder


@pytest.mark.parametrize(
    ("says", "state"),
    [
        ('openjdk version "17.0.9" 2023-10-17', "good"),
        ('openjdk version "21-ea" 2023-09-19', "good"),
        ('java version "1.8.0_392"', "wrong"),
        ('openjdk version "11.0.21" 2023-10-17', "wrong"),
        ("no Java at all", "wrong"),
    ],
)
def test_java_is_that_of_the_path_and_old_enough(bare_path: Path, says: str, state: str) -> None:
    program(bare_path / "java", says)
    assert found(doctor.check_programs)["Java"].state == state


def test_each_extra_is_known_by_a_package_that_it_asks_for() -> None:
    for extra, package in doctor.EXTRAS.items():
        assert package in {canonicalize_name(Requirement(text).name) for text in EXTRAS[extra]}, extra


def test_a_package_of_another_version_than_its_extra_asks_for_is_told_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "obstore-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: obstore\nVersion: 0.1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    line = found(doctor.check_packages)["extra object-stores"]
    assert line.state == "wrong"
    assert "obstore is 0.1, but it needs obstore" in line.fact
    (wanted,) = EXTRAS["object-stores"]
    assert f" install '{Requirement(wanted)}'" in line.remedy


def test_a_file_of_pyspark_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "pyspark-4.3.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pyspark\nVersion: 4.3.0\n")
    (info / "RECORD").write_text("pyspark-4.3.0.dist-info/METADATA,,\npyspark/a.py,,\npyspark/__pycache__/a.pyc,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    line = found(doctor.check_pyspark)["PySpark"]
    assert (line.state, line.fact) == ("wrong", "1 of its files are gone, pyspark/a.py among them")
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "a.py").touch()
    assert found(doctor.check_pyspark)["PySpark"].state == "good"


def test_an_extra_that_is_absent_has_a_command_that_moves_no_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor.EXTRAS, "delta", "no-such-package")
    line = found(doctor.check_packages)["extra delta"]
    assert line.state == "absent"
    assert line.remedy.endswith(f"install 'skewless[delta]' 'apache-airflow=={version('apache-airflow')}'")


def test_spark_submit_beside_this_python_is_to_be_put_on_the_path(bare_path: Path) -> None:
    line = found(doctor.check_programs)["spark-submit"]
    assert (line.state, line.remedy) == ("wrong", f"export PATH={Path(sys.executable).parent}:$PATH")
    program(bare_path / "spark-submit", "")
    assert found(doctor.check_programs)["spark-submit"].state == "good"


def test_the_data_root_is_tried_as_a_run_directory_is_written_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SKEWLESS_RUNS", raising=False)
    (line,) = found(doctor.check_places, str(tmp_path)).values()
    assert (line.subject, line.state) == ("SKEWLESS_ROOT", "good")
    assert list(tmp_path.iterdir()) == []
    assert found(doctor.check_places, str(tmp_path / "made" / "by a run"))["SKEWLESS_ROOT"].state == "absent"
    (tmp_path / "file").touch()
    gone = tmp_path / "file" / "gone; it's"
    line = found(doctor.check_places, str(gone))["SKEWLESS_ROOT"]
    assert (line.state, shlex.split(line.remedy)) == ("wrong", ["mkdir", "-p", str(gone)])
    assert not gone.exists()


def test_a_folder_of_runs_of_its_own_is_tried_too_and_so_is_the_group_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.setenv("SKEWLESS_RUNS", str(tmp_path / "runs"))
    assert found(doctor.check_places, str(tmp_path))["SKEWLESS_RUNS"].state == "good"
    monkeypatch.setenv("SKEWLESS_RUN_GROUP", "nobody-has-this-group")
    line = found(doctor.check_places, str(tmp_path))["SKEWLESS_ROOT"]
    assert line.state == "wrong"
    assert "SKEWLESS_RUN_GROUP" in line.remedy
    assert [one.name for one in tmp_path.rglob("*")] == ["runs"]


def test_each_spec_of_the_catalog_is_good_or_has_its_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SPEC.format(name="a", function="count"))
    (tmp_path / "b.yaml").write_text(SPEC.format(name="b", function="count").replace("key:", "kye:"))
    (tmp_path / "c.yml").write_text(SPEC.format(name="c", function="count").replace("path: c}", "path: a}"))
    (tmp_path / "d.yaml").write_text("name: [")
    (tmp_path / "_defaults.yaml").write_text("schedule: {timezone: Europe/Zurich}\n")
    lines = {Path(subject).name: one for subject, one in found(doctor.check_catalog, str(tmp_path)).items()}
    assert {name: one.state for name, one in lines.items()} == {
        "a.yaml": "good", "b.yaml": "wrong", "c.yml": "wrong", "d.yaml": "wrong",
    }  # fmt: skip
    assert "did you mean 'key'" in lines["b.yaml"].fact
    assert lines["c.yml"].fact.startswith("field output.path: expected one that no other spec has")


def test_the_exit_code_is_2_if_something_is_wrong_and_json_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("SKEWLESS_CATALOG", raising=False)
    monkeypatch.delenv("SKEWLESS_RUNS", raising=False)
    monkeypatch.chdir(tmp_path)
    good = CliRunner().invoke(app, ["doctor", "--root", str(tmp_path), "--json"])
    assert (good.exit_code, json.loads(good.stdout)["good"]) == (0, True), good.stdout
    (tmp_path / "gone").touch()
    wrong = CliRunner().invoke(app, ["doctor", "--root", str(tmp_path / "gone"), "--json"])
    assert (wrong.exit_code, json.loads(wrong.stdout)["good"]) == (2, False)
    (root,) = [one for one in json.loads(wrong.stdout)["checks"] if one["subject"] == "SKEWLESS_ROOT"]
    lines = CliRunner().invoke(app, ["doctor", "--root", str(tmp_path / "gone")]).stdout.splitlines()
    assert f"wrong   SKEWLESS_ROOT: {root['fact']}; {root['remedy']}" in lines
    assert len(lines) == len(json.loads(wrong.stdout)["checks"])


def base_packages(name: str, seen: set[str]) -> set[str]:
    if canonicalize_name(name) not in seen:
        seen.add(canonicalize_name(name))
        for text in requires(name) or ():
            one = Requirement(text)
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                base_packages(one.name, seen)
    return seen


@pytest.fixture(scope="module")
def base_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with links to what skewless asks for without extras, and to the libraries of its command."""
    folder = tmp_path_factory.mktemp("base")
    packages = Path(sysconfig.get_path("purelib"))
    names = base_packages("packaging", base_packages("typer", base_packages("skewless", set())))
    for name in names:
        for top in {file.parts[0] for file in distribution(name).files or () if file.parts[0] != ".."}:
            if not (folder / top).exists() and not top.endswith(".pth"):
                (folder / top).symlink_to(packages / top)
    return folder


def test_without_extras_they_are_absent_and_nothing_fails(base_alone: Path, tmp_path: Path) -> None:
    code = (
        f"from skewless_cli.doctor import examine\nfor one in examine({str(tmp_path)!r}, {str(tmp_path)!r}): print(one)"
    )
    (tmp_path / "a.yaml").write_text(SPEC.format(name="a", function="count"))
    places = (base_alone, ROOT / "plugins", ROOT / "jobs")
    environment = {"PATH": "/nowhere", "PYTHONPATH": os.pathsep.join(map(str, places))}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    states = {line[8:].partition(":")[0]: line[:8].strip() for line in done.stdout.splitlines()}
    absent = {"Java", "PySpark", "spark-submit", "Airflow", *(f"extra {extra}" for extra in doctor.EXTRAS)}
    assert {subject for subject, state in states.items() if state == "absent"} == absent, done.stdout
    assert "wrong" not in states.values()
