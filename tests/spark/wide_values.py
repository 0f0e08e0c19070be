"""``python -m tests.spark.wide_values SPEC RUN``: a job over wide values, and digests of what came of it, as JSON.

A process of its own, since a JVM that such values kill is also that of the next tests.
"""

import hashlib
import json
import sys
from pathlib import Path

from skewless.spec.reading import parse_spec
from skewless_spark.session.session import build_session
from tests.spark.scenario import reduce_job, result_of


def digest(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


if __name__ == "__main__":
    spark = build_session("wide", "local[2]")
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    run, _ = reduce_job(spark, parse_spec(sys.argv[1]), Path(sys.argv[2]))
    rows = [{name: digest(one) if isinstance(one, str) and len(one) > 99 else one for name, one in row.items()}
            for row in result_of(run).to_pylist()]  # fmt: skip
    sys.stdout.write(json.dumps(rows, default=str) + "\n")
    spark.stop()
