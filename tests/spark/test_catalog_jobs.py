"""Jobs of the catalog over the demo's corpus, held to one thread that reads it from first file to last.

Over four of its packages; over all of it, which takes minutes, with ``SKEWLESS_WHOLE_CORPUS=1``.
"""

import os
import shutil
import statistics
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from examples.demo_corpus import SOURCES, source_files, tokens_of
from skewless.run.directory import RunDirectory
from skewless.spec.reading import parse_spec
from skewless.spec.spec import JobSpec
from tests.spark.scenario import reduce_job, result_of
from tests.spark.test_forwarding import moved_keys

pytestmark = pytest.mark.long

CATALOG = Path(__file__).parents[2] / "jobs" / "catalog"
PACKAGES = ("email", "http", "json", "unittest")
WHOLE = os.environ.get("SKEWLESS_WHOLE_CORPUS") == "1"


def corpus_files() -> dict[str, Path]:
    """The sources that are read, by the path that they have below the corpus."""
    found = source_files()
    library = Path(os.path.commonpath(found))
    return {str(path.relative_to(library)): path for path in found if WHOLE or path.parent.name in PACKAGES}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("corpus")
    for name, path in corpus_files().items():
        target = root / "corpus" / SOURCES / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return root


def catalog_spec(name: str, **changes: Any) -> JobSpec:
    raw = yaml.safe_load((CATALOG / f"{name}.yaml").read_text())
    return parse_spec(yaml.safe_dump({**raw, **changes}, sort_keys=False))


def rows_in_order(run: RunDirectory) -> list[dict[str, Any]]:
    """The tokens as one thread reads them: files as the run lists them, each from its first line."""
    files, rows = corpus_files(), list[dict[str, Any]]()
    for name in dict.fromkeys(unit.path.partition(f"/{SOURCES}/")[2] for unit in run.job().units):
        for _, line in groupby(tokens_of(files[name]).to_pylist(), lambda row: row["line"]):
            rows += [{**row, "file": name, "place": place} for place, row in enumerate(line)]
    return rows


def stretches(lines: list[int], gap: int = 20) -> list[dict[str, int]]:
    found: list[dict[str, int]] = []
    for line in lines:
        if not found or not found[-1]["end"] <= line <= found[-1]["end"] + gap:
            found.append({"start": line, "end": line, "rows": 1})
        else:
            found[-1]["end"], found[-1]["rows"] = line, found[-1]["rows"] + 1
    return found


def test_what_depends_on_order_is_what_one_thread_says(spark: SparkSession, corpus: Path) -> None:
    routing = {"policy": "adaptive", "reducers": 3, "slots": 3, "waves": [1, 2, 4], "stage_overhead": 0}
    run, reports = reduce_job(spark, catalog_spec("token_order", routing=routing), corpus / "run")
    moved = moved_keys(run, reports)
    assert sum(count > 0 for count in moved) >= 2, "re-plans that moved keys"
    seen: dict[str, list[dict[str, Any]]] = {}
    for row in rows_in_order(run):
        seen.setdefault(row["token"], []).append(row)
    result = {row.pop("token"): row for row in result_of(run).to_pylist()}
    assert result.keys() == seen.keys()
    for token, rows in seen.items():
        came = result[token]
        assert came["occurrences"] == len(rows)
        assert came["place"] == statistics.median(row["place"] for row in rows), token
        visits = [{name: visit[name] for name in ("start", "end", "rows")} for visit in came["stretches"]]
        assert visits == stretches([row["line"] for row in rows]), token


def test_heavy_hitters_of_the_corpus_are_within_their_stated_error(spark: SparkSession, corpus: Path) -> None:
    routing = {"policy": "adaptive", "reducers": 3, "stage_overhead": 0}
    run, _ = reduce_job(spark, catalog_spec("heavy_hitters", routing=routing), corpus / "hitters")
    exact = Counter((row["token"], row["file"]) for row in rows_in_order(run))
    result = result_of(run).to_pylist()
    assert sum(row["occurrences"] for row in result) == sum(exact.values())
    for row in result:
        for one in row["files"]:
            count = exact[row["token"], one["item"]]
            assert abs(one["count"] - count) <= 2.7 / 64 * row["occurrences"], (row["token"], one)
