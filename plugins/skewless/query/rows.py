"""The query of a map: its tables, and the place of each row, which it passes on from the input to its result."""

from collections.abc import Iterator, Mapping
from typing import cast

from sqlglot import exp

from skewless.document import unmet
from skewless.query.functions import GENERATORS, NUMBERED
from skewless.query.levels import inlined
from skewless.query.sql import call_name, full_name, name_of, parsed, rename, select_of, shown, written
from skewless.query.understood import INPUT


def row_query(text: str, views: Mapping[str, str], origin: str, position: str) -> tuple[str, str]:
    """The query of a map as it runs, and its column, if any, that numbers rows; a ``ValueError`` if it is none of rows.

    Args:
        views: by tables, in lower case.
        origin: the column of the input's view with the origin of a row.
        position: a name for the column of positions.
    """
    select = select_of(inlined(text))
    own = [one.name for one in select.find_all(exp.Identifier) if one.name.lower().startswith("__skewless_")]
    if own:
        raise unmet("columns of the tables", repr(own[0]))
    if sum(table.name.lower() == INPUT for table in _tables(select)) > 1:
        raise unmet(
            "the input once in FROM; a second reading of it is a lookup with a name of its own in tables", INPUT
        )
    for item in select.expressions:
        several = [one.name for one in item.expressions] if isinstance(item, exp.Aliases) else [name_of(item)]
        if not item.is_star and not all(several):
            raise unmet("an expression with a name", shown(item), "write '... AS name'")
    found = _numbered(select, position)
    for level, alias in _path(select):
        stars = [one for one in level.expressions if one.is_star]
        if not any(isinstance(one, exp.Star) or one.table.lower() == alias.lower() for one in stars):
            level.append("expressions", exp.column(origin, table=alias or None))
    return written(_viewed(select, views)), found


def reread(text: str, views: Mapping[str, str]) -> tuple[str, str]:
    """A query over views as it was written, and as it is written again: both must mean the same."""
    tree, again = parsed(text), text
    ends = sorted((_place(table) for table in _tables(tree)), reverse=True)
    for start, end, name, alias in ends:
        again = f"{again[:start]}{views[name]}{alias}{again[end:]}"
    return again, written(_viewed(tree, views))


def tables_of(tree: exp.Expr) -> tuple[str, ...]:
    """The full names of a query's tables, each once, in the order of the query."""
    return tuple(dict.fromkeys(map(full_name, _tables(tree))))


def condition_of_input(text: str) -> str | None:
    """In SQL over the input's columns, what each row of it must fulfil to be of any row of a query; None for nothing.

    >>> condition_of_input(
    ...     "SELECT c.a FROM input AS c LEFT JOIN p ON c.x = p.x WHERE c.day > 3 AND p.y < 2 AND c.z = 1"
    ... )
    'day > 3 AND z = 1'
    """
    *_, (select, alias) = _path(select_of(inlined(text)))
    alone = not (select.args.get("joins") or select.args.get("laterals"))
    where, kept = select.args.get("where"), []
    for one in where.this.flatten() if where and isinstance(where.this, exp.And) else [where.this] if where else []:
        columns = list(one.find_all(exp.Column))
        own = all(column.table.lower() == alias.lower() or (alone and not column.table) for column in columns)
        if columns and own and not list(one.find_all(exp.Query)):
            for column in columns:
                column.set("table", None)
            kept.append(one)
    return written(exp.and_(*kept, copy=False)) if kept else None


def _numbered(select: exp.Select, position: str) -> str:
    """Let the only function that makes rows of one number them, and name the column of the numbers."""
    made = [(item, call_name(item.this)) for item in select.expressions if isinstance(item, exp.Alias | exp.Aliases)]
    makers = [(item, name) for item, name in made if name in GENERATORS]
    if len(makers) != 1 or any(select.find_all(exp.Join, exp.Lateral)):
        return ""
    ((item, name),) = makers
    if name in NUMBERED and isinstance(item, exp.Alias):
        call = exp.Anonymous(this=NUMBERED[name], expressions=item.this.expressions)
        item.replace(exp.Aliases(this=call, expressions=[exp.to_identifier(position), item.args["alias"].copy()]))
        return position
    return str(item.expressions[0].name) if name in NUMBERED.values() and isinstance(item, exp.Aliases) else ""


def _path(select: exp.Select) -> Iterator[tuple[exp.Select, str]]:
    """From the outermost SELECT to the one that reads the input, each with what it calls the rows from there."""
    source = select.args.get("from_")
    found = source.this if source else None
    while isinstance(found, exp.Subquery | exp.Paren) and isinstance(found.this, exp.Table | exp.Subquery):
        found = found.this
    if isinstance(found, exp.Table):
        if found.name.lower() != INPUT or found.db:
            raise unmet("a query whose FROM begins with input", shown(found))
        yield select, found.alias_or_name
        return
    if not isinstance(found, exp.Subquery):
        raise unmet("a query whose FROM begins with input", shown(select))
    yield select, found.alias_or_name
    yield from _path(select_of(found.this))


def _tables(tree: exp.Expr) -> Iterator[exp.Table]:
    """The tables of a query that are no names of its WITH; a query of WITH knows those before it alone."""
    for table in tree.find_all(exp.Table):
        node, known = cast("exp.Expr", table), set[str]()
        while (parent := node.parent) is not None:
            having = parent if isinstance(parent, exp.With) else parent.args.get("with_")
            queries = having.expressions if having is not None and having is not node else []
            known |= {one.alias.lower() for one in queries[: queries.index(node) if node in queries else None]}
            node = parent
        if table.db or table.name.lower() not in known:
            yield table


def _place(table: exp.Table) -> tuple[int, int, str, str]:
    """Where a table's name stands in the text, the name, and the alias that it needs if another one stands there."""
    parts = table.parts
    alias = "" if table.args.get("alias") else f" AS `{parts[-1].name}`"
    return parts[0].meta["start"], parts[-1].meta["end"] + 1, full_name(table).lower(), alias


def _viewed(tree: exp.Expr, views: Mapping[str, str]) -> exp.Expr:
    for table in list(_tables(tree)):
        name = full_name(table).lower()
        if name not in views:
            raise unmet("tables that the spec names", repr(name))
        rename(table, views[name])
    return tree
