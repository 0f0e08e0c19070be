"""Random queries over random tables, made with sqlglot's builders, each against plain Spark."""

import datetime as dt
import random
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import sqlglot
from sqlglot import exp

from skewless.query.sql import AsWritten
from tests.fuzz.files import arrow_table
from tests.fuzz.inputs import draw_rows
from tests.fuzz.values import KINDS, Kind
from tests.query.rows import write_parts

_KINDS = (
    "int", "int", "bigint", "text", "text", "double", "odd double", "decimal", "boolean", "date", "timestamp", "clock",
)  # fmt: skip
#: Moments when clocks in Berlin change.
_CHANGES = (dt.datetime(2026, 3, 29, tzinfo=dt.UTC), dt.datetime(2026, 10, 25, tzinfo=dt.UTC))
_ALL_KINDS = KINDS | {
    "clock": KINDS["timestamp"]._replace(
        name="clock", draw=lambda chance: chance.choice(_CHANGES) + dt.timedelta(minutes=15 * chance.randrange(12))
    )
}
#: What is added up: no values that swallow others.
_NUMBERS = ("int", "double", "decimal")
#: Further aggregates of any column, and of numbers, and the kind of each.
_OF_ANY = (
    ("count_if({0} IS NULL)", "bigint"), ("count(DISTINCT {0}, {1})", "bigint"), ("count({0}, {1})", "bigint"),
    ("size(collect_set({0}))", "bigint"), ("bool_or({0} IS NULL)", "boolean"),
    ("max(named_struct('x', {1}, 'y', {0})).x", "text"),
    ("sort_array(collect_set(CAST({0} AS STRING)))", "list"),
    ("listagg(CAST({0} AS STRING), '|') WITHIN GROUP (ORDER BY CAST({0} AS STRING))", "text"),
)  # fmt: skip
_OF_NUMBERS = (
    ("sum(DISTINCT {0})", "double"),
    ("avg({0}) - avg(DISTINCT {0})", "double"),
    ("percentile({0}, 0.25)", "double"),
    ("sum({0}) / nullif(count({0}), 0)", "double"),
    ("regr_count({0}, {0})", "bigint"),
    ("try_sum({0})", "double"),
    ("sum(CASE WHEN {0} > 5 THEN {0} ELSE 0 END)", "double"),
    ("bool_and({0} > 3)", "boolean"),
)


class Typed(NamedTuple):
    """An expression, and the kind of its values."""

    tree: Any
    kind: str


class Drawn(NamedTuple):
    """A query, its tables, and by column of the result what it may be off by."""

    text: str
    tables: dict[str, pa.Table]
    near: dict[str, float]


def draw(chance: random.Random) -> Drawn:
    columns = {f"c{at}": _ALL_KINDS[chance.choice(_KINDS)] for at in range(chance.randint(3, 6))}
    columns |= {"k": KINDS[chance.choice(("int", "text"))]}
    count = chance.choice((0, 1, 20, 100, 300))
    rows = draw_rows(chance, columns, count)
    empty = {name for name in columns if chance.random() < 0.06}
    rows = [row | dict.fromkeys(empty) for row in rows]
    table = arrow_table(rows, columns)
    lists = [
        None if chance.random() < 0.1 else [chance.randint(0, 3) for _ in range(chance.randrange(4))] for _ in rows
    ]
    within = [None if chance.random() < 0.1 else {"a": chance.randint(-3, 9), "b": chance.choice("xyz")} for _ in rows]
    table = table.append_column("l", pa.array(lists, pa.list_(pa.int32())))
    table = table.append_column("s", pa.array(within, pa.struct([("a", pa.int32()), ("b", pa.string())])))
    tables = {"t": table}
    pool = [Typed(exp.column(name, "t"), kind.name) for name, kind in columns.items()]
    pool += [Typed(exp.column("a", "s", "t"), "int"), Typed(exp.column("b", "s", "t"), "text")]
    source = "t"
    if chance.random() < 0.2:
        source = f"(SELECT *, s.a + 1 AS more FROM t WHERE {'c0' if chance.random() < 0.5 else 's.b'} IS NOT NULL) AS t"
        pool.append(Typed(exp.column("more", "t"), "int"))
    query = exp.select().from_(_sql(f"SELECT 1 FROM {source}").args["from_"].this)
    if chance.random() < 0.25:
        view = exp.Lateral(
            this=exp.Explode(this=exp.column("l", "t")), view=True, outer=chance.random() < 0.4,
            alias=exp.TableAlias(this=exp.to_identifier("e"), columns=[exp.to_identifier("x")]),
        )  # fmt: skip
        query.append("laterals", view)
        pool.append(Typed(exp.column("x", "e"), "int"))
    for at in range(chance.choice((0, 0, 1, 1, 2, 3))):
        query = _joined(chance, query, f"u{at}", columns["k"], rows, tables, pool)
    if chance.random() < 0.5:
        query = query.where(_condition(chance, pool))
    return _aggregated(chance, query, tables, pool)


def _joined(
    chance: random.Random, query: exp.Select, name: str, key: Kind, rows: list[dict[str, Any]],
    tables: dict[str, pa.Table], pool: list[Typed],
) -> exp.Select:  # fmt: skip
    """With a lookup by ``k``, which may repeat keys, lack some and have others."""
    columns = {"k": key, "v": _ALL_KINDS[chance.choice(_KINDS)], "w": KINDS["int"]}
    kind = chance.choice(("inner", "left", "left", "left semi", "left anti", "cross"))
    known = [row["k"] for row in rows]
    tables[name] = _looked_up(chance, columns, known, 2 if kind == "cross" else chance.choice((0, 3, 12, 30)))
    equal: exp.Expr = exp.column("k", "t").eq(exp.column("k", name))
    if chance.random() < 0.3 and kind != "cross":
        equal = exp.and_(equal, exp.column("w", name) > chance.randint(-5, 20))
    if kind in {"inner", "left", "cross"}:
        pool += [Typed(exp.column("v", name), columns["v"].name), Typed(exp.column("w", name), "int")]
    return query.join(name, on=None if kind == "cross" else equal, join_type=kind)


def _looked_up(chance: random.Random, columns: dict[str, Kind], known: list[Any], count: int) -> pa.Table:
    rows = draw_rows(chance, columns, count)
    for row in rows:
        row["k"] = chance.choice(known) if known and chance.random() < 0.8 else row["k"]
    if chance.random() < 0.6:
        rows = list({row["k"]: row for row in rows}.values())
    return arrow_table(rows, columns)


def draw_lookup(chance: random.Random, drawn: Drawn, name: str, path: Path) -> None:
    """Write another lookup in place of one."""
    table = drawn.tables[name]
    kinds = {kind.spark: kind for kind in reversed(KINDS.values())}
    columns = {field.name: next(one for one in kinds.values() if one.arrow == field.type) for field in table.schema}
    pq.write_table(_looked_up(chance, columns, drawn.tables["t"]["k"].to_pylist(), table.num_rows), path)


def _condition(chance: random.Random, pool: list[Typed]) -> exp.Expr:
    made = list[exp.Expr]()
    for tree, kind in chance.sample(pool, chance.choice((1, 1, 2))):
        if kind in _NUMBERS:
            low, high = (exp.Literal.number(one) for one in sorted(chance.sample(range(40), 2)))
            made.append(chance.choice((tree > low, tree.between(low, high), tree.isin(low, high), tree <= high)))
        elif kind == "text":
            made.append(
                chance.choice((tree.like("w%"), tree.isin("w1", "w2", ""), tree.eq("w1"), tree.is_(exp.null())))
            )
        elif kind == "date":
            made.append(tree >= exp.cast(exp.Literal.string("2026-01-15"), "date"))
        else:
            made.append(exp.not_(tree.is_(exp.null())) if kind != "boolean" else tree)
    joined = (exp.or_ if chance.random() < 0.3 else exp.and_)(*made)
    return exp.not_(joined) if chance.random() < 0.15 else joined


def _key(chance: random.Random, pool: list[Typed]) -> Typed:
    tree, kind = chance.choice(pool)
    if kind in {"int", "bigint"} and chance.random() < 0.4:
        return Typed(exp.Mod(this=exp.paren(tree), expression=exp.Literal.number(5)), kind)
    if kind == "text" and chance.random() < 0.4:
        made = (exp.Coalesce(this=tree, expressions=[exp.Literal.string("none")]), exp.Upper(this=tree))
        return Typed(chance.choice(made), kind)
    if kind == "clock" and chance.random() < 0.7:
        berlin = f"from_utc_timestamp({tree.sql(dialect='spark')}, 'Europe/Berlin')"
        return Typed(_sql(f"date_trunc('hour', {berlin})") if chance.random() < 0.5 else _sql(f"hour({berlin})"), kind)
    if kind in {"timestamp", "date"} and chance.random() < 0.5:
        return Typed(exp.cast(exp.TimestampTrunc(this=tree, unit=exp.var("month")), "date"), "date")
    if chance.random() < 0.15:
        return Typed(
            exp.Case().when(_condition(chance, pool), exp.Literal.number(1)).else_(exp.Literal.number(0)), "int"
        )
    return Typed(tree, kind)


def _measure(chance: random.Random, pool: list[Typed]) -> tuple[Typed, float]:
    """An aggregate, and what it may be off by."""
    tree, kind = chance.choice(pool)
    off, made = 0.0, exp.Expr()
    if chance.random() < 0.25:
        text, kind = chance.choice(_OF_NUMBERS if kind in _NUMBERS else _OF_ANY)
        texts = (one.sql(dialect="spark") for one in (tree, chance.choice(pool).tree))
        return Typed(_sql(text.format(*texts)), kind), 0.0
    if kind in _NUMBERS and chance.random() < 0.6:
        if kind in {"int", "double"} and chance.random() < 0.3:
            filled = exp.Coalesce(this=tree, expressions=[exp.Literal.number(1)])
            tree = chance.choice((exp.cast(tree, "double") * exp.Literal.number(2), filled))
        function = chance.choice((exp.Sum, exp.Sum, exp.Avg, exp.Stddev, exp.VariancePop, exp.Median))
        off = 1e-5 if function in {exp.Stddev, exp.VariancePop} else 0.0
        made = function(this=tree)
        kind = kind if function is exp.Sum else "double"
    else:
        distinct = exp.Distinct(expressions=[tree])
        made, kind = chance.choice((
            (exp.Count(this=exp.Star()), "bigint"), (exp.Count(this=tree), "bigint"),
            (exp.Count(this=distinct), "bigint"), (exp.Min(this=tree), kind), (exp.Max(this=tree), kind),
        ))  # fmt: skip
    if chance.random() < 0.25:
        made = exp.Filter(this=made, expression=exp.Where(this=_condition(chance, pool)))
    return Typed(made, kind), off


def _sql(text: str) -> exp.Expr:
    made: exp.Expr = sqlglot.parse_one(text, read=AsWritten)
    return made


def _aggregated(chance: random.Random, query: exp.Select, tables: dict[str, pa.Table], pool: list[Typed]) -> Drawn:
    keys = [_key(chance, pool) for _ in range(chance.choice((0, 1, 1, 1, 2, 3)))]
    measured = [_measure(chance, pool) for _ in range(chance.randint(1, 4))]
    near = {f"m{at}": off for at, (_, off) in enumerate(measured) if off}
    items = [exp.alias_(one.tree.copy(), f"g{at}") for at, one in enumerate(keys)]
    items += [exp.alias_(one.tree.copy(), f"m{at}") for at, (one, _) in enumerate(measured)]
    whole = [one for one, _ in measured if one.kind in {"int", "bigint", "decimal"}]
    if whole and chance.random() < 0.4:
        other = exp.paren(exp.Count(this=exp.Star()) + 1)
        items.append(exp.alias_(exp.Div(this=chance.choice(whole).tree.copy(), expression=other), "ratio"))
    query = query.select(*items)
    sets = chance.random() if len({one.tree for one in keys}) == len(keys) else 1
    if keys and sets < 0.04:
        names = [one.tree.sql(dialect="spark") for one in keys]
        some = sorted({", ".join(one for one in names if chance.random() < 0.5) for _ in range(3)} - {", ".join(names)})
        text = ", ".join(f"({one})" for one in (", ".join(names), *some))
        query.set("group", _sql(f"SELECT 1 GROUP BY GROUPING SETS ({text})").args["group"])
    elif keys and sets < 0.1:
        roll = (exp.Rollup if sets < 0.06 else exp.Cube)(expressions=[one.tree.copy() for one in keys])
        query.set("group", exp.Group(expressions=[roll]))
    elif keys:
        query = query.group_by(*(one.tree.copy() if chance.random() < 0.8 else exp.Literal.number(at + 1)
                                 for at, one in enumerate(keys)))  # fmt: skip
    if whole and chance.random() < 0.3:
        query = query.having(chance.choice(whole).tree.copy() > exp.Literal.number(chance.choice((0, 1, 5))))
    if chance.random() < 0.2:
        query = exp.select("*").from_(query.subquery("q")).where(exp.not_(exp.column("m0").is_(exp.null())))
    return Drawn(query.sql(dialect="spark"), tables, near)


def written(drawn: Drawn, place: Path) -> dict[str, Path]:
    """The tables as files: the input in parts, a file for each lookup."""
    write_parts(drawn.tables["t"], place / "t")
    paths = {"t": place / "t"}
    for name, table in drawn.tables.items():
        if name != "t":
            paths[name] = place / f"{name}.parquet"
            pq.write_table(table, paths[name])
    return paths
