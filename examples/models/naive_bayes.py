"""A naive Bayes classifier made from the published counts of a job.

Multinomial, with Laplace smoothing: C. D. Manning, P. Raghavan and H. Schuetze, "Introduction to Information
Retrieval" (2008), section 13.2. The demo predicts the directory of a standard library file
from its tokens. The counts of hot tokens are computed in several tasks and merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from examples import data_root, demo_corpus, say
from examples.models.catalog_job import published, write_parts
from skewless_spark.session.session import build_session

#: One in this many files is held out for testing.
HELD_OUT = 5
#: The class of files that are in no directory.
TOP = "(top)"


def class_of(file: str) -> str:
    """The top directory of a path relative to the library."""
    directory, slash, _ = file.partition("/")
    return directory if slash else TOP


def held_out(file: str) -> bool:
    """Whether a file is for testing. A hash of its name decides, so that the choice is always the same."""
    return mmh3.hash(file, 42, signed=False) % HELD_OUT == 0


class Evaluation(NamedTuple):
    """The accuracy of a classifier on so many files that it has not seen, and of always the class with most files."""

    files: int
    accuracy: float
    majority: str
    majority_accuracy: float


@dataclass(frozen=True)
class NaiveBayes:
    """A classifier.

    Attributes:
        classes: their names, shape ``(classes,)``.
        vocabulary: the place of each token.
        log_prior: shape ``(classes,)``.
        log_likelihood: shape ``(tokens, classes)``.
    """

    classes: tuple[str, ...]
    vocabulary: Mapping[str, int]
    log_prior: npt.NDArray[np.float64]
    log_likelihood: npt.NDArray[np.float64]

    @classmethod
    def of_counts(cls, counts: pa.Table, files: Mapping[str, int]) -> NaiveBayes:
        """A classifier from the result of ``catalog/naive_bayes.yaml``.

        Args:
            counts: ``token``, and ``classes`` as ``value_counts`` gives them.
            files: training files of each class: the prior.
        """
        counts = counts.filter(pc.is_valid(counts.column("token"))).combine_chunks()
        lists = counts.column("classes").combine_chunks()
        value, count = lists.flatten().flatten()
        classes = sorted(set(files) | set(value.to_pylist()))
        seen = np.zeros((counts.num_rows, len(classes)))
        token = pc.list_parent_indices(lists).to_numpy()
        seen[token, pc.index_in(value, pa.array(classes)).to_numpy()] = count.to_numpy()
        seen += 1  # every token is taken to have come once more in every class than was seen
        prior = np.array([files.get(name, 0) for name in classes], np.float64)
        with np.errstate(divide="ignore"):  # a class without files is never the answer
            log_prior = np.log(prior / prior.sum())
        vocabulary = {text: place for place, text in enumerate(counts.column("token").to_pylist())}
        return cls(tuple(classes), vocabulary, log_prior, np.log(seen / seen.sum(axis=0)))

    def classify(self, tokens: Mapping[str, int]) -> str:
        """The most probable class of a file with these tokens; unknown tokens are ignored."""
        known = [(self.vocabulary[token], count) for token, count in tokens.items() if token in self.vocabulary]
        places = np.array([place for place, _ in known], np.int64)
        times = np.array([count for _, count in known], np.float64)
        return self.classes[int(np.argmax(self.log_prior + times @ self.log_likelihood[places]))]

    def evaluate(self, corpus: Path, files: Mapping[str, int]) -> Evaluation:
        """Classify the held-out files of a corpus."""
        majority = max(files, key=lambda name: (files[name], name))
        right = majority_right = total = 0
        for file, tokens in _files(corpus):
            if held_out(file):
                total += 1
                right += self.classify(tokens) == class_of(file)
                majority_right += majority == class_of(file)
        return Evaluation(total, right / max(1, total), majority, majority_right / max(1, total))


def write_labelled(corpus: Path, folder: Path) -> Counter[str]:
    """Write the training rows of a corpus: ``token`` and ``class``, a Parquet file for each of the corpus.

    Returns:
        Training files of each class.
    """
    files: Counter[str] = Counter()

    def parts() -> Iterator[pa.Table]:
        for path in sorted(corpus.glob("*.parquet")):
            table = pq.read_table(path, columns=["token", "file"])
            names = table.column("file").combine_chunks().dictionary_encode()
            trained = [not held_out(name) for name in names.dictionary.to_pylist()]
            classes = [class_of(name) for name in names.dictionary.to_pylist()]
            files.update(name for name, kept in zip(classes, trained, strict=True) if kept)
            label = pa.array(classes, pa.string()).take(names.indices)
            labelled = pa.table({"token": table.column("token"), "class": label})
            yield labelled.filter(pa.array(trained, pa.bool_()).take(names.indices))

    write_parts(folder, parts())
    return files


def train(spark: SparkSession, root: Path) -> tuple[NaiveBayes, Counter[str]]:
    """Prepare the labelled tokens, run the job, and make a classifier from its result."""
    files = write_labelled(root / "corpus" / "python_tokens", root / "corpus" / "labelled_tokens")
    return NaiveBayes.of_counts(published(spark, "naive_bayes", root), files), files


def _files(corpus: Path) -> Iterator[tuple[str, Counter[str]]]:
    """Each file of the corpus with its token counts; a file's rows are all in one part."""
    for path in sorted(corpus.glob("*.parquet")):
        table = pq.read_table(path, columns=["token", "file"])
        for file in table.column("file").unique().to_pylist():
            yield file, Counter(table.filter(pc.equal(table.column("file"), file)).column("token").to_pylist())


def main() -> None:
    """``python -m examples.models.naive_bayes``: over the demo's corpus below ``$SKEWLESS_ROOT``."""
    root = data_root().absolute()
    corpus = root / "corpus" / "python_tokens"
    demo_corpus.build(corpus)
    spark = build_session("skewless naive_bayes")
    try:
        classifier, files = train(spark, root)
    finally:
        spark.stop()
    told = classifier.evaluate(corpus, files)
    tokens, classes = len(classifier.vocabulary), len(classifier.classes)
    say(f"naive Bayes: {tokens:,} tokens, {classes} classes, {sum(files.values()):,} training files")
    alone = f"always {told.majority!r}: {told.majority_accuracy:.1%}"
    say(f"held-out accuracy: {told.accuracy:.1%} of {told.files} files; {alone}")


if __name__ == "__main__":
    main()
