"""``python -m skewless_spark.mapping.analysis``: the process that ``analyzed_apart`` starts; it talks JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from skewless.errors import SpecError
from skewless.spec.calls import Map
from skewless_spark.mapping import select_list
from skewless_spark.session.session import build_session


def _answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    spark = build_session("skewless select list", "local[1]")
    try:
        found = select_list.types_of(spark, Map.model_validate(asked["map"]), asked["types"], asked["at"])
    except SpecError as err:
        return {"refused": [err.where, err.required, err.came, err.hint]}
    finally:
        spark.stop()
    selected = [one.model_dump(mode="json") for one in found.selected]
    return {"types": found.types, "reads": found.reads, "selected": selected}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_answer(json.load(sys.stdin))) + "\n")
