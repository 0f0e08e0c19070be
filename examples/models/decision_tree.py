"""A decision tree over the lines of the standard library, grown by one job per level.

The demo tells what kind of statement a line begins with (``def``, ``import``, ``return``, ...) by its layout alone: how
far it is indented, how many words it has, how long they are, how many are capitalised. Each feature is a whole number
below ``GRID``, so that histograms of 64 bins are exact; see ``tree`` for why that matters.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from examples import data_root, demo_corpus, say
from examples.models.catalog_job import published, write_parts
from examples.models.tree import Floats, Grown, LeafHistograms, Tree, classify, grow, histograms_of, place_of
from skewless_spark.session.session import build_session

#: Features are clipped to values below this: fewer distinct values than the job's histograms have bins.
GRID = 60
#: As in the job's spec.
BINS = 64
#: The first words whose lines are samples.
KINDS = ("class", "def", "for", "from", "if", "import", "raise", "return")
#: Of this many files, one gives samples for training and one for testing.
SAMPLED_FILES = 6
#: Parquet files of a level's input.
PARTS = 16


class Samples(NamedTuple):
    """Samples by feature, each of shape ``(samples,)``, with their classes."""

    features: Mapping[str, Floats]
    classes: Sequence[str]

    def rows_at(self, tree: Tree, depth: int) -> Iterator[pa.Table]:
        """The long rows of a level: ``leaf``, ``feature``, ``class``, ``value``, of samples whose leaf is that deep."""
        leaves = place_of(tree, self.features, len(self.classes))
        here = np.flatnonzero((leaves >> depth) == 1)
        kinds = pa.array(self.classes, pa.string())
        for part in np.array_split(here, PARTS):
            yield pa.concat_tables(
                pa.table(
                    {
                        "leaf": pa.array(leaves[part], pa.int64()),
                        "feature": pa.array([name] * len(part), pa.string()),
                        "class": kinds.take(pa.array(part)),
                        "value": pa.array(values[part], pa.float64()),
                    }
                )
                for name, values in self.features.items()
            )


def train(spark: SparkSession, root: Path, samples: Samples, depth: int, overrides: Sequence[str] = ()) -> Grown:
    """Grow a tree of some depth by one run of ``catalog/decision_tree.yaml`` per level."""

    def level(tree: Tree, at: int) -> Mapping[int, LeafHistograms]:
        write_parts(root / "corpus" / f"tree_level_{at}", samples.rows_at(tree, at))
        paths = (f"input.path=corpus/tree_level_{at}", f"output.path=results/decision_tree/level_{at}")
        return histograms_of(published(spark, "decision_tree", root, (*paths, *overrides)))

    return grow(level, depth=depth, bins=BINS)


def line_samples(corpus: Path, remainder: int) -> Samples:
    """The samples of the files whose hash has this remainder: 0 for training, 1 for testing."""
    tables = [_lines(pq.read_table(path), remainder) for path in sorted(corpus.glob("*.parquet"))]
    table = pa.concat_tables(tables)
    features = {
        name: np.minimum(table.column(name).to_numpy(), GRID - 1).astype(np.float64)
        for name in ("indent", "words", "letters", "capitals")
    }
    return Samples(features, table.column("kind").to_pylist())


def accuracy(tree: Tree, samples: Samples) -> float:
    """The fraction of samples that a tree classifies correctly."""
    told = classify(tree, samples.features, len(samples.classes))
    return sum(a == b for a, b in zip(told, samples.classes, strict=True)) / max(1, len(told))


def _lines(tokens: pa.Table, remainder: int) -> pa.Table:
    """One row per line of interest: its class, and its features without the first word."""
    files = tokens.column("file").unique().to_pylist()
    chosen = [file for file in files if mmh3.hash(file, 7, signed=False) % SAMPLED_FILES == remainder]
    tokens = tokens.filter(pc.is_in(tokens.column("file"), pa.array(chosen, pa.string()))).combine_chunks()
    token = tokens.column("token")
    by_line = pa.table(
        {
            "file": tokens.column("file"),
            "line": tokens.column("line"),
            "kind": token,
            "indent": tokens.column("column"),
            "words": pc.cast(pc.is_valid(token), pa.int64()),
            "letters": pc.cast(pc.utf8_length(token), pa.int64()),
            "capitals": pc.cast(pc.match_substring_regex(token, "^[A-Z]"), pa.int64()),
        }
    )
    lines = by_line.group_by(["file", "line"], use_threads=False).aggregate(
        [("kind", "first"), ("indent", "first"), ("words", "sum"), ("letters", "sum"), ("capitals", "sum")]
    )
    kind = lines.column("kind_first")
    lines = pa.table(
        {
            "kind": kind,
            "indent": lines.column("indent_first"),
            "words": pc.subtract(lines.column("words_sum"), 1),
            "letters": pc.subtract(lines.column("letters_sum"), pc.cast(pc.utf8_length(kind), pa.int64())),
            "capitals": lines.column("capitals_sum"),
        }
    )
    return lines.filter(pc.is_in(kind, pa.array(KINDS)))


def _told(grown: Grown) -> str:
    """The tree, a line per node."""
    lines = []
    for number in _preorder(grown.tree, 1):
        node = grown.tree[number]
        size = sum(node.counts.values())
        rule = f"{node.split.feature} <= {node.split.threshold:.2f}" if node.split else f"-> {node.label}"
        lines.append(f"{'  ' * (number.bit_length() - 1)}{rule}  ({size:,} lines)")
    return "\n".join(lines)


def _preorder(tree: Tree, number: int) -> Iterator[int]:
    if number in tree:
        yield number
        yield from _preorder(tree, 2 * number)
        yield from _preorder(tree, 2 * number + 1)


def main() -> None:
    """``python -m examples.models.decision_tree [DEPTH]``: over the demo's corpus below ``$SKEWLESS_ROOT``."""
    depth = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    root = data_root().absolute()
    corpus = root / "corpus" / "python_tokens"
    demo_corpus.build(corpus)
    training, testing = line_samples(corpus, 0), line_samples(corpus, 1)
    spark = build_session("skewless decision_tree")
    try:
        grown = train(spark, root, training, depth)
    finally:
        spark.stop()
    majority = grown.tree[1].label
    alone = sum(one == majority for one in testing.classes) / max(1, len(testing.classes))
    exact = "as of one task, bit for bit" if grown.exact else "of compressed histograms"
    say(_told(grown))
    say(f"decision tree: {len(training.classes):,} lines, splits {exact}")
    right = accuracy(grown.tree, testing)
    say(f"held-out accuracy: {right:.1%} of {len(testing.classes):,} lines; always {majority!r}: {alone:.1%}")


if __name__ == "__main__":
    main()
