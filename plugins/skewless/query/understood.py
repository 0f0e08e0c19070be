"""What a query with one aggregation is made of: rows, keys, states, and expressions above them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from typing import Any, cast

from pydantic_core import PydanticCustomError
from sqlglot import exp

from skewless.document import unmet
from skewless.errors import nearest
from skewless.query.below_join import Split
from skewless.query.functions import AGGREGATES, GENERATORS, call_of
from skewless.query.levels import RESULT, aggregates, calls, input_of, levels_of, refuse_clauses
from skewless.query.sql import (
    alike,
    call_name,
    columns_of,
    full_name,
    identifier,
    name_of,
    parsed,
    parsed_expression,
    plain,
    read_in,
    rename,
    select_of,
    shown,
    written,
)

#: What the query of a map calls the input.
INPUT = "input"
#: In a query over states, what a state is beside its key.
STATE = "__skewless_state"
#: The key of an aggregation without GROUP BY, which grouping set a row is of, and what counts rows where nothing else
#: is added up: columns that are not published.
ALL_ROWS, GROUPING, COUNTED = "all_rows", "grouping_set", "counted_rows"
#: What an aggregate may be called; Spark's function that a time is put into a span by, and the name of that.
_NAME, _SPAN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}"), "window"


@dataclass(frozen=True)
class Joined:
    """A query whose states are joined to lookups, in place of rows; see ``below_join``."""

    rows: str | None
    """In SQL, what is made of the input's rows; None if its columns are taken as they are."""
    key: tuple[str, ...]
    """What a state is of: columns of these rows."""
    query: str
    """In SQL over states, called ``INPUT``, and lookups: the keys of the query, and ``STATE``."""
    lookups: frozenset[str]
    """Those that states are joined to, in lower case."""


@dataclass(frozen=True)
class Result:
    """What is published of keys and aggregates, computed when states are merged.

    States do not depend on it: with a window, another expression needs no row to be read again.

    >>> result = Result(("page", "ms AS millis", "a.n / (b + a.n) AS c", "a.n"), None, None)
    >>> result.reads, result.plain
    ({'page': ('page',), 'millis': ('ms',), 'c': ('a', 'b'), 'n': ('a',)}, {'page': 'page', 'ms': 'millis'})
    """

    select: tuple[str, ...]
    """Expressions with names, in Spark SQL over keys and aggregates."""
    where: str | None
    """Which results are published, in the same."""
    query: str | None
    """Over these, which it calls ``result``, where they are joined to lookups."""

    @cached_property
    def beside(self) -> frozenset[str]:
        """What results are joined to."""
        return frozenset() if self.query is None else frozenset(read_in(self.query))

    @cached_property
    def reads(self) -> dict[str, tuple[str, ...]]:
        """By published column, the keys and aggregates that it is made from."""
        items = list(map(parsed_expression, self.select))
        below = {name_of(item): tuple(dict.fromkeys(one.parts[0].name for one in columns_of(item))) for item in items}
        if self.query is None:
            return below
        return {
            name_of(item): tuple(one for column in columns_of(item) for one in below.get(column.name, ()))
            for item in select_of(parsed(self.query)).expressions
        }

    @cached_property
    def plain(self) -> dict[str, str]:
        """By the key or the aggregate that a published column is, as it is, the name of that column."""
        items = [] if self.query is not None else list(map(parsed_expression, self.select))
        trees = ((item.unalias(), name_of(item)) for item in items)
        return {tree.name: name for tree, name in trees if isinstance(tree, exp.Column) and not tree.table}


@dataclass(frozen=True)
class Understood:
    """A query as the other fields of a spec say it."""

    input: str
    """The name of the table that is aggregated; all others are lookups."""
    rows: str | None
    """In SQL, what is made of the input's rows; None if its columns are taken as they are."""
    key: tuple[str, ...]
    """Columns of these rows."""
    aggregates: dict[str, dict[str, Any]]
    """By name, as a spec writes them."""
    select: tuple[str, ...] | None
    """What is published, in SQL over keys and aggregates; None if it is just these."""
    where: str | None
    """In SQL, which results are published."""
    over: str | None
    """In SQL over ``RESULT`` and lookups, what is published where results are joined to lookups."""
    order: tuple[str, ...]
    """As ``output.sort`` has it."""
    aliases: frozenset[str]
    """Names that were taken for those of the select list, where a column would have come first."""
    scope: str
    """In SQL over ``INPUT`` and lookups, all columns of FROM."""
    joined: Joined | None
    """How states are joined in place of rows; None if they cannot be, or there is nothing to join."""
    unjoined: str
    """Why they cannot be; empty if they can."""

    @cached_property
    def result(self) -> Result | None:
        """What stands above keys and aggregates; None if just these are published."""
        return Result(self.select, self.where, self.over) if self.select else None

    def below_join(self, state: object, window: object, nightly: Iterable[str]) -> Joined | None:
        """How states are joined in place of rows, where a spec asks for it or has a window.

        Args:
            nightly: lookups of which each night keeps what it saw, which is in its states.
        """
        if self.joined is None or state not in {None, "join"}:
            return None
        kept = bool(window) and self.joined.lookups.isdisjoint(name.lower() for name in nightly)
        return self.joined if state == "join" or kept else None


@lru_cache(maxsize=64)
def understood(text: str, tables: frozenset[str]) -> Understood:
    """Take a query apart.

    Args:
        tables: their names.

    Raises:
        ValueError: it is none that can be computed from states; the sentence quotes the part.
    """
    over, levels = levels_of(text)
    return _Aggregation(levels[-1], tables, over).above(levels[:-1])


@dataclass
class _Aggregation:
    """The SELECT that aggregates, while it is taken apart."""

    select: exp.Select
    tables: frozenset[str]
    over: exp.Select | None
    keys: dict[str, exp.Expr] = field(default_factory=dict)
    columns: dict[str, exp.Expr] = field(default_factory=dict)
    aggregates: dict[str, dict[str, Any]] = field(default_factory=dict)
    aliases: set[str] = field(default_factory=set)
    sets: list[int] = field(default_factory=list)
    grouping: str = ""
    span: tuple[exp.Expr, exp.Expr] | None = None
    """A call of window() that is grouped by, and it by its start and its end, which are keys in its place."""

    def above(self, levels: Sequence[exp.Select]) -> Understood:
        """Everything, with the levels above, the outermost first."""
        for select in (self.select, *levels):
            refuse_clauses(select, outermost=select is (levels[0] if levels else self.select))
        name = self._input()
        self._tell_fields()
        self._keys()
        for item in self._items():  # so that an aggregate that is published alone has that name
            call = item.unalias()
            if [call] == list(calls(call)) and _NAME.fullmatch(item.alias):
                self._call(call, item.alias)
        outer = {name_of(item): self._lifted(item.unalias()) for item in self._items()}
        conditions = [self._lifted(one.this) for one in [self.select.args.get("having")] if one]
        lowest = self.select
        for select in reversed(levels):
            below, lowest = outer, select
            if select.args.get("where"):
                conditions.append(_substituted(select.args["where"].this, below, select))
            outer = {name_of(item): _substituted(item, below, select) for item in _starless(select, below)}
        if self.over is not None:
            items = {name_of(item): item for item in self._over_items(outer)}
            order = tuple(self._order(self.over, items))
            self.over.set("order", None)
        else:
            order = tuple(self._order(lowest, outer))
        where = exp.and_(*conditions, copy=False) if conditions else None
        rows = self._rows()
        if not self.aggregates:
            self.aggregates[self._free(COUNTED)] = {"function": "count"}
        published = [*self.keys, *self.aggregates]
        plainly = list(outer) == published and all(_is_column(one, name) for name, one in outer.items())
        total = self.select.args.get("group") is None and ALL_ROWS in self.keys
        joined, unjoined = self._joined()
        source = {part: self.select.args.get(part) for part in ("from_", "joins", "laterals")}
        return Understood(
            input=name,
            rows=rows,
            key=tuple(self.keys),
            aggregates=self.aggregates,
            select=None
            if plainly and not where and not total and self.over is None
            else tuple(
                written(tree if _is_column(tree, name, exactly=True) else _named(tree.copy(), name))
                for name, tree in outer.items()
            ),
            where=written(where) if where is not None else None,
            over=written(self.over) if self.over is not None else None,
            order=order,
            aliases=frozenset(self.aliases),
            scope=written(exp.Select(expressions=[exp.Star()], **source)),
            joined=joined,
            unjoined=unjoined,
        )

    def _over_items(self, outer: Mapping[str, exp.Expr]) -> list[exp.Expr]:
        """The select list over results and lookups; a star of the results is all of their columns."""
        assert self.over is not None  # noqa: S101  # for mypy
        named = next(table.alias_or_name for table in self.over.find_all(exp.Table) if table.name == RESULT)
        items = list[exp.Expr]()
        for item in self.over.expressions:
            if isinstance(item, exp.Column) and item.is_star and item.table == named:
                items += [exp.column(identifier(name), table=named) for name in outer]
            elif item.is_star or not name_of(item):
                raise unmet("a name for each column that is published, as in '... AS name'", shown(item))
            else:
                items.append(item)
        self.over.set("expressions", items)
        return items

    def _input(self) -> str:
        """The first table of FROM; the path to it is checked, and all tables are known."""
        known = {name.lower(): name for name in self.tables}
        used: list[str] = []
        read = [*self.select.find_all(exp.Table), *(self.over.find_all(exp.Table) if self.over is not None else ())]
        for table in read:
            if table.name == RESULT and self.over is not None:
                continue
            if not isinstance(table.this, exp.Identifier):
                raise unmet("tables by their names in FROM", shown(table))
            name = full_name(table)
            if name.lower() not in known:
                raise unmet(f"names in FROM that stand in tables ({nearest(name, self.tables)})", repr(name))
            used.append(known[name.lower()])
            rename(table, used[-1])
        if self.over is not None and RESULT in known:
            raise unmet(f"another name for a table of a query that joins results to lookups than {RESULT}", RESULT)
        first = input_of(self.select)
        name = first.name
        if used.count(name) > 1:
            raise unmet("the input once in FROM; a second reading of it is a lookup with a name of its own in tables",
                        f"{name} {used.count(name)} times")  # fmt: skip
        if unused := sorted(self.tables - set(used)):
            raise unmet("tables that the aggregation reads, or that its results are joined to", repr(unused[0]))
        rename(first, INPUT)
        return name

    def _tell_fields(self) -> None:
        """Tell a field of a struct, which is another column than one of its name, from a column of a table."""
        nodes = list(self.select.walk(prune=lambda one: isinstance(one, exp.Query) and one is not self.select))
        known = {one.alias_or_name.lower() for one in nodes if isinstance(one, exp.Table | exp.Subquery | exp.Lateral)}
        columns = [one for one in nodes if isinstance(one, exp.Column) and not one.is_star]
        for join in self.select.args.get("joins") or ():
            for name in (one.name.lower() for one in join.args.get("using") or ()):
                of = {one.table.lower() for one in columns if one.name.lower() == name}
                if {"", join.alias_or_name.lower()} <= of:
                    raise unmet("the names of tables before columns in USING of which both are read", name)
        for column in columns:
            parts = cast("list[exp.Identifier]", column.parts)
            table = parts.pop(0) if len(parts) > 1 and parts[0].name.lower() in known else None
            if len(parts) > 1:
                column.replace(exp.column(parts[0], table, fields=parts[1:]))

    def _items(self) -> list[exp.Expr]:
        items = []
        for item in self.select.expressions:
            if item.is_star:
                raise unmet("columns by name", "a star in the SELECT that aggregates")
            rows = next((one for one in item.walk() if call_name(one) in GENERATORS), None)
            if rows is not None and not self.select.args.get("distinct"):
                raise unmet("LATERAL VIEW, or a query in FROM, for what makes rows of one", shown(rows))
            if not name_of(item):
                raise unmet("a name for each expression that is published, as in '... AS name'", shown(item))
            items.append(item)
        return items

    def _keys(self) -> None:
        group, items = self.select.args.get("group"), list[exp.Expr]()
        if self.select.args.get("distinct"):
            if aggregates(self.select):
                raise unmet("no DISTINCT over an aggregation", shown(self.select))
            items = self._items()
        elif group is not None and group.args.get("all"):
            items = [item for item in self._items() if not any(calls(item))]
        elif group is not None:
            self._grouped_by(group)
        for item in items:
            self._add_key(item.unalias())
        for name, tree in [*self.keys.items()] if not self.sets else ():
            if call_name(tree) == _SPAN:
                del self.keys[name]
                ends = [exp.Dot(this=tree.copy(), expression=identifier(end)) for end in ("start", "end")]
                named = (one for end in ends for one in (exp.Literal.string(end.name), _column(self._add_key(end))))
                self.span = (tree, exp.Anonymous(this="named_struct", expressions=[*named]))
        if not self.keys:  # no GROUP BY, or one by nothing
            self.select.set("group", None)
            self._add_key(exp.Literal.number(1), ALL_ROWS)

    def _grouped_by(self, group: exp.Group) -> None:
        names, sets = [], list[list[frozenset[str]]]()
        for one in group.expressions:
            if isinstance(one, exp.Rollup | exp.Cube | exp.GroupingSets):
                sets.append(self._sets_of(one))
            else:
                names.append(self._add_key(self._grouped(one)))
        for kind in ("rollup", "cube", "grouping_sets"):  # behind the keys: WITH ROLLUP, GROUPING SETS (...)
            for one in group.args.get(kind) or ():
                listed, made = one.expressions, one.copy()
                made.set("expressions", listed or [exp.column(name) for name in names])
                sets.append(self._sets_of(made, named=not listed))
                names = []
        if not sets:
            return
        crossed = [frozenset(names)]
        for some in sets:
            crossed = [one | other for one in crossed for other in some]
        keys = list(self.keys)
        # As Spark numbers them: a bit for each key that is not grouped by, of the first key the highest.
        self.sets = [sum(1 << (len(keys) - 1 - at) for at, key in enumerate(keys) if key not in one) for one in crossed]
        if len(set(self.sets)) < len(self.sets):
            raise unmet("grouping sets that differ", shown(group))
        if not keys:  # of no rows, Spark 3.5 has no row, and Spark 4 has one
            raise unmet("GROUP BY with a key", shown(group), "leave it out for one row of all")
        self.grouping = self._free(GROUPING)
        self.keys[self.grouping] = exp.column(self.grouping)

    def _sets_of(self, one: exp.Expr, *, named: bool = False) -> list[frozenset[str]]:
        if isinstance(one, exp.GroupingSets):
            return [each for part in one.expressions for each in self._sets_of(part, named=named)]
        if not isinstance(one, exp.Rollup | exp.Cube):
            parts = one.expressions if isinstance(one, exp.Tuple) else [one.unnest()]
            return [frozenset(part.name if named else self._add_key(self._grouped(part)) for part in parts)]
        groups = [each for part in one.expressions for each in self._sets_of(part, named=named)]
        if isinstance(one, exp.Rollup):
            return [frozenset().union(*groups[:number]) for number in reversed(range(len(groups) + 1))]
        numbers = range(1 << len(groups))
        return [frozenset().union(*(groups[at] for at in range(len(groups)) if mask >> at & 1)) for mask in numbers]

    def _grouped(self, one: exp.Expr) -> exp.Expr:
        """An expression of GROUP BY, which may be the place or the name of one of the select list."""
        items = self._items()
        if isinstance(one, exp.Literal) and not one.is_string:
            at = int(one.name) if one.name.isdigit() else 0
            if not 1 <= at <= len(items):
                raise unmet(f"places 1 to {len(items)} in GROUP BY", one.name)
            return items[at - 1].unalias()
        if isinstance(one, exp.Column) and not one.table:
            for item in items:
                same = item.alias.lower() == one.name.lower() and not _is_column(item.unalias(), one.name)
                if same and not any(calls(item)):  # which Spark does not group by
                    self.aliases.add(one.name.lower())
                    return item.unalias()
        return one.unnest() if isinstance(one, exp.Paren) else one

    def _add_key(self, tree: exp.Expr, name: str = "") -> str:
        """The name of a key, which is added if it is new."""
        if any(calls(tree)):
            raise unmet("GROUP BY what is of one row", shown(tree))
        for known, key in self.keys.items():
            if key == tree or alike(key, tree):
                return known
        item = next((one for one in self.select.expressions if alike(one.unalias(), tree)), None)
        wanted = name or (name_of(item) if item is not None else "") or tree.name
        wanted = self._free(wanted if isinstance(tree, exp.Column | exp.Dot) or item is not None or name else "k")
        self.keys[wanted] = tree
        return wanted

    def _free(self, wanted: str) -> str:
        """A name of a key or an aggregate that no other one has."""
        taken = {item.alias.lower() for item in self.select.expressions} - {"", wanted.lower()}
        taken |= {name.lower() for name in (*self.keys, *self.aggregates)}
        if wanted.lower() not in taken:
            return wanted
        return next(name for number in count(2) if (name := f"{wanted}_{number}").lower() not in taken)

    def _lifted(self, tree: exp.Expr, seen: frozenset[str] = frozenset()) -> exp.Expr:
        """An expression of the select list or of HAVING over keys and aggregates."""
        key = self._key_of(tree)
        if key is not None:
            return _column(key)
        if self.span and (alike(tree, self.span[0]) or (isinstance(tree, exp.Column) and plain(tree) == _SPAN)):
            return self.span[1].copy()
        if any(call is tree for call in calls(tree)):
            return self._call(tree)
        if isinstance(tree, exp.Window):
            raise unmet("no window function over the result; compute it in a view of the published table", shown(tree))
        if isinstance(tree, exp.Query | exp.Subquery | exp.Exists):
            raise unmet("no subquery above the aggregation", shown(tree))
        if call_name(tree) in {"grouping_id", "grouping"} or _is_column(tree, "grouping__id", exactly=True):
            return self._grouping(tree)
        if isinstance(tree, exp.Column):
            return self._alias(tree, seen)
        copy = tree.copy()
        for child in list(copy.iter_expressions()):
            child.replace(self._lifted(child, seen)) if not isinstance(child, exp.DataType | exp.Identifier) else None
        return copy

    def _key_of(self, tree: exp.Expr) -> str | None:
        keys = {name: key for name, key in self.keys.items() if name != ALL_ROWS or not isinstance(key, exp.Literal)}
        exact = next((name for name, key in keys.items() if key == tree), None)
        if exact is not None or isinstance(tree, exp.Literal):
            return exact
        found = [name for name, key in keys.items() if alike(key, tree)]
        return found[0] if len(found) == 1 else None

    def _alias(self, column: exp.Column, seen: frozenset[str]) -> exp.Expr:
        name = column.name.lower()
        for item in self.select.expressions:
            if not column.table and item.alias.lower() == name and name not in seen:
                self.aliases.add(name)
                made = self._lifted(item.unalias(), seen | {name})
                return made if isinstance(made, exp.Column) else exp.Paren(this=made)
        call = column.parent.name if isinstance(column.parent, exp.Anonymous) else ""
        own = f"for one of your own, write key and aggregates in place of query: {{name: {{function: {call}}}}}"
        near = f"{call} is none of Spark's, {close}" if "?" in (close := nearest(call.lower(), AGGREGATES)) else own
        raise unmet("columns that are grouped by, or in an aggregate", shown(column), near if call else "")

    def _grouping(self, tree: exp.Expr) -> exp.Expr:
        if not self.sets:
            raise unmet("ROLLUP, CUBE or GROUPING SETS with grouping functions", shown(tree))
        if call_name(tree) != "grouping":
            return exp.cast(_column(self.grouping), "bigint")
        names = [name for name in self.keys if name != self.grouping]
        key = self._key_of(tree.expressions[0])
        if key is None:
            raise unmet("a key in grouping()", shown(tree))
        shift = len(names) - 1 - names.index(key)
        bit = exp.Anonymous(this="shiftright", expressions=[_column(self.grouping), exp.Literal.number(shift)])
        return exp.cast(exp.Paren(this=exp.BitwiseAnd(this=bit, expression=exp.Literal.number(1))), "tinyint")

    def _call(self, tree: exp.Expr, name: str = "") -> exp.Expr:
        """The column of an aggregate, which is added if no equal one is there."""
        node, condition, marked = tree, None, False
        while not isinstance(node, exp.Anonymous):
            if isinstance(node, exp.Filter):
                condition = node.expression.this
            else:  # WITHIN GROUP, IGNORE NULLS, RESPECT NULLS
                marked = True
            node = node.this
        function, arguments = call_name(node), list(node.expressions)
        for argument in arguments:
            if any(calls(argument)) or list(argument.find_all(exp.Query, exp.Window)):
                raise unmet("arguments of one row in an aggregate", shown(tree))
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = list(arguments[0].expressions)
        found = call_of(function, arguments, distinct=distinct)
        of_nulls = condition is not None and found is not None and found.function in {"first", "approx_top_k"}
        if found is not None and (marked or of_nulls):
            found = found._replace(options={"ignore_nulls": True}) if function == "any_value" else None
        call = self._spark_call(tree) if found is None else self._own_call(found, condition)
        for known, other in self.aggregates.items():
            if other == call:
                return self._result_of(known)
        parts = [function, *(one.name for one in arguments if isinstance(one, exp.Column | exp.Dot))]
        named = self._free(name or re.sub(r"[^A-Za-z0-9_]", "_", "_".join(parts))[:90])
        self.aggregates[named] = call
        return self._result_of(named)

    def _result_of(self, name: str) -> exp.Expr:
        """An aggregate's column; of no rows at all, a count is 0 and a collection is empty."""
        nothing: exp.Expr | None = None
        function = str(self.aggregates[name]["function"])
        if function.startswith(("collect", "approx_top_k")):
            nothing = exp.Anonymous(this="array")
        elif function.startswith(("count", "approx_count", "regr_count")):
            nothing = exp.Literal.number(0)
        if nothing is None or ALL_ROWS not in self.keys:
            return _column(name)
        return exp.Anonymous(this="coalesce", expressions=[_column(name), nothing])

    def _own_call(self, found: Any, condition: exp.Expr | None) -> dict[str, Any]:
        call: dict[str, Any] = {"function": found.function}
        columns = list(found.columns.items())
        if not columns and condition is not None:
            columns = [("column", exp.Literal.number(1))]
        for place, (option, tree) in enumerate(columns):
            # Aggregates pass over rows in which what they are of, or what orders it, is null.
            filtered = condition is not None and place in {0, len(columns) - 1}
            if filtered and condition is not None:
                tree = exp.Case(ifs=[exp.If(this=condition.copy(), true=tree.copy())])  # noqa: PLW2901
            call[option] = self._argument(tree)
        return call | dict(found.options)

    def _spark_call(self, tree: exp.Expr) -> dict[str, Any]:
        """A call that Spark computes where all rows of a key are; its columns are those of the rows."""
        copy = exp.Paren(this=tree.copy())
        for column in list(columns_of(copy)):
            path: exp.Expr = column
            while isinstance(path.parent, exp.Dot):
                path = path.parent
            path.replace(exp.column(self._argument(path.copy())))
        return {"function": "spark", "expression": written(copy.this)}

    def _argument(self, tree: exp.Expr) -> str:
        """The column of the rows that an argument is, which is added if it is new."""
        key = next((name for name, key in self.keys.items() if key == tree), None)
        if key is not None and not self.sets:  # of several sets, a key is null where it is not grouped by
            return key
        for known, column in self.columns.items():
            if column == tree:
                return known
        taken = {name.lower() for name in (*self.keys, *self.columns)}
        wanted = tree.name if isinstance(tree, exp.Column | exp.Dot) else ""
        free = (name for number in count() if (name := f"a{number}") not in taken)
        name = wanted if wanted and wanted.lower() not in taken else next(free)
        self.columns[name] = tree
        return name

    def _joined(self) -> tuple[Joined | None, str]:
        """How states are joined in place of rows, or why they cannot be."""
        if not self.select.args.get("joins"):
            return None, ""
        keys = {name: tree for name, tree in self.keys.items() if name != self.grouping}
        read = {call.get(field) for call in self.aggregates.values() for field in ("column", "other", "by")}
        arguments = self.columns | {name: tree for name, tree in keys.items() if name in read}
        try:
            if odd := next((call for call in self.aggregates.values() if call["function"] == "spark"), None):
                raise unmet("aggregates whose states can be merged", odd["expression"])
            split = Split(self.select, keys, arguments, INPUT)
        except PydanticCustomError as err:
            return None, "expected {required}, but got {came}".format(**(err.context or {}))
        joined = split.keys | {STATE: exp.column(STATE, table=split.alias)}
        query = self._expanded(split.above, joined) if self.sets else _selected(split.above, joined)
        tables = frozenset(table.name.lower() for table in split.above.find_all(exp.Table)) - {INPUT}
        return Joined(_of_input(split.below, split.items | arguments), tuple(split.items), query, tables), ""

    def _rows(self) -> str | None:
        """In SQL, keys and arguments of each row of the input."""
        select = self.select.copy()
        for clause in ("group", "having", "order", "distinct"):
            select.set(clause, None)
        items = {name: tree for name, tree in (*self.keys.items(), *self.columns.items()) if name != self.grouping}
        return self._expanded(select, items) if self.sets else _of_input(select, items)

    def _expanded(self, select: exp.Select, items: Mapping[str, exp.Expr]) -> str:
        """Each row once for each grouping set, with null in place of keys that the set has not."""
        keys = [name for name in self.keys if name != self.grouping]
        structs = []
        for mask in self.sets:
            held = [not mask >> (len(keys) - 1 - at) & 1 for at in range(len(keys))]
            fields = [f"'{at}', `{key}`" if kept else f"'{at}', if(true, NULL, `{key}`)"
                      for at, (key, kept) in enumerate(zip(keys, held, strict=True))]  # fmt: skip
            structs.append(f"named_struct({', '.join(fields)}, 'set', {mask})")
        aliases = ", ".join(f"`{key}`" for key in (*keys, self.grouping))
        rest = "".join(f", m.`{name}`" for name in items if name not in keys)
        chosen = ", ".join(f"g.`{key}`" for key in (*keys, self.grouping))
        expanded = f"inline(array({', '.join(structs)})) g AS {aliases}"
        rows = _selected(select, items)
        return written(parsed(f"SELECT {chosen}{rest} FROM ({rows}) AS m LATERAL VIEW {expanded}"))  # noqa: S608

    def _order(self, select: exp.Select, outer: Mapping[str, exp.Expr]) -> Iterator[str]:
        order = select.args.get("order")
        names = list(outer)
        for one in order.expressions if order else ():
            tree, descending = one.this, bool(one.args.get("desc"))
            if isinstance(tree, exp.Literal) and tree.name.isdigit() and 1 <= int(tree.name) <= len(names):
                name = names[int(tree.name) - 1]
            else:
                columns = [
                    known for known in names if isinstance(tree, exp.Column) and known.lower() == tree.name.lower()
                ]
                columns = columns or [name_of(item) for item in select.expressions
                                  if alike(item.unalias(), tree)]  # fmt: skip
                if not columns:
                    raise unmet("ORDER BY what is published", shown(one))
                name = columns[0]
            nulls_first = one.args.get("nulls_first")
            if nulls_first is not None and bool(nulls_first) == descending:
                raise unmet("nulls first where it ascends, and last where it descends, in ORDER BY", shown(one))
            yield f"{name} desc" if descending else name


def _starless(select: exp.Select, below: Mapping[str, exp.Expr]) -> Iterator[exp.Expr]:
    """The select list above an aggregation, where a star is all that is below."""
    if select.args.get("distinct") or any(select.find_all(exp.Window)):
        raise unmet("above the aggregation, expressions of one result", shown(select))
    for item in select.expressions:
        if plain(item) == "*":  # of the only table there
            yield from (exp.column(name, quoted=True) for name in below)
        elif item.is_star:
            raise unmet("columns by name", shown(item))
        elif not name_of(item):
            raise unmet("a name for each expression that is published, as in '... AS name'", shown(item))
        else:
            yield item


def _substituted(tree: exp.Expr, below: Mapping[str, exp.Expr], select: exp.Select) -> exp.Expr:
    """An expression of a SELECT over the columns of the level below, over what these are."""
    alias, known = select.args["from_"].this.alias.lower(), {name.lower(): one for name, one in below.items()}
    copy = exp.Paren(this=tree.unalias().copy())
    if any(copy.find_all(exp.Query)):
        raise unmet("no subquery above the aggregation", shown(tree))
    for column in list(copy.find_all(exp.Column)):
        root, *fields = column.parts
        if fields and root.name.lower() == alias and fields[0].name.lower() in known:
            root, *fields = fields
        if root.name.lower() not in known:
            raise unmet(f"columns of the query below ({nearest(root.name, below)})", shown(column))
        one = known[root.name.lower()].copy()
        one = one if isinstance(one, exp.Column) and not fields else exp.Paren(this=one)
        column.replace(exp.Dot.build([one, *fields]) if fields else one)
    inner: exp.Expr = copy.this
    return inner


def _of_input(select: exp.Select, items: Mapping[str, exp.Expr]) -> str | None:
    """In SQL, expressions by their names over FROM and WHERE of a query; None for columns of the input as they are."""
    more = any(select.args.get(name) for name in ("joins", "laterals", "where", "hint"))
    bare = isinstance(select.args["from_"].this, exp.Table) and not more
    same = bare and all(_is_column(one, name, exactly=True) for name, one in items.items())
    return None if same else _selected(select, items)


def _selected(select: exp.Select, items: Mapping[str, exp.Expr]) -> str:
    select.set("expressions", [_named(tree.copy(), name) for name, tree in items.items()])
    return written(select)


def _is_column(tree: exp.Expr, name: str, *, exactly: bool = False) -> bool:
    if not isinstance(tree, exp.Column):
        return False
    return tree.name == name if exactly else tree.name.lower() == name.lower()


def _column(name: str) -> exp.Column:
    return exp.column(identifier(name))


def _named(tree: exp.Expr, name: str) -> exp.Expr:
    return exp.alias_(tree, identifier(name), copy=False)
