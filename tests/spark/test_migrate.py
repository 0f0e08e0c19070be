"""The code of docs/migrate.md runs: before and after give the same answers, and a comparison sees what differs."""

import re
import shlex
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.run.directory import RunDirectory
from skewless.spec.reading import load_spec, parse_spec
from skewless_spark.comparison import OtherSide, compare
from skewless_spark.entries.pipeline import run_pipeline
from skewless_spark.prepare.prepare import prepare
from tests.spark.scenario import DATE, Quiet, Told, finished, write_input

PAGE = (Path(__file__).parents[2] / "docs/migrate.md").read_text(encoding="utf-8")
#: What the page calls the old result of each of its specs.
OLD = {"clicks_by_page": "plain", "visits_by_page": "unsalted", "times_by_page": "grouped"}
ROWS = 12_000


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", PAGE, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(code) for _, code in found]


SPECS = {yaml.safe_load(text)["name"]: text for text in blocks("yaml")}


def clicks() -> pa.Table:
    """Clicks of which one page has a third, with missing pages and times, and no time twice."""
    rng = np.random.default_rng(11)
    pages = [f"/{number}" for number in np.minimum(rng.zipf(1.6, ROWS), 60)]
    return pa.table(
        {
            "site": pa.array(np.where(rng.random(ROWS) < 0.8, "ch", "de")),
            "page": pa.array(pages, mask=rng.random(ROWS) < 0.02),
            "visitor": pa.array(rng.integers(0, 900, ROWS)),
            "ms": pa.array(rng.permutation(ROWS), mask=rng.random(ROWS) < 0.05),
        }
    )


@pytest.fixture(scope="module")
def names(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the page's Python has named, after it was run."""
    root = tmp_path_factory.mktemp("migrate")
    write_input(root / "clicks", clicks(), files=10)
    found: dict[str, Any] = {"spark": spark, "root": str(root)}
    for block in blocks("python"):
        exec(block, found)
    return found


def run_of(spark: SparkSession, names: dict[str, Any], name: str, *overrides: str) -> RunDirectory:
    run = RunDirectory(f"{names['root']}/runs/{name}/{len(overrides)}")
    prepare(run, parse_spec(SPECS[name], overrides=overrides), DATE, names["root"])
    run_pipeline(spark, run, Quiet())
    return run


def differing(spark: SparkSession, run: RunDirectory, other: DataFrame) -> int:
    return compare(spark, run, OtherSide(other, dict(other.dtypes)), 1e-9, 0).differ


@pytest.mark.long
@pytest.mark.parametrize("name", OLD)
def test_before_and_after_give_the_same_answer(spark: SparkSession, names: dict[str, Any], name: str) -> None:
    old = names[OLD[name]].cache()
    aside = run_of(spark, names, name, "routing.policy=static", f"output.path=compare/{name}")
    run = run_of(spark, names, name)
    for one, path in ((aside, f"compare/{name}"), (run, f"marts/{name}")):
        published = finished(one).publication.path
        assert published == f"{names['root']}/{path}/date={DATE}"
        assert differing(spark, one, old) == 0
        assert spark.read.parquet(published).count() == old.count() > 20
    if name == "visits_by_page":
        plans = [run.plan(stage) for stage in range(run.committed_stages())]
        assert any(len({task for task, _ in shares}) > 1 for plan in plans for shares in plan.head.values())


@pytest.mark.long
def test_the_comparison_finds_what_differs_and_nothing_else(spark: SparkSession, names: dict[str, Any]) -> None:
    run, old = run_of(spark, names, "clicks_by_page", "output.path=seen"), names["plain"]
    hot = F.col("clicks") == old.agg(F.max("clicks")).first()[0]
    changed = {
        "a count too many": (old.withColumn("clicks", F.col("clicks") + hot.cast("int")), 1),
        "a key missing": (old.filter(~hot), 1),
        "a key too many": (old.unionByName(old.filter(hot).withColumn("page", F.lit("new"))), 1),
        "another rounding": (old.withColumn("ms", F.col("ms") * (1 + 1e-13)), 0),
        "another mean": (old.withColumn("ms", F.when(hot, F.col("ms") * 1.001).otherwise(F.col("ms"))), 1),
        "a null for a number": (old.withColumn("ms", F.when(~hot, F.col("ms"))), 1),
    }
    found = {what: differing(spark, run, other) for what, (other, _) in changed.items()}
    assert found == {what: number for what, (_, number) in changed.items()}


def test_every_spec_of_the_page_is_run_and_short() -> None:
    assert list(SPECS) == list(OLD)
    assert len(re.findall(r"^ *```(?:python|yaml)$", PAGE, re.MULTILINE)) == len(blocks("python") + blocks("yaml"))
    assert max(len(text.splitlines()) for text in SPECS.values()) <= 12


@pytest.mark.parametrize("program", [False, True], ids=["a file of SQL", "a PySpark program"])
def test_a_query_is_adopted_and_compared_with_the_old_result_by_the_lines_of_the_page(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command_here: Callable[..., Told],
    program: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    table = clicks().append_column("n", pa.array(range(ROWS)))
    write_input(tmp_path / "lake" / "clicks" / f"date={DATE}", table, files=3)
    (tmp_path / "lake" / "pages").mkdir()
    pages = pa.table({"page": [f"/{one}" for one in range(50)], "category": [f"c{one % 7}" for one in range(50)]})
    pq.write_table(pages, tmp_path / "lake" / "pages" / "pages.parquet")
    (statement,) = blocks("sql")
    for name, path in (("clicks", f"clicks/date={DATE}"), ("pages", "pages")):
        spark.read.parquet(f"{tmp_path}/lake/{path}").createOrReplaceTempView(name)
    old = spark.sql(statement.partition("\n")[2])
    old.write.parquet(f"{tmp_path}/lake/old/date={DATE}")
    text = f'def run(spark):\n    spark.sql("""\n{textwrap.indent(statement, "    ")}""")\n' if program else statement
    (tmp_path / ("job.py" if program else "job.sql")).write_text(text)
    lines = re.findall(r"^skewless .*$", PAGE.partition("## A first spec")[0], re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        here = line.replace("/lake/", f"{tmp_path}/lake/").replace("job.sql", "job.py" if program else "job.sql")
        told = command_here(*shlex.split(here)[1:])
        assert told.returncode == 0, told.stderr
        if "adopt" in line:
            assert "\nnext: skewless check specs/clicks_by_category.yaml --date " in told.stdout
            assert len(Path("specs/clicks_by_category.yaml").read_text().splitlines()) <= 12
    assert f"{old.count()} keys, 0 differ" in told.stdout
    assert not (tmp_path / "data" / "results").exists()
    spec = load_spec(Path("specs/clicks_by_category.yaml"))
    assert spec.query == statement.partition("\n")[2]


@pytest.mark.parametrize(
    ("name", "text", "words", "said"),
    [
        ("job.sql", "SELECT a, count(*) AS n FROM t GROUP BY a", [], "--beside"),
        ("job.sql", "INSERT INTO o SELECT a, count(*) AS n FROM t WHERE d = '{{ ds }}' GROUP BY a", [], "{{ ds }}"),
        ("job.sql", "SELECT a, count(*) AS n FROM t GROUP BY a LIMIT 3", [], "job.sql, field query: expected no LIMIT"),
        ("job.sql", "INSERT INTO o SELECT a, count(*) AS n FROM t GROUP BY a", ["--table", "u=/u"], "t, but got 'u'"),
        ("job.py", "spark.sql(f'SELECT {x}')", [], "write the query into a .sql file"),
        ("job.py", "spark.sql('a'); spark.sql('b')", [], "but got 2; write the query into a .sql file"),
        ("job.sql", "INSERT INTO o PARTITION (d='2026-11-28') SELECT max(b) m FROM t WHERE d='2026-11-28'", [], "day"),
        ("job.py", "def", [], "a Python program"),
    ],
)  # fmt: skip
def test_what_cannot_be_adopted_is_told_in_one_sentence_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_here: Callable[..., Told],
    name: str, text: str, words: list[str], said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    told = command_here("adopt", name, *words, "--into", "specs")
    assert (told.returncode, told.stderr.count("\n"), said in told.stderr) == (2, 1, True), told.stderr
    assert not Path("specs").exists()
