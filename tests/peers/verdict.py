"""How a file or a table is read in each way, beside what others read in it."""

import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from skewless.errors import SkewlessError
from skewless_spark.aggregates.keys import KEY_TYPES
from skewless_spark.session.spark_errors import sentence_for
from tests.differential.rows import first_difference, rows_of
from tests.differential.ways import WAYS, job_of, types_of
from tests.peers.cases import Case

#: What came of it, in this order: the rows of the oracle; other rows; a refusal in a sentence; an error that is no
#: sentence of ours; rows that no oracle could read.
EQUAL, DIFFERENT, REFUSED, TRACEBACK, ALONE = "equal", "different", "refused", "traceback", "alone"


class Verdict(NamedTuple):
    """What came of one way.

    Attributes:
        told: the sentence of a refusal, the first row that differs, or the last lines of a traceback.
    """

    case: str
    way: str
    kind: str
    told: str = ""


def verdicts(spark: SparkSession, case: Case) -> Iterator[Verdict]:
    """The verdict of each way on a case; the oracle is asked once."""
    with tempfile.TemporaryDirectory() as root:
        wanted, why = _wanted(spark, case)
        for way, (read, cut) in WAYS.items():
            try:
                types = types_of(case.given, Path(root))
                if not any(kind.split("(")[0] in KEY_TYPES for kind in types.values()):
                    yield Verdict(case.name, way, REFUSED, "no column has a type that a key may have")
                    return
                job = job_of(case.given, types, Path(root), cut=cut)
                if cut and not any(unit.span for unit in job.units):
                    continue  # the same as whole
                table = read(spark, job, list(types))
            except Exception as err:  # noqa: BLE001  # a verdict on whatever comes
                kind, told = _refusal(err)
                others = "" if wanted is None else f" (others read {wanted.num_rows:,} rows)"
                yield Verdict(case.name, way, kind, f"{told}{others}")
                continue
            yield Verdict(case.name, way, *_compared(table, wanted, list(types), why))


def _wanted(spark: SparkSession, case: Case) -> tuple[pa.Table | None, str]:
    reasons = []
    for oracle in case.oracles:
        try:
            return oracle(spark), ""
        except Exception as err:  # noqa: BLE001  # the next one may read it
            reasons.append(f"{type(err).__name__}: {sentence_for(err)}"[:160])
    return None, "; ".join(reasons)


def _refusal(err: Exception) -> tuple[str, str]:
    ours = isinstance(err, SkewlessError) or "skewless.errors." in str(err)
    if ours:
        return REFUSED, sentence_for(err)
    said = sentence_for(err)
    # Sentences of ours have this form; they are also made of errors that Spark raised.
    if ": expected " in said and not said.startswith(type(err).__name__):
        return REFUSED, said
    return TRACEBACK, f"{said} | {' '.join(traceback.format_exception(err)[-2:])}"[:600]


def _compared(found: pa.Table, wanted: pa.Table | None, names: Sequence[str], why: str) -> tuple[str, str]:
    if wanted is None:
        return ALONE, f"{found.num_rows:,} rows; others: {why}"
    try:
        ours, theirs = rows_of(found, names), rows_of(wanted, names)
    except (pa.ArrowException, KeyError) as err:
        return DIFFERENT, f"{type(err).__name__}: {err}"[:300]
    return (EQUAL, "") if ours == theirs else (DIFFERENT, first_difference(ours, theirs, names))


def as_text(verdict: Verdict) -> str:
    return f"{verdict.kind:<10} {verdict.case} [{verdict.way}]{f': {verdict.told}' if verdict.told else ''}"
