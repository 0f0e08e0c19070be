"""The table of the design's rooms is executed: lint-imports, and what it cannot see."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "plugins/skewless",
    "plugins/skewless_leases",
    "plugins/skewless_lake",
    "plugins/skewless_airflow",
    "plugins/skewless_cli",
    "jobs/skewless_spark",
)


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run lint-imports on the packages of ``tree``, which come before the installed ones."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": f"{tree / 'plugins'}:{tree / 'jobs'}", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.long
def test_the_tree_keeps_all_contracts() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


PLANTED: list[list[str]] = yaml.safe_load(Path(__file__).with_name("planted_imports.yaml").read_text())


def plant(tree: Path, module: str, line: str) -> None:
    path = tree / ("jobs" if module.startswith("skewless_spark") else "plugins") / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    path.write_text(f"{path.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")


def reasons(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    sections = re.split(r"^(.+)\n-+\n", done.stdout.partition("Broken contracts")[2], flags=re.MULTILINE)
    return dict(zip(sections[1::2], sections[2::2], strict=True))


@pytest.mark.long
def test_every_contract_finds_its_violation(tree: Path) -> None:
    for module, line, _ in PLANTED:
        plant(tree, module, line)
    found = reasons(lint_imports(tree))
    for module, line, name in PLANTED:
        imported = line.removeprefix("from ").removeprefix("import ").replace(" import ", ".").partition(".sdk")[0]
        assert [
            contract
            for contract in found
            if contract.startswith(name) and f"{module} -> {imported} (" in found[contract]
        ], (module, line)


@pytest.mark.parametrize(
    ("files", "forbidden"),
    [
        ("dags/*.py", {"pyspark", "pyarrow", "great_expectations", "skewless_spark"}),
        ("plugins/*.py", {"pyspark", "pyarrow", "great_expectations", "skewless_spark"}),
        ("jobs/*.py", {"airflow", "skewless_airflow"}),
        ("benchmarks/**/*.py", {"airflow", "skewless_airflow"}),
    ],
    ids=["dags know no spark", "the plugin file knows no spark", "spark entries know no airflow", "benchmarks neither"],
)
def test_files_that_are_in_no_package_keep_apart(files: str, forbidden: set[str]) -> None:
    for path in ROOT.glob(files):
        assert not imported(path) & forbidden, path


def imported(path: Path) -> set[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return {name.partition(".")[0] for name in names}


def test_the_core_imports_without_spark_airflow_or_arrow() -> None:
    code = (
        "import sys, skewless.planner.planner, skewless.publication\n"
        "assert not {'pyspark', 'airflow', 'pyarrow', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("package", [*PACKAGES, "deploy", "examples"])
def test_a_folder_says_what_is_in_it(package: str) -> None:
    for init in (ROOT / package).rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))), init
