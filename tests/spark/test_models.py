"""The models that are made of what Python aggregates publish."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from examples.models.catalog_job import published
from examples.models.decision_tree import BINS
from examples.models.naive_bayes import NaiveBayes, class_of, held_out, write_labelled
from examples.models.tree import Points, grow


def small_corpus(folder: Path) -> None:
    """Files of three directories, each with words of its own among common ones."""
    rng = np.random.default_rng(4)
    folder.mkdir(parents=True)
    for part in range(6):
        tokens, files = [], []
        for number in range(15):
            directory = ("email", "json", "")[number % 3]
            own = {"email": "header", "json": "encode", "": "main"}[directory]
            name = f"{directory}/f{part}_{number}.py".lstrip("/")
            words = rng.choice(["self", "def", own, f"{own}_{number % 4}"], 60, p=[0.5, 0.3, 0.15, 0.05]).tolist()
            tokens += words
            files += [name] * len(words)
        pq.write_table(pa.table({"token": tokens, "file": files}), folder / f"part-{part}.parquet")


@pytest.mark.long
def test_naive_bayes_counts_are_those_of_one_process_and_tell_held_out_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus" / "python_tokens"
    small_corpus(corpus)
    files = write_labelled(corpus, tmp_path / "corpus" / "labelled_tokens")
    counts = published(spark, "naive_bayes", tmp_path, ("routing.stage_overhead=0",))
    single: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in pq.read_table(corpus).to_pylist():
        if not held_out(row["file"]):
            single[row["token"]][class_of(row["file"])] += 1
    told = {row["token"]: {one["value"]: one["count"] for one in row["classes"]} for row in counts.to_pylist()}
    assert told == single
    classifier = NaiveBayes.of_counts(counts, files)
    evaluation = classifier.evaluate(corpus, files)
    assert evaluation.files > 5
    assert evaluation.accuracy == 1.0 > evaluation.majority_accuracy
    assert class_of("abc.py") == "(top)"


def test_a_leaf_of_one_class_is_not_split() -> None:
    only = Points(np.array([1.0, 2.0]), np.array([3, 4]))
    grown = grow(lambda _, at: {1: {"x": {"a": only}}} if at == 0 else {}, depth=3, bins=BINS)
    assert grown.exact
    assert grown.tree[1].split is None
    assert dict(grown.tree[1].counts) == {"a": 7}
