"""The check by stored schemas, held to the Great Expectations that is installed; no Spark."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skewless.errors import SpecError
from skewless_spark.quality.expectation_schemas import MAPPING_KWARG, NOT_OURS_TO_OFFER, require_fitting
from skewless_spark.quality.expectations import ALLOWED, great_expectations
from tests.spark.test_quality import CALLS
from tests.tiers import mostly_long

#: Values of all kinds that a spec can hold.
VALUES: list[Any] = [
    None, True, False, 0, 1, 2, -1, 5.5, 0.25, 1.0, 1.5, 0.955, 1e300, 2**53 + 1, 10**18,
    "", "x", "no", "files", "5", "1.5", "any", "all", "std", "neither", "never", "any_value_is_missing",
    "2026-01-31", "2026-02-31", "2026-01-31T05:06", "2026-01-31 05:06:07", "2026-01-31T05:06:07.5Z", "2026-01-31T05",
    "20260131", "2026-W05-6", "%Y-%m-%d", "%Q", "%H:%M",
    [], ["x"], ["x", "y"], ["x", 5], [1, 2], [1, 1], [1, "x"], [1.5], [True], [None],
    [[1, 2]], [[1, 2], ["a", "b"]], [[1]], [[1, 2, 3]],
]  # fmt: skip


def _taken_by_us(kind: str, kwargs: dict[str, Any]) -> bool:
    try:
        require_fitting(kind, kwargs, "spec")
    except SpecError:
        return False
    return True


def _taken_by_them(kind: str, kwargs: dict[str, Any]) -> bool:
    """Whether the class can be made, and means what the spec says: it reads 1.5 as the integer 1, and 'no' as false."""
    gx = great_expectations()
    try:
        made = gx.expectations.registry.get_expectation_impl(kind)(**kwargs)
    except gx.compatibility.pydantic.ValidationError:
        return False
    return all(_same(given, getattr(made, name)) for name, given in kwargs.items() if name != MAPPING_KWARG)


def _same(given: Any, taken: Any) -> bool:
    if isinstance(taken, dt.date):  # and so datetime too: JSON has dates as text
        return isinstance(given, str)
    if isinstance(taken, bool) or isinstance(given, bool):
        return given is taken
    if isinstance(given, list) and isinstance(taken, list | tuple):
        return len(given) == len(taken) and all(map(_same, given, taken))
    return bool(given == getattr(taken, "value", taken))  # an enum is its value


def _changed(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Calls of an expectation that differ in one kwarg from a good one: each that it knows, with each value."""
    good = CALLS[kind]
    fields = great_expectations().expectations.registry.get_expectation_impl(kind).__fields__
    for name in fields:
        if name == MAPPING_KWARG or name in NOT_OURS_TO_OFFER:
            continue
        yield name, {left: value for left, value in good.items() if left != name}
        for value in VALUES:
            yield name, {**good, name: value}


@pytest.mark.parametrize("kind", mostly_long(sorted(ALLOWED), "expect_column_values_to_be_between"))
def test_a_kwarg_is_taken_where_great_expectations_takes_it_as_it_is(kind: str) -> None:
    differing = []
    for name, kwargs in _changed(kind):
        ours, theirs = _taken_by_us(kind, kwargs), _taken_by_them(kind, kwargs)
        if ours != theirs:
            differing.append((name, kwargs.get(name, "nothing"), ours, theirs))
    # We are stricter about true as a number, and about null where there is a default.
    strict = [one for one in differing if not one[2] and (isinstance(one[1], bool) or one[1] is None)]
    assert [one for one in differing if one not in strict] == []


@pytest.mark.long
def test_each_kwarg_of_an_allowed_expectation_is_known_from_the_stored_schemas() -> None:
    for kind in ALLOWED:
        fields = great_expectations().expectations.registry.get_expectation_impl(kind).__fields__
        known = {name for name in fields if name not in NOT_OURS_TO_OFFER}
        assert {name for name in known if _is_known(kind, name)} == known, kind
        assert not any(_is_known(kind, name) for name in NOT_OURS_TO_OFFER), kind


def _is_known(kind: str, name: str) -> bool:
    try:
        require_fitting(kind, {**CALLS[kind], name: None}, "spec")
    except SpecError as err:
        return "a known kwarg" not in str(err)
    return True


def test_check_and_prepare_import_no_great_expectations_and_start_no_jvm(tmp_path: Path) -> None:
    """A count of imports, as a time depends on the machine. A sample of keys has pyarrow import pandas."""
    (tmp_path / "data" / "in").mkdir(parents=True)
    (tmp_path / "data" / "in" / "a.csv").write_text("k,v\na,1\n")
    (tmp_path / "spec.yaml").write_text(_SPEC)
    (tmp_path / "both.py").write_text(_BOTH)
    done = subprocess.run(
        [sys.executable, "both.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    good = "spec.yaml: good for 2026-03-01. about 2 rows in 1 files; waves of 2 rows."
    assert done.stdout.splitlines() == [
        f"{good} So few rows take DuckDB or polars seconds in one process.",
        "prepared 2026-03-01",
        "imported []",
        "JVM False",
    ]


_SPEC = """
name: small
input: {path: in, format: csv}
key: k
aggregates: {n: count}
engine: staged
routing: {waves: [1], first_plan: [last_run]}
quality: {expectations: [{type: expect_column_values_to_be_between, kwargs: {column: n, min_value: 1}}]}
output: {path: out}
"""
_BOTH = """
import datetime as dt, sys
from skewless.run.directory import RunDirectory
from skewless.spec.reading import load_spec
from skewless_cli.main import app
from skewless_spark.prepare.prepare import prepare

app(["check", "spec.yaml", "--date", "2026-03-01"], standalone_mode=False)
job = prepare(RunDirectory("run"), load_spec("spec.yaml"), dt.date(2026, 3, 1), "data")
print("prepared", job.part)
print("imported", [name for name in ("great_expectations", "pandas", "airflow") if name in sys.modules])
from pyspark import SparkContext
print("JVM", SparkContext._gateway is not None)
"""


_AN_EXPECTATION = """
from skewless_spark.quality.expectation_schemas import require_fitting
require_fitting("expect_column_max_to_be_between", {"column": "n", "max_value": 1}, "here")
"""
_IMPORTS = {
    "import skewless_cli.running": ["jsonschema", "great_expectations", "pandas"],
    "from skewless_spark.quality.expectations import great_expectations as gx; gx()": [
        "rfc3987_syntax",
        "scipy.special",
        "altair.utils",
        "sqlalchemy",
        "boto3",
        "pyspark.ml",
    ],
    _AN_EXPECTATION: ["rfc3987_syntax"],
}


@pytest.mark.parametrize("code", _IMPORTS, ids=["the command", "Great Expectations", "an expectation"])
def test_no_library_is_imported_that_a_run_may_do_without(code: str) -> None:
    asked = f"import sys\n{code}\nprint([one for one in {_IMPORTS[code]} if sys.modules.get(one)])"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


_ELSEWHERE = """
import importlib.util, threading
from skewless_spark.quality.lean_imports import POSTPONED, lean_imports
with lean_imports(POSTPONED):
    assert importlib.util.find_spec("altair") is not None
    try:
        import sqlalchemy
    except ModuleNotFoundError as error:
        assert error.name == "sqlalchemy"
    else:
        raise AssertionError
    another = threading.Thread(target=lambda: __import__("boto3"))
    another.start()
    another.join()
import boto3, sqlalchemy, scipy.stats, altair.vegalite
from scipy.stats import norm
print(sqlalchemy.create_engine, boto3.client, norm.cdf(0), scipy.stats.norm is norm, altair.Chart)
"""


def test_what_great_expectations_does_without_can_be_imported_by_others_meanwhile_and_later() -> None:
    done = subprocess.run([sys.executable, "-c", _ELSEWHERE], capture_output=True, text=True, check=True)
    assert "0.5 True" in done.stdout
    assert not done.stderr


def test_who_waits_for_the_jvm_has_its_turn_soon_while_great_expectations_is_imported() -> None:
    asked = (
        "import sys\nfrom skewless_spark.quality.expectations import import_soon\n"
        "import_soon()\nprint(sys.getswitchinterval())"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.001
