"""TPC-H, TPC-DS and JCC-H: data and texts are made by DuckDB's extensions in an environment of their own."""

import json
from collections.abc import Iterator
from pathlib import Path

import sqlglot
from sqlglot import exp

from tests.packages import new_environment

#: The last version that the package index has both extensions for.
PACKAGES = ("duckdb==1.5.5", "duckdb-extension-tpch==1.5.5", "duckdb-extension-tpcds==1.5.5")
#: Large tables, the largest first.
FACTS = {
    "tpch": ("lineitem", "orders", "partsupp"),
    "tpcds": (
        "inventory", "store_sales", "catalog_sales", "web_sales", "store_returns", "catalog_returns", "web_returns",
    ),
}  # fmt: skip
_GENERATE = """
import duckdb, glob, json, sys
corpus, scale, folder, statements = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
made = duckdb.connect()
(extension,) = glob.glob(f"{sys.prefix}/lib/python3*/site-packages/duckdb_extension_{corpus}/extensions/*/*")
made.execute(f"LOAD '{extension}'")
made.execute(f"CALL {'dbgen' if corpus == 'tpch' else 'dsdgen'}(sf={scale})")
for one in statements:
    made.execute(one)
for (table,) in made.execute("SHOW TABLES").fetchall():
    made.execute(f"COPY {table} TO '{folder}/{table}.parquet' (FORMAT parquet)")
texts = made.execute(f"SELECT query_nr, query FROM {corpus}_queries()").fetchall()
json.dump(dict(texts), open(f"{folder}/queries.json", "w"))
"""
#: Skew after "JCC-H: Adding Join Crossing Correlations with Skew to TPC-H" (Boncz, Anatiotis, Klaebe, TPCTC 2017). Of
#: the paper are the rules: a few populous customers, orders, parts and suppliers, correlated over joins by region and
#: by "Black Friday". The shares (a quarter each) and the ways to choose rows are ours: its generator is not at hand.
SKEW = (
    # In each region one customer has all orders of "Black Friday", which are a quarter of all orders.
    """CREATE TABLE populous AS SELECT row_number() OVER (ORDER BY n_regionkey) - 1 AS place, n_regionkey AS region,
       min(c_custkey) AS customer FROM customer JOIN nation ON c_nationkey = n_nationkey GROUP BY n_regionkey""",
    """UPDATE orders SET o_orderdate = DATE '1993-11-26', o_custkey = (SELECT customer FROM populous
       WHERE place = (o_orderkey // 4) % 5) WHERE hash(o_orderkey) % 4 = 0""",
    # One order of each of them has a twentieth of all lines, a quarter together.
    """CREATE TABLE mega AS SELECT place, region, (SELECT min(o_orderkey) FROM orders WHERE o_custkey = customer) AS o,
       (SELECT min({'part': ps_partkey, 'supp': ps_suppkey}) FROM partsupp
        JOIN supplier ON ps_suppkey = s_suppkey JOIN nation ON s_nationkey = n_nationkey
        WHERE n_regionkey = region) AS ps FROM populous""",
    """UPDATE lineitem SET l_orderkey = (SELECT o FROM mega WHERE place = l_partkey % 5)
       WHERE hash(l_orderkey, l_linenumber) % 4 = 0""",
    # And each of these orders buys one part of one supplier of its region.
    """UPDATE lineitem SET l_partkey = (SELECT ps.part FROM mega WHERE o = l_orderkey),
       l_suppkey = (SELECT ps.supp FROM mega WHERE o = l_orderkey) WHERE l_orderkey IN (SELECT o FROM mega)""",
    "DROP TABLE mega",
    "DROP TABLE populous",
)


def generate(place: Path, corpus: str, scale: str) -> Path:
    """Write tables as ``NAME.parquet``, and queries as ``queries.json``; ``jcch`` is skewed TPC-H."""
    made = new_environment(place / "made")
    made.install(*PACKAGES)
    (folder := place / corpus).mkdir()
    name, skew = ("tpch", SKEW) if corpus == "jcch" else (corpus, ())
    ended = made.run(made.python, "-c", _GENERATE, name, scale, folder, json.dumps(skew))
    assert not ended.returncode, ended.stderr
    return folder


def texts(folder: Path, corpus: str) -> dict[int, str]:
    """The queries in Spark's dialect, each with its large table first.

    Without LIMIT, which no table of a mart has, and with a name for each column.
    """
    facts = FACTS["tpch" if corpus == "jcch" else corpus]
    made = {}
    for number, text in json.loads((folder / "queries.json").read_text()).items():
        tree: exp.Query = sqlglot.parse_one(text, read="duckdb", into=exp.Select)
        for limit in tree.find_all(exp.Limit):
            limit.pop()
        for ordered in tree.find_all(exp.Ordered):
            ordered.set("nulls_first", not ordered.args.get("desc"))  # as Spark does by itself
        for at, item in enumerate(tree.selects):
            if not isinstance(item, exp.Alias | exp.Column | exp.Star):
                item.replace(exp.alias_(item.copy(), f"c{at}"))
        for fact in facts:
            for select in tree.find_all(exp.Select):
                _put_first(select, fact)
            if any(table.name == fact for table in tree.find_all(exp.Table)):
                break
        made[int(number)] = tree.sql(dialect="spark", pretty=True)
    return made


def _put_first(select: exp.Select, fact: str) -> None:
    """Let a table come first in FROM, where it is joined by commas or inner joins alone: these commute."""
    source, joins = select.args.get("from_"), list(select.args.get("joins", ()))
    inner = next(
        (at for at, join in enumerate(joins) if join.side or join.kind not in {"", "INNER", "CROSS"}), len(joins)
    )
    at = next((at for at, join in enumerate(joins[:inner]) if _reads(join.this, fact)), None)
    if source is None or at is None or _reads(source.this, fact):
        return
    first = joins.pop(at)
    for join in [first, *joins[: inner - 1]]:
        if condition := join.args.get("on"):
            select.where(condition, copy=False)
            join.set("on", None)
        join.set("kind", "CROSS")
    joins.insert(0, exp.Join(this=source.this, kind="CROSS"))
    source.set("this", first.this)
    select.set("joins", joins)


def _reads(source: exp.Expression, fact: str) -> bool:
    return any(table.name == fact for table in source.find_all(exp.Table))


def counted(text: str, corpus: str) -> bool:
    """Whether a query has one aggregation over one large table: the largest that it is of, which is read once."""
    facts, tree = FACTS["tpch" if corpus == "jcch" else corpus], sqlglot.parse_one(text, read="spark")
    ctes = {cte.alias: cte.this for cte in tree.find_all(exp.CTE)}

    def tables(query: exp.Expression) -> Iterator[str]:
        """What FROM reads, through subqueries and CTEs."""
        if isinstance(query, exp.Table):
            yield from tables(ctes[query.name]) if query.name in ctes else (query.name,)
        elif isinstance(query, exp.SetOperation):
            yield from (*tables(query.this), *tables(query.expression))
        elif isinstance(query, exp.Select):
            for source in (query.args.get("from_"), *query.args.get("joins", ())):
                yield from tables(source.this) if source else ()
        else:
            yield from tables(query.this)

    large = [{*tables(select)} & {*facts} for select in tree.find_all(exp.Select) if _aggregates(select)]
    large = [names for names in large if names]
    united = any(len({*tables(one)} & {*facts}) > 1 for one in tree.find_all(exp.SetOperation))
    read = [table.name for table in tree.find_all(exp.Table)]
    return len(large) == 1 and not united and read.count(min(large[0], key=facts.index)) == 1


def _aggregates(select: exp.Select) -> bool:
    calls = (call for call in select.find_all(exp.AggFunc) if not isinstance(call.parent, exp.Window))
    grouped = select.args.get("group") or select.args.get("distinct")
    return bool(grouped or any(call.find_ancestor(exp.Select) is select for call in calls))
