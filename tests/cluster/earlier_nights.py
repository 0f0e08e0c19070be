"""The nights before the one that is watched: ``python -m tests.cluster.earlier_nights ROOT SPEC``.

They are real runs, in one Spark session and without Airflow; the pages show them beside Airflow's own.
"""

import datetime as dt
import sys
from pathlib import Path

from skewless.errors import QualityError
from skewless.run.directory import RunDirectory
from skewless.spec.reading import load_spec
from skewless.spec.spec import Shadow
from skewless_spark.entries.pipeline import run_pipeline
from skewless_spark.prepare.prepare import prepare
from skewless_spark.session.session import build_session
from tests.cluster.words import write_words, zipf_words

#: What the job reads, below the root.
INPUT = "words"
#: For each night how often the commonest word comes, and the exponent of the others: the skew grows. One
#: night has more of a word than its expectation allows.
NIGHTS = ((24_000, 0.90), (28_000, 0.95), (70_000, 1.05), (32_000, 1.00), (36_000, 1.05))
#: Those whose result was not published, from 0.
FAILED = (2,)
#: Those whose result another job compares with that of the first of them, and the group of its runs.
COMPARED, BESIDE = (3, 4), "+shadow"


def main(root: str, spec_file: str) -> None:
    """Run them all; the last one is yesterday's."""
    spec = load_spec(Path(spec_file))
    today = dt.datetime.now(dt.UTC).date()
    first = today - dt.timedelta(days=len(NIGHTS) - COMPARED[0])
    other = f"{spec.output.path}/date={first}"
    compared = spec.model_copy(update={"shadow": Shadow.model_validate({"with": other})})
    spark = build_session("earlier nights", "local[2]")
    try:
        for number, (most, exponent) in enumerate(NIGHTS):
            date = today - dt.timedelta(days=len(NIGHTS) - number)
            write_words(Path(root, INPUT), zipf_words(most, exponent), files=8)
            for job, group in ((spec, ""), *([(compared, BESIDE)] if number in COMPARED else [])):
                run = RunDirectory(f"{root}/runs/{spec.name}{group}/night__{date}")
                prepare(run, job, date, root, spec_file)
                try:
                    run_pipeline(spark, run)
                except QualityError:
                    if number not in FAILED:
                        raise
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
