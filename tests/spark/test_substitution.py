"""``${...}`` in a spec is text, and no variable of Spark, of Java or of the driver's environment."""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.spark.scenario import result_of, run_job, spec_of, write_input

pytestmark = pytest.mark.long

MARKS = ["${x}", "${env:HOME}", "${system:user.dir}", "${spark.master}", "plain"]
_SUBMITTED = """
from skewless_spark.session.session import build_session
spark = build_session("submitted")
print("found", spark.sql("SELECT 'price: ${x} ${env:HOME} ${spark.master}'").first()[0])
spark.stop()
"""


def test_dollars_in_a_select_list_a_condition_and_an_expectation_are_text(spark: SparkSession, tmp_path: Path) -> None:
    marks = [MARKS[n * n % 7 % 5] for n in range(400)]
    write_input(tmp_path / "in", pa.table({"mark": marks, "${env:HOME}": list(range(400))}), files=4)
    made = [f"price: {mark} of ${{env:HOME}}${{x}}" for mark in marks if mark != "${env:HOME}"]
    checks: dict[str, dict[str, Any]] = {
        "expect_column_values_to_be_in_set": {"value_set": sorted(set(made))},
        "expect_column_values_to_match_regex": {"regex": r"^price: .* of \$\{env:HOME\}\$\{x\}$"},
        "expect_column_values_to_not_match_regex": {"regex": re.escape(os.environ["HOME"])},
    }
    spec = spec_of(
        tmp_path / "in", "label", {"rows": "count", "last": {"function": "max", "column": "number"}},
        map={
            "select": ["concat('price: ', mark, ' of ${env:HOME}${x}') AS label", "`${env:HOME}` AS number"],
            "where": "mark <> '${env:HOME}'",
        },
        quality={
            "expectations": [
                {"type": kind, "kwargs": {"column": "label", **kwargs}}
                for kind, kwargs in checks.items()
            ]
        },
    )  # fmt: skip
    run, finished, _ = run_job(spark, spec, tmp_path / "run")
    found = result_of(run)
    assert finished.quality.success, [check.sentence for check in finished.quality.checks if not check.success]
    assert dict(zip(*(found[name].to_pylist() for name in ("label", "rows")), strict=True)) == collections.Counter(made)


def test_spark_submit_cannot_turn_it_on(tmp_path: Path) -> None:
    script = tmp_path / "submitted.py"
    script.write_text(_SUBMITTED)
    submit = [str(shutil.which("spark-submit", path=str(Path(sys.executable).parent)))]
    given = ["--master", "local[1]", "--conf", "spark.sql.variable.substitute=true", "--conf", "spark.ui.enabled=false"]
    done = subprocess.run([*submit, *given, str(script)], check=False, capture_output=True, text=True, timeout=120)
    assert "found price: ${x} ${env:HOME} ${spark.master}\n" in done.stdout, done.stderr[-2000:]
