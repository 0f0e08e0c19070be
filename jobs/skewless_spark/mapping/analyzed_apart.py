"""Analyzes a select list in a local Spark started for it alone: a Spark Connect client has no JVM.

That Spark knows Spark's built-in functions, and no functions of a catalog.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

from skewless.documents.job import Selected
from skewless.errors import SpecError
from skewless.spec.calls import Map
from skewless_spark.mapping.mapped_columns import Mapped
from skewless_spark.session.connect import CLIENT_ONLY

_ANALYSIS = "skewless_spark.mapping.analysis"


def types_of(given: Map, types: Mapping[str, str], at: str) -> Mapped:
    """The mapped columns of a select list; see ``mapping.map_types``."""
    asked = {"map": given.model_dump(mode="json"), "types": dict(types), "at": at}
    done = subprocess.run(  # noqa: S603  # our own module
        [sys.executable, "-P", "-m", _ANALYSIS],
        input=json.dumps(asked),
        env={name: value for name, value in os.environ.items() if name not in CLIENT_ONLY},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    if "refused" in answer:
        raise SpecError(*answer["refused"])
    selected = tuple(Selected.model_validate(one) for one in answer["selected"])
    return Mapped(answer["types"], tuple(answer["reads"]), selected)
