"""The models that are made of what Python aggregates publish."""

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from examples.models.catalog_job import published
from examples.models.decision_tree import GRID, Samples, accuracy, train
from examples.models.naive_bayes import NaiveBayes, class_of, held_out, write_labelled


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


def xor_samples(count: int = 6000) -> Samples:
    rng = np.random.default_rng(9)
    left, right, noise = (rng.integers(0, GRID, count).astype(np.float64) for _ in range(3))
    odd = (left > 20) & ((right > 40) | (noise > 55))
    return Samples({"left": left, "noise": noise, "right": right}, np.where(odd, "odd", "even").tolist())


@pytest.mark.long
def test_the_tree_s_splits_equal_those_of_one_task(spark: SparkSession, tmp_path: Path) -> None:
    samples = xor_samples()
    many = train(spark, tmp_path / "many", samples, 2, ("routing.stage_overhead=0", "routing.reducers=3"))
    one = train(
        spark, tmp_path / "one", samples, 2,
        ("routing.policy=static", "routing.reducers=1", "routing.waves=[1]", "output.files=1"),
    )  # fmt: skip
    assert many.exact
    assert many == one
    assert many.tree[1].split is not None
    assert {node.split.feature for node in many.tree.values() if node.split} >= {"left", "right"}
    assert accuracy(many.tree, samples) > 0.9
