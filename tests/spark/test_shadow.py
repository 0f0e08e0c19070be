"""A job with ``shadow`` in its spec: each result is compared with that of another job, and nothing is published."""

import datetime as dt
import decimal
import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from skewless.errors import QualityError, RunDirectoryError, SpecError
from skewless.publication.records import record_of
from skewless.run.directory import RunDirectory
from skewless.spec.reading import parse_spec
from skewless_spark.comparison import compare_shadow
from skewless_spark.entries.pipeline import run_pipeline
from skewless_spark.prepare import freezing
from skewless_spark.prepare.earlier_runs import restating_spec
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import publish_now
from skewless_spark.sources.listing import list_input
from tests.tiers import mostly_long

DAY = dt.date(2026, 11, 20)
OUTPUTS: dict[str, dict[str, Any]] = {
    "out/date={date}": {"path": "out"},
    "delta:marts/clicks": {"path": "marts/clicks", "format": "delta"},
    "iceberg:local.marts.clicks": {"path": "local.marts.clicks", "format": "iceberg"},
}
AGGREGATES = {
    "n": "count",
    "cents": {"function": "sum", "column": "price"},
    "mean": {"function": "avg", "column": "ms"},
}


def rows(day: dt.date) -> pa.Table:
    count = 60 + day.day
    return pa.table(
        {
            "page": [f"p{n % 5}" for n in range(count)],
            "price": pa.array([decimal.Decimal(n) / 100 for n in range(count)], pa.decimal128(12, 2)),
            "ms": pa.array([n / 3 for n in range(count)], pa.float64()),
        }
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(3):
        day = DAY - dt.timedelta(days=number)
        (tmp_path / "in" / str(day)).mkdir(parents=True)
        pq.write_table(rows(day), tmp_path / "in" / str(day) / "rows.parquet")
    return tmp_path


def text(other: str | None = None, output: dict[str, Any] | None = None, **fields: Any) -> str:
    kept = {name: fields.pop(name) for name in ("tolerance", "differences") if name in fields}
    raw: dict[str, Any] = {"name": "clicks", "input": {"path": "in/{date}"}, "key": "page", "aggregates": AGGREGATES,
                           "output": output or {"path": "out"}, **fields}  # fmt: skip
    if other:
        raw["shadow"] = {"with": other, **kept}
    return yaml.safe_dump(raw, sort_keys=False)


def begun(root: Path, name: str, spec: str) -> RunDirectory:
    run = RunDirectory(str(root / "runs" / name))
    prepare(run, parse_spec(spec), DAY, str(root))
    return run


def done(spark: SparkSession, root: Path, name: str, spec: str) -> tuple[RunDirectory, Any]:
    run = begun(root, name, spec)
    run_pipeline(spark, run)
    return run, run.comparison()


def theirs(root: Path, **changed: Any) -> str:
    grouped = rows(DAY).group_by("page").aggregate([("page", "count"), ("price", "sum"), ("ms", "mean")]).to_pylist()
    found = []
    for one in grouped:
        line = {"page": one["page"], "n": one["page_count"], "cents": one["price_sum"], "mean": one["ms_mean"]}
        change = changed if one["page"] == "p3" else {}
        found.append(line | {name: line[name] + more for name, more in change.items()})
    cents = pa.array([one["cents"] for one in found]).cast(pa.decimal128(22, 2))
    table = pa.Table.from_pylist(found).set_column(2, "cents", cents)
    folder = root / "old" / str(DAY)
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "rows.parquet")
    return "parquet:old/{date}"


def contents(root: Path, *without: str) -> dict[str, str]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if not (name := str(path.relative_to(root))).startswith(without)
    }


@pytest.mark.parametrize("other", mostly_long(OUTPUTS, next(iter(OUTPUTS))))
def test_nothing_but_the_run_directory_is_touched(spark: SparkSession, root: Path, other: str) -> None:
    done(spark, root, "before", text(output=OUTPUTS[other]))
    before = contents(root)
    run, found = done(spark, root, "shadow", text(other, OUTPUTS[other]))
    assert contents(root, "runs/shadow/") == before
    assert (found.verdict, found.columns) == ("5 keys, 0 differ", {"n": 0, "cents": 0, "mean": 0})
    assert (record_of(run), run.job().turn) == (None, 0)
    saved = run.savings()
    assert saved is not None, "it is told as of a run that publishes"
    assert "every input split was aggregated where it was read" in saved.sentence
    with pytest.raises(RunDirectoryError, match="begun with a spec with shadow, which publishes nothing"):
        publish_now(run)
    assert contents(root, "runs/shadow/") == before


def test_differences_fail_a_run_that_says_so_and_are_kept(spark: SparkSession, root: Path) -> None:
    spec = text(theirs(root, n=1), differences="fail")
    for _ in range(2):
        with pytest.raises(QualityError, match=r"5 keys, 1 differ beside parquet:old/2026-11-20; nothing was publish"):
            done(spark, root, "shadow", spec)
    found = RunDirectory(str(root / "runs" / "shadow")).comparison()
    assert found is not None
    assert [(one.key, one.columns["n"].there) for one in found.examples] == [({"page": "'p3'"}, "17")]
    _, right = done(spark, root, "right", text(theirs(root), differences="fail"))
    assert right.verdict == "5 keys, 0 differ"


def test_of_two_attempts_the_first_counts_each_lists_the_other_side_once_and_nothing_lies_beside_the_output(
    spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, found = done(spark, root, "shadow", text(theirs(root, n=1)))
    assert {path.name for path in root.iterdir()} == {"in", "old", "runs"}, "as nothing was published before"
    theirs(root)
    seen, lists = list[str](), list_input

    def listed(given: Any, path: str, share: float, **asked: Any) -> Any:
        seen.append(path)
        return lists(given, path, share, **asked)

    monkeypatch.setattr(freezing, "list_input", listed)
    with monkeypatch.context() as patch:
        unseen = iter([None, None])
        patch.setattr(RunDirectory, "comparison", lambda _: next(unseen, found))  # as if both had begun at once
        assert compare_shadow(spark, run) == found
    assert run.comparison() == found
    assert seen == [str(root / "old" / str(DAY))]


def test_a_run_that_is_to_be_published_is_not_compared(spark: SparkSession, root: Path) -> None:
    with pytest.raises(RunDirectoryError, match="a spec without shadow, so its result is to be published"):
        compare_shadow(spark, begun(root, "run", text()))


def test_results_that_are_not_published_are_not_restated() -> None:
    with pytest.raises(SpecError, match="field shadow: its runs publish nothing; remove it to restate results"):
        restating_spec(parse_spec(text("old/{date}", window=3)), "spec")


def test_the_line_that_the_page_shows_is_good() -> None:
    page = (Path(__file__).parents[2] / "docs/migrate.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("shadow: ")]
    shown = parse_spec(text() + line).shadow
    assert shown is not None
    assert shown.other == "parquet:/lake/old/clicks_by_page/date={date}"
