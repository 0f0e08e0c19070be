"""Parts to which files were added often: their kept states are merged with tonight's, and no row is read for that.

Each addition leaves files of its own beside the others. A merge of a window reads all of them, and a key has a state in
each. So when there are many, the next addition writes the states of the part anew, one for each key.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from skewless.documents.commit import CommittedFile
from skewless.documents.window import JobWindow, WindowPart
from skewless.standing.store import StatesStore
from skewless_spark.branches import merges_kept
from skewless_spark.states.columns import PART, JobColumns
from skewless_spark.states.committed_files import read_files

#: How many additions a part may have beside each other.
MOST_ADDITIONS = 8


def crowded_parts(window: JobWindow) -> dict[int, WindowPart]:
    """The parts that are added to tonight and have had many additions, by their positions."""
    reduced = ((at, window.parts[at]) for at in window.reduced)
    return {at: part for at, part in reduced if _additions(part.base_states) >= MOST_ADDITIONS}


def _additions(files: tuple[CommittedFile, ...]) -> int:
    """How many attempts have written some files: ``states/attempts/ID/...``."""
    return len({file.path.split("/")[2] for file in files})


def with_kept_states(columns: JobColumns, made: DataFrame, crowded: Mapping[int, WindowPart]) -> DataFrame:
    """Tonight's states, merged with the kept ones of some parts."""
    if not crowded:
        return made
    store, states = StatesStore(columns.job.window.store), made  # type: ignore[union-attr]
    for at, part in crowded.items():
        kept = read_files(made.sparkSession, store, part.base_states).withColumn(PART, F.lit(at))
        states = states.unionByName(kept.select(*made.columns))
    # In an order that is always the same, as where a window is merged.
    keyed = states.repartition(columns.job.spec.output.files, *columns.groups)
    in_order = keyed.sortWithinPartitions(*columns.groups, "rows")
    return in_order.groupBy(*columns.groups).agg(*merges_kept(states, columns, place=None))


def begun_anew(part: WindowPart) -> WindowPart:
    """A part whose kept states are among those that were written tonight."""
    return part.model_copy(update={"base_states": ()})
