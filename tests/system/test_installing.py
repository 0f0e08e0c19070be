"""What is installed: extras ask for no more than they need, locks have it, and the command tells what is missing."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.unit.test_import_rules import imported

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
#: The extras that the production lock leaves out.
TOOLS = {"bench", "dev"}
#: Those of the services that submit steps: Google's provider holds other packages back, and is in neither lock.
RUNNERS = {"livy", "emr_serverless", "databricks", "dataproc", "kubernetes", "package"}
LOCKS = ("requirements.lock", "requirements-test.lock")


def asked(lines: list[str]) -> list[Requirement]:
    """Requirements of other packages; those of extras of our own are asked for by these."""
    return [one for line in lines if (one := Requirement(line)).name != "skewless"]


def names(lines: list[str]) -> set[str]:
    return {canonicalize_name(one.name) for one in asked(lines)}


def pins(lock: str) -> dict[str, set[str]]:
    """The versions of each package in a lock: one, or several for Pythons that differ."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_a_hash_for_each_package_and_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    entries = [entry for entry in re.split(r"^(?=\w)", text, flags=re.MULTILINE) if entry.strip()]
    assert len(entries) > 100
    assert [entry for entry in entries if not re.match(r"[^\n]+ \\\n    --hash=sha256:[0-9a-f]{64}", entry)] == []
    assert "://" not in text


@pytest.mark.parametrize(("lock", "left_out"), [(LOCKS[0], TOOLS | RUNNERS), (LOCKS[1], {"dataproc"})])
def test_a_lock_has_what_the_extras_ask_for(lock: str, left_out: set[str]) -> None:
    found = pins(lock)
    for name, lines in {"base": PROJECT["dependencies"], **EXTRAS}.items():
        for one in asked(lines) if name not in left_out else ():
            versions = found.get(canonicalize_name(one.name), set())
            assert versions, (name, str(one))
            assert all(one.specifier.contains(version) for version in versions), (name, str(one), versions)


def test_the_production_lock_is_a_part_of_the_test_lock_and_has_no_tool_of_the_tests() -> None:
    production, tests = (pins(lock) for lock in LOCKS)
    assert {name: versions for name, versions in production.items() if tests.get(name) != versions} == {}
    for tool in ("hypothesis", "matplotlib", "moto", "mypy", "pytest", "ruff", "selenium", "pyspark-client"):
        assert tool not in production


def test_an_airflow_that_is_there_keeps_its_version_and_gets_only_the_spark_provider() -> None:
    assert names(EXTRAS["airflow"]) == {"apache-airflow", "apache-airflow-providers-apache-spark"}
    for one in asked(EXTRAS["airflow"]):
        assert {part.operator for part in one.specifier} == {">=", "<"}, one


def test_the_airflow_side_imports_what_the_base_or_airflow_itself_brings() -> None:
    there = names(PROJECT["dependencies"]) | names(EXTRAS["airflow"])
    for package in ("apache-airflow", "apache-airflow-core", "apache-airflow-task-sdk", "jinja2", "pydantic"):
        there |= {package} | names([line for line in requires(package) or () if not Requirement(line).marker])
    # Imported only where OpenLineage calls, or where the runner of that name is.
    there |= {"openlineage-python", "kubernetes"}
    distributions = packages_distributions()
    modules = {name for path in (ROOT / "plugins" / "skewless_airflow").rglob("*.py") for name in imported(path)}
    outside = {name for name in modules - sys.stdlib_module_names if not name.startswith("skewless")}
    strangers = {name for name in outside if not {canonicalize_name(one) for one in distributions[name]} & there}
    assert strangers == set()


@pytest.mark.long
def test_the_bill_of_materials_is_valid_and_has_each_package_of_the_production_lock_with_its_hashes(
    tmp_path: Path,
) -> None:
    from cyclonedx.schema import SchemaVersion  # the other tests do without its package
    from cyclonedx.validation.json import JsonStrictValidator

    told = tmp_path / "sbom.json"
    # The environment is there: the test runs in it.
    command = ["make", "--assume-old=setup-development", "sbom", f"INTO={told}"]
    subprocess.run(command, cwd=ROOT, check=True)
    text = told.read_text(encoding="utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    assert bill["specVersion"] == "1.6"
    assert bill["metadata"]["component"]["name"] == "skewless"
    found: dict[str, set[str]] = {}
    for one in bill["components"]:
        found.setdefault(one["name"], set()).add(one["version"])
        assert one["externalReferences"][0]["hashes"], one["name"]
    assert found == pins("requirements.lock")


_WITHOUT_SPARK = """
import sys

class Absent:
    def find_spec(name, path=None, target=None):
        if name in {"great_expectations", "jsonschema", "pandas", "py4j", "pyarrow", "pyspark"}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent)
from skewless_cli.main import main
main()
"""
NO_SPARK = "skewless: this command: the package pyspark is not installed; install skewless[spark]."
SPEC = "{name: words, input: {path: input}, key: key, aggregates: {n: count}, output: {path: results}}"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--help"], 0, "replay"),
        (["prune"], 0, ""),
        (["check", "spec.yaml"], 4, NO_SPARK),
        (["run", "spec.yaml"], 4, NO_SPARK),
        (["check", "none.yaml"], 2, "skewless: spec none.yaml: the file cannot be read"),
        (["prune", "--finished-days", "9" * 12], 1, "skewless: OverflowError: "),
    ],
    ids=["help", "prune", "check", "run", "no spec", "unforeseen"],
)
def test_without_the_extra_spark_a_command_works_or_says_what_to_install(
    tmp_path: Path, words: list[str], code: int, told: str
) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    command = [sys.executable, "-c", _WITHOUT_SPARK, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    if code == 0:
        assert told in done.stdout
    else:
        assert done.stderr.splitlines()[-1].startswith(told)
        assert len(done.stderr.splitlines()) == 1
        stack = Path(done.stderr.partition(" Its stack trace: ")[2].strip())
        assert stack.is_file() == (told == "skewless: OverflowError: ")
        assert not stack.is_file() or "Traceback" in stack.read_text()
