"""What a step says, where it says it, and who may listen to its Spark."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from skewless.errors import InputError
from skewless_spark.entries.run_steps import STEPS, main
from skewless_spark.session.spark_errors import exit_code_of, sentence_for

_PROJECT = Path(__file__).parents[2]


def test_a_log_that_lacks_a_character_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setitem(STEPS, "merge", (lambda *_: "caf\u00e9 \u2581: done", {}))
    main(["merge", "--run-dir", str(tmp_path / "run")])
    sys.stdout.flush()
    assert written.getvalue() == b"skewless: caf\\xe9 \\u2581: done\n"


def test_the_sentence_for_an_error_of_a_library_has_no_password() -> None:
    said = sentence_for(OSError("cannot reach redis://me:s3cr3t@leases/0 or sc://host/;token=s3cr3t"))
    assert said == "OSError: cannot reach redis://me:***@leases/0 or sc://host/;token=***"


@pytest.mark.parametrize(
    "column",
    ["cast(word as int)", "1 / (id - id)", "cast(id + 300 as tinyint)", "raise_error('no')", "array(1)[id + 1]"],
)
def test_an_error_of_data_that_spark_raises_is_not_tried_again(
    spark: SparkSession, tmp_path: Path, column: str
) -> None:
    rows = spark.range(2).selectExpr("id", "'x' || id as word").selectExpr(f"{column} as value")
    for act in (rows.collect, lambda: rows.selectExpr("cast(value as string)").write.parquet(str(tmp_path / "out"))):
        with pytest.raises(Exception, match=r"SQLSTATE|aborted|TASK_WRITE_FAILED") as raised:
            act()
        assert exit_code_of(raised.value) == InputError.exit_code
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN") as raised:
        rows.selectExpr("missing")
    assert exit_code_of(raised.value) == 1


def test_a_driver_of_this_machine_talks_to_nobody_without_its_secret(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.master") == "local[2]"
    assert conf.get("spark.authenticate") == "true"


def test_no_module_is_started_with_the_current_folder_on_its_path() -> None:
    """A file ``json.py`` there would be imported in place of Python's own."""
    started = [
        file.name
        for folder in ("plugins", "jobs")
        for file in (_PROJECT / folder).rglob("*.py")
        if re.search(r"sys\.executable,\s+\"-m\"", file.read_text())
    ]
    assert not started
