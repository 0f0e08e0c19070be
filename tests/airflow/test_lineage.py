"""What OpenLineage is told of the columns and the checks of a real run."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skewless.run.directory import RunDirectory
from skewless.spec.spec import Shadow
from skewless_airflow.observability.lineage import checked_lineage, published_lineage
from skewless_airflow.operators.spark_step import ValidateOperator

_SPEC = """
name: told
query: |
  SELECT c.page, count(*) AS visits, max_by(lower(c.visitor), c.ms) AS longest, sum(c.ms) / count(*) AS mean,
    max(p.title) AS title
  FROM clicks c LEFT JOIN pages p ON c.page = p.page
  WHERE c.site = 'a'
  GROUP BY c.page
tables: {clicks: {path: clicks}, pages: {path: pages}}
output: {path: marts/told}
quality:
  expectations:
    - {type: expect_column_values_to_match_regex, severity: warn, kwargs: {column: page, regex: other}}
    - {type: expect_column_max_to_be_between, severity: warn, kwargs: {column: visits, max_value: 0}}
"""
_WRITTEN = {"page": "string", "visits": "bigint", "longest": "string", "mean": "double", "title": "string"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A published run, whose last two checks do not hold."""
    root = tmp_path_factory.mktemp("told")
    rows: dict[str, list[Any]] = {
        "site": ["a", "a", "b"], "page": [f"secret-{one}" for one in "pqp"], "visitor": ["V", "W", "V"],
        "ms": [1, 2, 3], "more": [0] * 3,
    }  # fmt: skip
    (root / "clicks").mkdir()
    pq.write_table(pa.table(rows), root / "clicks" / "part.parquet")
    (root / "pages").mkdir()
    pq.write_table(pa.table({"page": ["secret-p", "secret-r"], "title": ["P", "R"]}), root / "pages" / "part.parquet")
    (root / "told.yaml").write_text(_SPEC)
    done = subprocess.run(
        [sys.executable, "-m", "skewless_cli.main", "run", str(root / "told.yaml"), "--root", str(root),
         "--run-dir", str(root / "run")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return RunDirectory(str(root / "run"))


def test_columns_are_told_with_their_types_and_what_they_are_made_from(run: RunDirectory) -> None:
    lineage = published_lineage(run)
    (read, beside), (written,) = lineage.inputs, lineage.outputs
    assert _types(beside) == {"page": "string", "title": "string"}
    assert _types(read) == {"site": "string", "page": "string", "visitor": "string", "ms": "bigint"}
    assert _types(written) == _WRITTEN
    told = written.facets["columnLineage"]
    assert {name: [_source(one) for one in field.inputFields] for name, field in told.fields.items()} == {
        "page": [("page", "DIRECT", "IDENTITY")],
        "visits": [],
        "longest": [("visitor", "DIRECT", "AGGREGATION"), ("ms", "DIRECT", "AGGREGATION")],
        "mean": [("ms", "DIRECT", "AGGREGATION")],
        "title": [("title", "DIRECT", "AGGREGATION")],
    }
    (title,) = told.fields["title"].inputFields
    assert (title.namespace, title.name) == (beside.namespace, beside.name), "a lookup's column is the lookup's"
    assert [_source(one) for one in told.dataset] == [
        *((name, "INDIRECT", "FILTER") for name in ("site", "page")), ("page", "INDIRECT", "GROUP_BY"),
    ]  # fmt: skip
    assert {(one.namespace, one.name) for one in told.dataset} == {(read.namespace, read.name)}


def test_each_check_is_told_as_an_assertion_whether_it_held_or_not(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skewless_airflow.operators.spark_step.run_directory", lambda *_: run)
    lineage = ValidateOperator(task_id="validate").get_openlineage_facets_on_complete(SimpleNamespace())
    (checked,), report = lineage.inputs, run.quality()
    assert report is not None
    assert (checked.namespace, checked.name) == ("file", run.job().output_path)
    assert _types(checked) == _WRITTEN
    told = checked.inputFacets["dataQualityAssertions"].assertions
    assert [one.success for one in told] == [check.success for check in report.checks]
    assert [one.success for one in told].count(False) == 2
    own = told[-1]
    assert (own.assertion, own.column, own.success) == ("expect_column_max_to_be_between", "visits", False)
    assert own.name == "visits: max between"
    assert "max_value=" in str(own.expected)


def test_no_value_of_a_row_is_told(run: RunDirectory) -> None:
    report = run.quality()
    assert report is not None
    assert "secret-" in str(report), "or this shows nothing"
    assert "secret-" not in f"{checked_lineage(run)} {published_lineage(run)}"


def test_nothing_is_told_of_the_output_of_a_job_in_the_shadow_of_another_one(run: RunDirectory, tmp_path: Path) -> None:
    """It may be the other job's own output, which this result never lies in."""
    beside, job = RunDirectory(str(tmp_path / "run")), run.job()
    shadow = Shadow.model_validate({"with": "/lake/old"})
    beside.write_once("job.json", job.model_copy(update={"spec": job.spec.model_copy(update={"shadow": shadow})}))
    shutil.copytree(run.path("quality"), beside.path("quality"))
    assert beside.quality() is not None
    assert checked_lineage(beside).inputs == []


def _types(dataset: Any) -> dict[str, str]:
    return {field.name: field.type for field in dataset.facets["schema"].fields}


def _source(one: Any) -> tuple[str, str, str]:
    (how,) = one.transformations
    return one.field, how.type, how.subtype
