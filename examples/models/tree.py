"""Growing a decision tree from histograms, level by level.

After Y. Ben-Haim and E. Tom-Tov, "A Streaming Parallel Decision Tree Algorithm", JMLR 11 (2010), section 3: nobody
holds the samples; a histogram per (leaf, feature, class) is enough to choose each leaf's split. Candidates are where
Uniform cuts the histogram of all classes, and Sum says how many samples of each class would go left.

**What is exact.** A histogram that has fewer points than ``bins`` has merged none: it is the count of each different
value, whatever order and grouping its rows and states came in. Splits made of such histograms alone are therefore
those of a run with one task, bit for bit (``Grown.exact`` says whether all were). Where a histogram was compressed,
its points depend on which states met first, and so may a threshold: features of at most ``bins - 1`` different
values (a grid, as gradient boosting libraries put features on) are the way to have both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Smaller gains are rounding errors.
LEAST_GAIN = 1e-9


class Points(NamedTuple):
    """One histogram: ``x`` ascending, ``y`` values about each, both of shape ``(points,)``."""

    x: Floats
    y: Ints


#: The histograms of one leaf: for each feature, one per class.
LeafHistograms = Mapping[str, Mapping[str, Points]]


class Split(NamedTuple):
    """Samples whose feature is at most the threshold go left."""

    feature: str
    threshold: float
    gain: float


@dataclass(frozen=True)
class Node:
    """A node of the tree: a split with two nodes below it, or a leaf.

    Attributes:
        number: the root is 1, those below node n are 2n and 2n + 1.
        counts: samples of each class that came here.
        split: None for a leaf.
    """

    number: int
    counts: Mapping[str, int]
    split: Split | None = None

    @property
    def label(self) -> str:
        """The class with most samples; of several, the first by name."""
        return min(self.counts, key=lambda name: (-self.counts[name], name))


Tree = Mapping[int, Node]


class Grown(NamedTuple):
    """A tree, and whether all splits came from exact histograms, whose bins were never merged."""

    tree: Tree
    exact: bool


def histograms_of(result: pa.Table) -> dict[int, dict[str, dict[str, Points]]]:
    """The published result of a level by leaf, feature and class."""
    leaves: dict[int, dict[str, dict[str, Points]]] = {}
    for row in result.select(["leaf", "feature", "class", "histogram"]).to_pylist():
        points = Points(
            np.array([point["x"] for point in row["histogram"]], np.float64),
            np.array([point["y"] for point in row["histogram"]], np.int64),
        )
        leaves.setdefault(row["leaf"], {}).setdefault(row["feature"], {})[row["class"]] = points
    return leaves


def grow(level: Callable[[Tree, int], Mapping[int, LeafHistograms]], *, depth: int, bins: int) -> Grown:
    """Grow a tree.

    Args:
        level: the histograms of the leaves at a depth, from a pass over all samples, which it sends down the tree
            so far. Every sample has every feature.
        depth: splits from the root to a leaf, at most.
        bins: of the histograms.
    """
    tree: dict[int, Node] = {}
    exact = True
    for at in range(depth + 1):
        for number, features in sorted(level(tree, at).items()):
            counts = _class_counts(features)
            node = Node(number, counts)
            if at < depth and sum(counts.values()) > 1 and len(counts) > 1:
                exact &= all(len(points.x) < bins for one in features.values() for points in one.values())
                node = Node(number, counts, best_split(features, bins))
            tree[number] = node
        if not any(node.split for number, node in tree.items() if number.bit_length() == at + 1):
            break
    return Grown(tree, exact)


def best_split(features: LeafHistograms, bins: int) -> Split | None:
    """The split with the largest gain in Gini impurity, of several the first by name; None if no split gains."""
    best: Split | None = None
    for feature in sorted(features):
        classes = [features[feature][name] for name in sorted(features[feature])]
        together = _together(classes)
        cuts = np.unique(uniform(together.x, together.y, bins))
        cuts = cuts[np.isfinite(cuts)]
        if not len(cuts):
            continue
        left = np.stack([cumulative_count(points.x, points.y, cuts) for points in classes])
        gains = _gains(left, np.array([points.y.sum() for points in classes], np.float64))
        place = int(np.argmax(gains))
        if gains[place] > (best.gain if best else LEAST_GAIN):
            best = Split(feature, float(cuts[place]), float(gains[place]))
    return best


def place_of(tree: Tree, samples: Mapping[str, Floats], count: int) -> Ints:
    """The leaf that each sample reaches, shape ``(count,)`` as each feature's values; the root in an empty tree."""
    places = np.ones(count, np.int64)
    for number in sorted(tree):
        split = tree[number].split
        if split:
            here = np.flatnonzero(places == number)
            places[here] = 2 * number + (samples[split.feature][here] > split.threshold)
    return places


def classify(tree: Tree, samples: Mapping[str, Floats], count: int) -> list[str]:
    """The class of each sample."""
    labels = {number: node.label for number, node in tree.items()}
    # A leaf that no training sample came to says what the node above it says.
    return [labels.get(place) or labels[place // 2] for place in place_of(tree, samples, count).tolist()]


def _class_counts(features: LeafHistograms) -> dict[str, int]:
    one = features[min(features)]
    return {name: int(one[name].y.sum()) for name in sorted(one)}


def _together(histograms: list[Points]) -> Points:
    """The points of several histograms; points of equal ``x`` are added up."""
    x, inverse = np.unique(np.concatenate([points.x for points in histograms]), return_inverse=True)
    y = np.zeros(len(x), np.int64)
    np.add.at(y, inverse, np.concatenate([points.y for points in histograms]))
    return Points(x, y)


def _gains(left: Floats, totals: Floats) -> Floats:
    """The impurity before minus the impurity after each cut, shape ``(cuts,)``.

    Of each class so many samples go ``left``, shape ``(classes, cuts)``, of so many in total, shape ``(classes,)``.
    """
    right = totals[:, None] - left
    all_left, all_right = left.sum(axis=0), right.sum(axis=0)
    after = (all_left * _gini(left) + all_right * _gini(right)) / totals.sum()
    gains: Floats = _gini(totals[:, None]) - after
    return np.where((all_left > 0) & (all_right > 0), gains, 0.0)


def _gini(counts: Floats) -> Floats:
    """The probability that two random samples are of different classes, shape ``(cuts,)``."""
    shares = counts / np.maximum(counts.sum(axis=0), 1e-300)
    return np.asarray(1.0 - (shares**2).sum(axis=0))


def cumulative_count(x: Floats, y: Ints, at: Floats) -> Floats:
    """How many values of a histogram are at most ``at``, about (procedure 3, Sum).

    Half of a point's values lie below it, half above, spread to its neighbours' places along a trapezoid. The count is
    0 below the first point, and all from the last one on; infinite points count as a whole.
    """
    total, below = float(y.sum()), float(y[x == -np.inf].sum())
    finite = np.isfinite(x)
    p, m = x[finite], y[finite].astype(np.float64)
    if len(p) == 0:
        return np.where(at == np.inf, total, below)
    i = np.clip(np.searchsorted(p, at, side="right") - 1, 0, max(len(p) - 2, 0))
    after = np.minimum(i + 1, len(p) - 1)
    width = np.where(after > i, p[after] / 2 - p[i] / 2, 1.0)
    share = np.clip((np.clip(at, p[0], p[-1]) / 2 - p[i] / 2) / width, 0.0, 1.0)
    inside = below + np.cumsum(m)[i] - m[i] / 2 + share * (m[i] + (m[i] + (m[after] - m[i]) * share)) / 2
    counted = np.select([at < p[0], at >= p[-1]], [below, below + m.sum()], inside)
    return np.where(at == np.inf, total, counted)


def uniform(x: Floats, y: Ints, parts: int) -> Floats:
    """Where to cut so that every part has about the same number of values (procedure 4, Uniform).

    The cuts ascend, shape ``(parts - 1,)``, and are infinite where a cut falls among infinite values.
    """
    wanted = np.arange(1, parts) * (float(y.sum()) / parts)
    below, above = float(y[x == -np.inf].sum()), float(y[x == np.inf].sum())
    finite = np.isfinite(x)
    p, m = x[finite], y[finite].astype(np.float64)
    if len(p) == 0:
        return np.where(wanted <= below, -np.inf, np.inf)
    reached = below + np.cumsum(m) - m / 2  # Sum at each point
    i = np.clip(np.searchsorted(reached, wanted, side="right") - 1, 0, max(len(p) - 2, 0))
    after = np.minimum(i + 1, len(p) - 1)
    rest = np.clip(wanted - reached[i], 0.0, (m[i] + m[after]) / 2)
    # The paper's root (-b + sqrt(b^2 - 4ac)) / 2a, written so that equal counts (a = 0) are no exception.
    share = np.clip(2 * rest / (m[i] + np.sqrt(np.maximum(m[i] ** 2 + 2 * (m[after] - m[i]) * rest, 0.0))), 0.0, 1.0)
    cuts = np.maximum.accumulate(np.clip(p[i] * (1 - share) + p[after] * share, p[i], p[after]))
    return np.select([wanted < below, wanted > y.sum() - above], [-np.inf, np.inf], cuts)
