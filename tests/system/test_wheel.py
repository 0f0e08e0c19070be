"""The wheel is whole: installed beside its dependencies, in a folder that is no checkout, everything works."""

import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.packages import PROJECT, Environment, built_wheel, dependencies_alone, new_environment

pytestmark = pytest.mark.long

SPEC = """
name: words
input: {path: input}
key: key
aggregates: {n: count}
routing: {reducers: 2}
output: {path: results}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment that has the wheel and its dependencies, and a job with its input in the folder beside it."""
    folder = tmp_path_factory.mktemp("installed")
    made = new_environment(folder)
    made.install("--offline", "--no-deps", wheel)
    (site,) = (folder / "venv" / "lib").glob("python3.*/site-packages")
    (site / "dependencies.pth").write_text(f"{dependencies_alone(folder / 'dependencies')}\n")
    (made.home / "spec.yaml").write_text(SPEC)
    (made.home / "data" / "input").mkdir(parents=True)
    pq.write_table(pa.table({"key": ["a"] * 90 + ["b"] * 10}), made.home / "data" / "input" / "part.parquet")
    return made


def test_every_file_of_the_packages_that_is_no_code_is_in_the_wheel(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    folders = [*(PROJECT / "plugins").glob("skewless*/"), PROJECT / "jobs" / "skewless_spark"]
    wanted = {
        str(path.relative_to(folder.parent))
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= packed


def test_the_installed_package_is_not_the_checkout(installed: Environment) -> None:
    imported = "import skewless, skewless_spark, skewless_airflow, skewless_cli, skewless_leases, sys; print(*sys.path)"
    done = installed.run(installed.python, "-c", f"{imported}; print(skewless.__file__)")
    assert done.returncode == 0, done.stderr
    assert str(PROJECT / "plugins") not in done.stdout
    assert str(installed.python.parents[1]) in done.stdout.splitlines()[1]


def test_the_command_checks_and_runs_a_spec(installed: Environment) -> None:
    told = installed.run("skewless", "--help")
    assert told.returncode == 0
    assert "replay" in told.stdout
    checked = installed.run("skewless", "check", "spec.yaml")
    assert checked.returncode == 0, checked.stderr
    done = installed.run("skewless", "run", "spec.yaml", "--master", "local[2]", "--json")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert run["ledger"]["balanced"]
    assert run["published_path"].startswith(str(installed.home / "data"))


def test_airflow_lists_the_plugin_and_the_provider(installed: Environment) -> None:
    plugins = installed.run(installed.python, "-m", "airflow", "plugins", "--output", "json")
    assert plugins.returncode == 0, plugins.stderr
    (plugin,) = [one for one in json.loads(plugins.stdout) if one["name"] == "skewless"]
    assert "EntryPoint" in plugin["source"]
    providers = installed.run(installed.python, "-m", "airflow", "providers", "list", "--output", "json")
    assert "skewless" in {one["package_name"] for one in json.loads(providers.stdout)}


ENTRY = """
from skewless_airflow.run_store import spark_entry
import sys
print(spark_entry("pipeline.py"))
assert "skewless_spark" not in sys.modules
"""


def test_the_steps_of_a_run_are_a_file_of_the_package_that_runs(installed: Environment) -> None:
    listed = installed.run(installed.python, "-c", ENTRY)
    assert listed.returncode == 0, listed.stderr
    path = listed.stdout.strip()
    assert Path(path).is_relative_to(installed.python.parents[1])
    words = ["prepare", "--run-dir", "run", "--spec", "spec.yaml", "--date", "2026-11-20", "--root", "data"]
    prepared = installed.run("spark-submit", "--master", "local[1]", path, *words)
    assert prepared.returncode == 0, prepared.stderr
    assert (installed.home / "run" / "plans" / "0000.json").exists()


def test_without_variables_and_default_folders_the_missing_variable_is_named(
    installed: Environment, tmp_path: Path
) -> None:
    reads = "from skewless_airflow import run_store; print(run_store.{name}())"
    for name, variable in (("data_root", "SKEWLESS_ROOT"), ("catalog_folder", "SKEWLESS_CATALOG")):
        elsewhere = installed._replace(home=tmp_path)
        done = elsewhere.run(installed.python, "-c", reads.format(name=name))
        assert f"variable {variable}: expected" in done.stderr.splitlines()[-1]
        assert (
            elsewhere.run(installed.python, "-c", reads.format(name=name), **{variable: str(tmp_path)}).returncode == 0
        )
