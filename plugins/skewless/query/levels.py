"""The SELECTs of a query, from the outermost to the one that aggregates."""

from collections.abc import Iterator, Mapping

from sqlglot import exp

from skewless.document import unmet
from skewless.query.functions import AGGREGATES
from skewless.query.sql import call_name, identifier, name_of, parsed, select_of, shown

#: What a query that joins results to lookups calls the results.
RESULT = "result"
#: What keeps a query from being a set of rows in no order.
_CLAUSES = {
    "limit": "no LIMIT; a report reads the first rows of the published table",
    "offset": "no OFFSET",
    "qualify": "no QUALIFY; filter in a view of the published table",
    "windows": "no WINDOW",
    "sort": "ORDER BY in place of SORT BY",
    "cluster": "no CLUSTER BY",
    "distribute": "no DISTRIBUTE BY",
    "sample": "no TABLESAMPLE",
    "pivots": "no PIVOT; write an aggregate with FILTER for each column",
}
#: What else there may be of a SELECT and of its GROUP BY.
_UNDERSTOOD = {
    "with_", "hint", "distinct", "expressions", "from_", "joins", "laterals", "where", "group", "having", "order",
    "grouping_sets", "cube", "rollup", "all",
}  # fmt: skip


def levels_of(text: str) -> tuple[exp.Select | None, list[exp.Select]]:
    """What joins results to lookups, if anything does, with ``RESULT`` in place of the query of results; its SELECTs.

    The last of these aggregates, and those before it compute results from those below, the outermost first.

    Raises:
        ValueError: no SELECT aggregates, or several do.
    """
    levels, first = [_without_stars(select_of(_with_fields(inlined(text))))], 0
    joined: exp.Expr | None = None
    while not aggregates(level := levels[-1]):
        below = [one for one in _subqueries(level) if _aggregates_within(one)]
        if len(below) > 1:
            raise unmet("one aggregation", shown(below[1]))
        if not below and level.args.get("distinct"):
            break
        if not below:
            raise unmet("a query that aggregates: GROUP BY, or an aggregate", shown(levels[first]))
        refuse_clauses(level, outermost=level is levels[0])
        levels.append(select_of(below[0].this))
        if level.args.get("joins"):
            joined, first = below[0], len(levels) - 1
    if lateral := next((level for level in levels[first:-1] if level.args.get("laterals")), None):
        raise unmet("LATERAL VIEW below the aggregation", shown(lateral))
    if joined is None:
        return None, levels
    joined.replace(exp.Table(this=exp.to_identifier(RESULT), alias=joined.args.get("alias")))
    if ranked := levels[0].find(exp.Window):
        raise unmet("no window function over the result; compute it in a view of the published table", shown(ranked))
    return levels[0], levels[first:]


def _with_fields(tree: exp.Expr) -> exp.Expr:
    """A query in which the fields of struct() have their names, and keep them whatever stands for a column."""
    for call in reversed(list(tree.find_all(exp.Anonymous))):
        for at, one in enumerate(call.expressions if call_name(call) == "struct" else ()):
            of_map = isinstance(one, exp.Bracket) and one.expressions[0].is_string
            name = one.expressions[0].name if of_map else name_of(one.unnest()) or f"col{at + 1}"
            if not (one.is_star or isinstance(one, exp.Alias)):
                one.replace(exp.alias_(one.copy(), identifier(name)))
    return tree


def _without_stars(select: exp.Select) -> exp.Select:
    """The query of which SELECTs around it take everything as it is."""
    source = select.args["from_"].this if select.args.get("from_") else None
    plainly = all(name in {"expressions", "from_"} for name, value in select.args.items() if value)
    alone = [type(one) for one in select.expressions] == [exp.Star] and not any(select.expressions[0].args.values())
    if not (plainly and alone and isinstance(source, exp.Subquery)):
        return select
    named = source.args.get("alias")
    bare = all(name in {"this", "alias"} for name, value in source.args.items() if value)
    return _without_stars(select_of(source.this)) if bare and not (named and named.columns) else select


def inlined(text: str) -> exp.Expr:
    """A query with those of its WITH in place of their names; a ``ValueError`` if it cannot be read."""
    tree = parsed(text)
    for select in reversed(list(tree.find_all(exp.Query))):
        having = select.args.get("with_")
        if having is None:
            continue
        if having.args.get("recursive"):
            raise unmet("a query without recursion", "WITH RECURSIVE")
        select.set("with_", None)
        known: dict[str, exp.CTE] = {}
        for one in having.expressions:
            _replace_tables(one.this, known)
            known[one.alias.lower()] = one
        _replace_tables(select, known)
    for source in list(tree.find_all(exp.Subquery)):
        _name_columns(source)
    return tree


def _name_columns(source: exp.Subquery) -> None:
    """Have a query around one in FROM give its columns the names of a list behind it, if those have names already."""
    named, select = source.args.get("alias"), source.this
    if named is None or not named.columns or not isinstance(select, exp.Select):
        return
    items = select.expressions
    below = [name_of(item) or new.name for item, new in zip(items, named.columns, strict=False)]
    differ = len({name.lower() for name in below}) == len(items) == len(named.columns)
    if not differ or any(item.is_star for item in items):
        return
    select.set("expressions", [item if name_of(item) else exp.alias_(item, name, quoted=True)
                               for item, name in zip(items, below, strict=True)])  # fmt: skip
    columns = [exp.alias_(exp.column(name, quoted=True), new) for name, new in zip(below, named.columns, strict=True)]
    named.set("columns", None)
    source.set("this", exp.Select(expressions=columns).from_(exp.Subquery(this=select, alias=named.copy())))


def _replace_tables(tree: exp.Expr, known: Mapping[str, exp.CTE]) -> None:
    for table in list(tree.find_all(exp.Table)):
        one = known.get(table.name.lower()) if not table.db else None
        if one is None:
            continue
        named = one.args["alias"].copy()
        if table.alias:
            named.set("this", exp.to_identifier(table.alias))
        rest = {name: table.args.get(name) for name in ("joins", "laterals", "pivots", "sample")}
        table.replace(exp.Subquery(this=one.this.copy(), alias=named, **rest))


def input_of(select: exp.Select) -> exp.Table:
    """The input's table, below SELECTs that only select."""
    source = select.args.get("from_")
    found = source.this if source else None
    joins = [*(select.args.get("joins") or ())]
    while isinstance(found, exp.Subquery | exp.Paren) and isinstance(found.this, exp.Table | exp.Subquery):
        joins += found.this.args.get("joins") or ()
        found = found.this
    for join in joins + (list(found.args.get("joins") or ()) if found is not None else []):
        if join.side in {"RIGHT", "FULL"} or join.method:
            raise unmet(
                "inner, left, semi, anti and cross joins, which keep rows of the first table of FROM", shown(join)
            )
    if isinstance(found, exp.Table):
        return found
    if not isinstance(found, exp.Subquery):
        raise unmet("a table in FROM", shown(select))
    inner = select_of(found.this)
    refuse_clauses(inner, outermost=False)
    if inner.args.get("distinct") or aggregates(inner):
        raise unmet("one aggregation; below it, queries of the input's single rows", shown(inner))
    return input_of(inner)


def aggregates(select: exp.Select) -> bool:
    """Whether a SELECT itself aggregates; DISTINCT alone does not count."""
    parts = [*select.expressions, select.args.get("having")]
    return bool(select.args.get("group")) or any(call for part in parts if part for call in calls(part))


def _subqueries(select: exp.Select) -> list[exp.Subquery]:
    sources = (select.args.get("from_"), *(select.args.get("joins") or ()))
    return [one.this for one in sources if one and isinstance(one.this, exp.Subquery)]


def _aggregates_within(source: exp.Subquery) -> bool:
    select = select_of(source.this)
    return bool(aggregates(select) or select.args.get("distinct")) or any(map(_aggregates_within, _subqueries(select)))


def calls(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregate calls in an expression, each with what belongs to it: FILTER, WITHIN GROUP, IGNORE NULLS, OVER."""
    for node in tree.walk(prune=lambda one: isinstance(one, exp.Query) or call_name(one) in AGGREGATES):
        if call_name(node) in AGGREGATES:
            whole = node
            while isinstance(whole.parent, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
                whole = whole.parent
            if not isinstance(whole.parent, exp.Window):
                yield whole


def refuse_clauses(select: exp.Select, *, outermost: bool) -> None:
    """Refuse what keeps a SELECT from being a set of rows; ORDER BY only in one that is not the outermost."""
    if select.parent is not None and (named := select.parent.args.get("alias")) and named.columns:
        raise unmet("columns with names that differ before a list of other names", shown(select.parent))
    group, source = (select.args[one].args if select.args.get(one) else {} for one in ("group", "from_"))
    below = {part: source["this"].args.get(part) for part in ("pivots", "sample") if source}
    for clause, value in {**group, **below, **select.args}.items():
        if value and clause not in _UNDERSTOOD:
            part = value[0] if isinstance(value, list) else value
            raise unmet(_CLAUSES.get(clause, "a SELECT without this"), shown(part if clause in _CLAUSES else select))
    if not outermost and select.args.get("order"):
        raise unmet("ORDER BY in the outermost query alone", shown(select.args["order"]))
