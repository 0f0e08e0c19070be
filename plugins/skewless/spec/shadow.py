"""A job that runs beside another one: its result is compared with that of the other job, and nothing is published."""

from __future__ import annotations

import posixpath
import re
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Field

from skewless.document import Frozen, unmet
from skewless.spec.input import TABLES, FileFormat, Input

#: Names the result of all rows of the run itself, computed anew.
FRESH = "fresh"
_QUERY = re.compile(r"\s*(SELECT|WITH|FROM|VALUES|TABLE)\b(?![./-])", re.IGNORECASE)


def is_query(other: str) -> bool:
    """Whether the text that names another result is a query.

    >>> is_query("select * from old.clicks"), is_query("/lake/old"), is_query("values.csv"), is_query("table/old")
    (True, False, False, False)
    """
    return _QUERY.match(other) is not None


def input_of(other: str) -> dict[str, Any]:
    """The format and the path of a text that names another result, as the section ``input`` of a spec has them.

    >>> input_of("iceberg:local.marts.clicks"), input_of("/lake/old/{date}.csv")["format"], input_of("old")["format"]
    ({'format': 'iceberg', 'path': 'local.marts.clicks'}, 'csv', 'parquet')
    """
    kind, sign, path = other.partition(":")
    if sign and (kind in (*get_args(FileFormat), *TABLES, "catalog") or re.match(r"[a-z]{2,}:[^/]", other)):
        return {"format": kind, "path": path}
    ending = posixpath.splitext(other.rstrip("/"))[1].removeprefix(".")
    return {"format": ending if ending in get_args(FileFormat) else "parquet", "path": other}


def _meaningful(other: str) -> str:
    if other != FRESH and not is_query(other):
        try:
            path = "" if re.search(r"\sFROM\s", other, re.IGNORECASE) else other.strip()
            Input.model_validate(input_of(path))
        except ValueError:
            required = "a path, FORMAT:PATH as input of a spec has them, or a query that begins with SELECT"
            raise unmet(required, repr(other)[:80]) from None
    return other.strip()


class Shadow(Frozen):
    """What a result is compared with instead of being published: the other job goes on as it was, and is not touched.

    It is reviewed code, as all of a spec: neither the trigger form nor the conf of a run can name another query.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    other: Annotated[str, AfterValidator(_meaningful)] = Field(
        alias="with", min_length=1, max_length=10_000,
        description="The other result: a path whose ending tells the format (Parquet if it does not), FORMAT:PATH, or "
        "a query, which may rename and cast columns; {date} and {hour} are the part that the run computes. Or fresh: "
        "the result of all its rows, computed anew.",
        examples=["parquet:/lake/old/{date}", "SELECT * FROM old.clicks WHERE day = DATE '{date}'"],
    )  # fmt: skip
    tolerance: float = Field(
        default=1e-9, ge=0, le=1,
        description="How far floats may be apart, relative to the larger one.", examples=[1e-6],
    )  # fmt: skip
    differences: Literal["warn", "fail"] = Field(
        default="warn", description="Whether a run that finds differences only says so, or fails.", examples=["fail"]
    )
