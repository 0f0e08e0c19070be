"""Random specs over an input: what is mapped, which key, which engine, which routing, which output."""

import datetime as dt
import random
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from skewless.spec.routing import Policy
from tests.fuzz.values import KINDS, NUMBERS, WHOLE, Kind, Row

POLICIES = (
    "static", "halving", "doubling", "virtual_tasks", "partial_key", "d_choices", "w_choices", "bounded_load",
    "adaptive",
)  # fmt: skip
ENGINES = ("auto", "combine", "bypass", "staged", "staged")


class MapStep(NamedTuple):
    section: dict[str, Any]
    columns: dict[str, Kind]
    rows_of: Callable[[Row], list[Row]]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


_Computed = dict[str, tuple[str, Kind, Callable[[Row], Any]]]


def _of_column(chance: random.Random, name: str, kind: Kind, at: str) -> _Computed:
    """Itself, and what is computed of it; names of the latter begin as given."""
    quoted, made = _quoted(name), dict[str, tuple[str, Kind, Callable[[Row], Any]]]()
    if chance.random() < 0.8:
        made[name] = (quoted, kind, lambda row: row[name])
    if kind.name in WHOLE and kind.name != "huge" and chance.random() < 0.6:
        rest = f"pmod(CAST({quoted} AS BIGINT), 7)"
        made[f"{at}m"] = (rest, KINDS["bigint"], lambda row: None if row[name] is None else row[name] % 7)
    if kind.spark == "string" and chance.random() < 0.6:
        made[f"{at}l"] = (f"length({quoted})", KINDS["int"], lambda row: None if row[name] is None else len(row[name]))
        sure = f"coalesce({quoted}, 'it\\'s {{}} \"none\"')"
        made[f"{at}s"] = (sure, kind, lambda row: 'it\'s {} "none"' if row[name] is None else row[name])
    if chance.random() < 0.15:
        made[f"{at}n"] = (f"{quoted} IS NULL", KINDS["boolean"], lambda row: row[name] is None)
    return made


def draw_map(chance: random.Random, columns: Mapping[str, Kind]) -> MapStep | None:
    """A select list over the columns, some of them computed; None for no map step."""
    if list(columns) == ["value"]:
        return _of_lines(chance)
    if chance.random() < 0.7:
        return None
    made: _Computed = {}
    for number, (name, kind) in enumerate(columns.items()):
        made |= _of_column(chance, name, kind, f"m{number}")
    if not made:
        return None
    whole = [name for name, kind in columns.items() if kind.name in {"tinyint", "smallint", "int", "bigint"}]
    many = chance.choice(whole) if whole and chance.random() < 0.3 else None
    select = [text if text == _quoted(name) else f"{text} AS {name}" for name, (text, _, _) in made.items()]
    kinds = {name: kind for name, (_, kind, _) in made.items()}
    outer = chance.random() < 0.3
    if many:
        function = "explode_outer" if outer else "explode"
        select.insert(0, f"{function}(sequence(0, CAST(pmod({_quoted(many)}, 3) AS INT))) AS x")
        kinds["x"] = KINDS["int"]
    where, keeps = _where(chance, columns) if chance.random() < 0.5 else (None, lambda _: True)

    def rows_of(row: Row) -> list[Row]:
        if not keeps(row):
            return []
        plain = {name: value(row) for name, (_, _, value) in made.items()}
        if many is None:
            return [plain]
        if row[many] is None:
            return [plain | {"x": None}] if outer else []
        return [plain | {"x": number} for number in range(row[many] % 3 + 1)]

    return MapStep({"select": select, **({"where": where} if where else {})}, kinds, rows_of)


def _of_lines(chance: random.Random) -> MapStep | None:
    if chance.random() < 0.3:
        return None
    if chance.random() < 0.5:
        pattern = chance.choice([r"\w+", r"[a-z]", r"\S+"])

        def tokens(row: Row) -> list[Row]:
            return [{"token": found[0], "column": found.start()} for found in re.finditer(pattern, row["value"])]

        # The mapper also gives file and line; those are tested elsewhere.
        return MapStep(
            {"mapper": "tokens", "pattern": pattern}, {"token": KINDS["text"], "column": KINDS["int"]}, tokens
        )
    return MapStep(
        {"select": ["explode(split(value, 'a')) AS piece", "length(value) AS size"]},
        {"piece": KINDS["text"], "size": KINDS["int"]},
        lambda row: [{"piece": piece, "size": len(row["value"])} for piece in row["value"].split("a")],
    )


def _where(  # noqa: PLR0911 - one for each kind of column
    chance: random.Random, columns: Mapping[str, Kind]
) -> tuple[str, Callable[[Row], bool]]:
    name = chance.choice(list(columns))
    kind, quoted = columns[name], _quoted(name)
    if kind.name in NUMBERS and kind.name != "float":
        limit = chance.choice([-5, 0, 3, 30])
        if chance.random() < 0.3:
            return f"{quoted} BETWEEN -3 AND {limit}", lambda row: row[name] is not None and -3 <= row[name] <= limit
        return f"{quoted} > {limit}", lambda row: row[name] is not None and row[name] > limit
    if kind.spark == "date":
        day = dt.date(2026, 1, 15)
        return f"{quoted} >= DATE'{day}'", lambda row: row[name] is not None and row[name] >= day
    if kind.spark == "timestamp":
        at = dt.datetime(2026, 1, 15, tzinfo=dt.UTC)
        return f"{quoted} < TIMESTAMP'2026-01-15 00:00:00Z'", lambda row: row[name] is not None and row[name] < at
    if kind.spark == "string":
        return f"{quoted} IN ('w1', 'w2', '') OR {quoted} IS NULL", lambda row: row[name] in {"w1", "w2", "", None}
    if kind.name == "boolean":
        return f"NOT {quoted}", lambda row: row[name] is False
    return f"{quoted} IS NOT NULL", lambda row: row[name] is not None


#: Options of the routing: how often one is given, of which policies, and what it may be.
_OPTIONS: tuple[tuple[str, float, tuple[str, ...], tuple[Any, ...]], ...] = (
    ("budget", 0.5, POLICIES, (1.0, 1.0, 1.05, 1.5, 3.0)),
    ("stage_overhead", 0.6, POLICIES, (0,)),
    ("first_plan", 0.65, POLICIES, (["last_run"],) * 6 + (["last_run", "sample", "probe"],)),
    ("head_limit", 0.3, POLICIES, (0, 1, 5, 100)),
    ("tokens", 0.3, POLICIES, (1, 2, 8, 256)),
    ("slots", 0.2, POLICIES, (1, 2, 7)),
    ("strict", 0.4, POLICIES[1:-1], (True,)),
    ("threshold", 0.5, ("halving", "doubling", "virtual_tasks"), (0, 0.2, 5)),
    ("capacity", 0.8, ("bounded_load",), (1, 1.1, 3)),
)


def draw_routing(chance: random.Random) -> dict[str, Any]:
    policy: dict[str, Any] = {"name": chance.choice(POLICIES)}
    routing: dict[str, Any] = {"policy": policy, "reducers": chance.choice([1, 2, 3, 5])}
    routing["waves"] = chance.choice([[1], [1, 2], [1, 1, 1], [1, 4, 15], [5, 1]])
    for option, often, policies, values in _OPTIONS:
        if policy["name"] in policies and chance.random() < often:
            (policy if option in Policy.told_apart() else routing)[option] = chance.choice(values)
    if policy["name"] == "doubling" and policy.get("strict"):
        routing.pop("tokens", None)
    if policy["name"] == "adaptive" and chance.random() < 0.3:
        policy |= {"reducer_range": [1, 8]}
    return routing


def draw_output(chance: random.Random, *, nested: bool, table: bool) -> dict[str, Any]:
    """Where and as what a result is published.

    Args:
        nested: whether it has arrays, which cannot go into a CSV.
        table: whether its columns may be those of a table.
    """
    kinds = (
        ["parquet", "parquet", "orc", "json"] + ([] if nested else ["csv"]) + (["delta", "iceberg"] if table else [])
    )
    kind = chance.choice(kinds)
    named = {"format": kind} if kind != "parquet" else {}
    return {**named, "path": "local.marts.out" if kind == "iceberg" else "out", "files": chance.choice([1, 2, 3])}
