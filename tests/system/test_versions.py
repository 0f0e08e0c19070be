"""Skewless beside an Airflow that was there: at the ends of its range and of Python's it works, and Airflow stays."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.packages import PROJECT, Environment, built_wheel, new_environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

#: Each Airflow and the day until which packages count that were there before: what its constraints were made of.
AIRFLOWS = {"3.2.0": "2026-04-10", "3.3.2": "2026-11-20", "3.4.0b2": "2026-11-29"}
PYTHONS = ("3.11", "3.13", "3.12")


def interpreter(version: str) -> str:
    """A Python of a version, where this machine has one; the test is skipped where it has none."""
    found = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
    for one in (str(path) for path in found if path):
        # A shim of pyenv is there for Pythons that are not chosen, too.
        if subprocess.run([one, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return one
    pytest.skip(f"this machine has no Python {version}")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=list(zip(AIRFLOWS, PYTHONS, strict=True)), ids="-".join)
def joined(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    """An environment in which Airflow was first, and Skewless came later, as README says: no version has moved."""
    airflow, python = request.param
    made = new_environment(tmp_path_factory.mktemp("joined"), interpreter(python))
    made.install("--exclude-newer", AIRFLOWS[airflow], f"apache-airflow=={airflow}")
    before, theirs = made.versions(), frozen(made)
    for extra in ("airflow", "spark"):
        made.install("--constraint", theirs, f"{wheel}[{extra}]")
        assert before.items() - made.versions().items() == set()
    yield made
    shutil.rmtree(made.home.parent)


def frozen(environment: Environment) -> Path:
    (path := environment.home / "theirs.txt").write_text(
        "".join(f"{name}=={number}\n" for name, number in environment.versions().items() if name != "skewless")
    )
    return path


@pytest.fixture(scope="module")
def lowest(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the lowest version of each package that the wheel asks for."""
    made = new_environment(tmp_path_factory.mktemp("lowest"), interpreter(PYTHONS[0]))
    for extra in ("airflow", "spark"):
        made.install("--resolution", "lowest-direct", "-r", PROJECT / "pyproject.toml", "--extra", extra)
    made.install("--no-deps", wheel)
    return made


RUNNERS = (".databricks", ".dataproc", ".emr_serverless", ".kubernetes", ".livy")
# Each module is imported, and each DAG of this repository is built, written for the scheduler, and read again.
_BUILD = """
import importlib, pkgutil, sys
import skewless_airflow
for module in pkgutil.walk_packages(skewless_airflow.__path__, "skewless_airflow."):
    if not module.name.endswith((".lineage", *sys.argv[2:])):  # which only extras import
        importlib.import_module(module.name)
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
bag = DagBag(sys.argv[1])
assert bag.import_errors == {}, bag.import_errors
for dag in bag.dags.values():
    assert DagSerialization.from_dict(DagSerialization.to_dict(dag)).task_ids == dag.task_ids, dag.dag_id
print("built:", *bag.dags)
"""


def require_whole(environment: Environment) -> None:
    """The packages fit each other, Airflow has the plugin, and every DAG of this repository is built."""
    checked = environment.run("uv", "pip", "check", "--python", environment.python)
    assert checked.returncode == 0, checked.stderr
    created = environment.run("airflow", "db", "migrate")
    assert created.returncode == 0, created.stderr
    plugins = environment.run("airflow", "plugins", "--output", "json")
    assert plugins.returncode == 0, plugins.stderr
    assert "skewless" in {one["name"] for one in json.loads(plugins.stdout)}
    catalog = PROJECT / "jobs" / "catalog"
    places = {"SKEWLESS_CATALOG": str(catalog), "SKEWLESS_ROOT": str(environment.home)}
    built = environment.run(environment.python, "-c", _BUILD, PROJECT / "dags", *RUNNERS, **places)
    assert built.returncode == 0, built.stdout + built.stderr
    assert {path.stem for path in catalog.glob("*.yaml")} <= set(built.stdout.rpartition("built:")[2].split())


def test_an_airflow_that_was_there_has_the_plugin_and_builds_every_dag(joined: Environment) -> None:
    require_whole(joined)


def test_the_lowest_version_of_each_package_will_do(lowest: Environment) -> None:
    assert lowest.versions()["apache-airflow"] == min(AIRFLOWS)
    require_whole(lowest)


SPEC = """
name: words
input: {path: input}
key: key
aggregates: {n: count, m: {function: exact_median, column: value}}
quality: {expectations: [{type: expect_column_values_to_be_between, kwargs: {column: n, min_value: 10, max_value: 90}}]}
output: {path: results}
"""


AFTER = SPEC.replace("name: words", "name: after\nschedule: {asset: 'skewless:words', partitioned: true}")


def put_input(root: Path) -> None:
    (root / "input").mkdir(parents=True)
    pq.write_table(pa.table({"key": ["a"] * 90 + ["b"] * 10, "value": range(100)}), root / "input" / "part.parquet")


def test_the_lowest_airflow_has_all_that_is_asked_of_it(lowest: Environment) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--python-executable", lowest.python, "--cache-dir", lowest.home / "mypy",
         "--ignore-missing-imports", "--implicit-reexport", "plugins/skewless_airflow"],
        cwd=PROJECT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "checked" in checked.stdout, checked.stderr
    # Stubs that are not there beside the lowest versions give errors of other kinds.
    lacking = [line for line in checked.stdout.splitlines() if line.endswith(("[attr-defined]", "[call-arg]"))]
    assert lacking == []


def test_an_airflow_whose_packages_do_not_fit_it_is_not_called_good(wheel: Path, tmp_path: Path) -> None:
    made = new_environment(tmp_path, interpreter(PYTHONS[0]))
    made.install("apache-airflow==3.2.1", f"{wheel}[airflow]")  # with the newest of all others
    assert made.run("airflow", "db", "migrate").returncode == 0
    told = made.run("skewless", "doctor").stdout
    assert "wrong   Airflow: 3.2.1 in " in told
    assert (
        "cannot serve, or build a DAG: PydanticUserError: Model 'TITerminalStatePayload' needs a discriminator" in told
    )


def test_an_airflow_runs_a_dag_to_its_published_table(joined: Environment) -> None:
    made = joined
    dags, root = made.home / "airflow" / "dags", made.home / "data"
    dags.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(root, ignore_errors=True)
    put_input(root)
    (dags / "words.yaml").write_text(SPEC)
    (dags / "jobs.py").write_text("from skewless_airflow import catalog_dags\n\ncatalog_dags('.')\n")
    (dags / "after.yaml").write_text(AFTER.replace("path: results", "path: after"))
    here = {
        "SKEWLESS_ROOT": str(root),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
    }
    for words in (("db", "migrate"), ("dags", "test", "words", "2026-11-20")):
        done = made.run("airflow", *words, **here)
        assert done.returncode == 0, done.stdout + done.stderr
    if made.versions()["apache-airflow"] < "3.3":
        broken = made.run("airflow", "dags", "list-import-errors", "--local", "--output", "json", **here).stdout
        assert "an Airflow that gives events of skewless:words partition keys" in broken
    doctor = made.run("skewless", "doctor", "--catalog", str(dags), **here)
    assert doctor.returncode == 0, doctor.stdout
    (table,) = (root / "results").glob("date=*")
    assert {row["key"]: row["n"] for row in pq.read_table(table).to_pylist()} == {"a": 90, "b": 10}


def test_airflow_first_and_spark_last_is_a_spark_that_is_whole(wheel: Path, tmp_path: Path) -> None:
    """Files of the provider's pyspark-client have the names of pyspark's own: what is installed last has its own."""
    made = new_environment(tmp_path, sys.executable)
    made.install(f"{wheel}[airflow]")
    assert "pyspark-client" in made.versions()
    made.install(f"{wheel}[spark]")
    told = made.run(made.python, "-c", "import pyspark; print(pyspark.__version__)").stdout.strip()
    assert told == made.versions()["pyspark"]
