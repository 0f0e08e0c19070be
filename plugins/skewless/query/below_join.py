"""Joins that need not be made below the aggregation: states are joined when they are merged, in place of rows.

A join gives a row those of a lookup that match it, which depends on some columns of the row alone. So the state of all
rows that are alike in these, merged once for each match, is the state of the joined rows, however often a lookup has a
key. (Chaudhuri and Shim, Including Group-By in Query Optimization, 1994, who have results in place of states, and so
need unique keys.)
"""

from collections.abc import Iterator, Mapping

from sqlglot import exp

from skewless.document import unmet
from skewless.query.sql import call_name, columns_of, identifier, name_of, plain, select_of, shown

#: What may be computed of rows that a join leaves out, as it fails of no value; of functions, their names.
_TOTAL = (
    exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Neg,
    exp.Case, exp.If, exp.Predicate, exp.Connector, exp.Not,
)  # fmt: skip
_TOTAL_CALLS = frozenset((
    "abs", "coalesce", "concat", "date_trunc", "day", "greatest", "if", "ifnull", "isnan", "isnotnull", "isnull",
    "least", "length", "lower", "month", "nanvl", "nullif", "nvl", "quarter", "struct", "substr", "substring", "trim",
    "upper", "year",
))  # fmt: skip


class Split:
    """A SELECT that aggregates joined rows, in two: of rows, and of their states and what these are joined to.

    Args:
        keys: by their names.
        arguments: of its aggregates, by their names.
        states: the table of states, for the second.

    Attributes:
        below: FROM and WHERE of what states are made of.
        items: by name, the expressions over it by which there are states.
        above: FROM and WHERE of states, called ``alias``, and lookups.
        keys: by name, the keys of the query over these.

    Raises:
        ValueError: rows have to be joined before they are aggregated; the sentence says why.
    """

    def __init__(
        self, select: exp.Select, keys: Mapping[str, exp.Expr], arguments: Mapping[str, exp.Expr], states: str
    ) -> None:
        self._keys, self._arguments = keys, arguments
        self._joins: dict[str, exp.Join] = {}
        #: By what FROM calls a table, in lower case, the names of its columns, if these are written out.
        self._columns: dict[str, frozenset[str] | None] = {}
        first = select.args["from_"].this
        self._add(first)
        for join in select.args["joins"]:
            self._joins[self._add(join.this, semi=join.kind in {"SEMI", "ANTI"})] = join
        laterals = select.args.get("laterals") or ()
        for lateral in laterals:
            self._add(lateral)
        self._where = list(_conjuncts(select.args.get("where")))
        parts = (*self._where, *(join.args.get("on") for join in self._joins.values()), *keys.values())
        if inner := next((one for part in parts if part is not None for one in part.find_all(exp.Query)), None):
            raise unmet("conditions of single rows", shown(inner))
        odd = (alias for alias, join in self._joins.items()
               if join.args.get("using") or not isinstance(join.this, exp.Table | exp.Subquery))  # fmt: skip
        self.alias: str = first.alias_or_name
        self._below = {self.alias.lower(), *odd, *(one.alias.lower() for one in laterals)}
        for tree in (*arguments.values(), *(lateral.this for lateral in laterals)):
            self._below |= self._tables(tree)
        while more := set(self._needed()) - self._below:
            self._below |= more
        self._divide(select, states)

    def _add(self, source: exp.Expr, *, semi: bool = False) -> str:
        alias = source.alias_or_name.lower()
        if not alias or alias in self._columns or source.args.get("joins") or source.args.get("laterals"):
            raise unmet("a name for each table of FROM", shown(source))
        names: list[str] = []
        if isinstance(source, exp.Subquery) and not semi:
            names = [name_of(item) for item in select_of(source.this).expressions]
        elif isinstance(source, exp.Lateral):
            names = [one.name for one in source.args["alias"].args.get("columns") or ()]
        self._columns[alias] = frozenset(name.lower() for name in names) if names and all(names) else None
        return alias

    def _owner(self, column: exp.Column) -> str:
        """What FROM calls the table that a column is of."""
        name, *rest = (str(part.name).lower() for part in column.parts)
        if rest and name in self._columns:
            return name
        if name == "_metadata":
            return self.alias.lower()
        of_these = [alias for alias, names in self._columns.items() if names and name in names]
        of_these = of_these or [alias for alias, names in self._columns.items() if names is None]
        if len(of_these) != 1:
            raise unmet("columns with the names of their tables", shown(column))
        return of_these[0]

    def _tables(self, tree: exp.Expr) -> set[str]:
        return {self._owner(column) for column in columns_of(tree)}

    def _needed(self) -> Iterator[str]:
        """The tables that rows are joined to below, as something there reads them or says more than what is equal."""
        for alias, join in self._joins.items():
            for part in _conjuncts(join.args.get("on")):
                if alias in self._below:
                    yield from self._tables(part)
                elif not self._divides(part):
                    yield from {alias, *self._tables(part)}
        for part in self._where:
            if not self._divides(part):
                yield from self._tables(part)

    def _divides(self, part: exp.Expr) -> bool:
        """Whether a condition is of one side, or says that an expression of one side equals one of the other."""
        part = part.unnest()
        if len({one in self._below for one in self._tables(part)}) < 2:
            return True
        sides = [part.this, part.expression] if isinstance(part, exp.EQ | exp.NullSafeEQ) else []
        return bool(sides) and all(len({one in self._below for one in self._tables(side)}) == 1 for side in sides)

    def _divide(self, select: exp.Select, states: str) -> None:
        joins = {alias: join for alias, join in self._joins.items() if alias not in self._below}
        if not joins:
            raise unmet("a lookup that no aggregate reads, joined by what is equal", ", ".join(self._joins))
        where = [part for part in self._where if not self._tables(part) <= self._below]
        if where or any(join.side != "LEFT" or join.kind in {"SEMI", "ANTI"} for join in joins.values()):
            self._require_total()
        of_rows = {name: self._tables(key) for name, key in self._keys.items()}
        self.items = {name: self._keys[name] for name, of in of_rows.items() if of and of <= self._below}
        self.keys = {name: self._lifted(key) for name, key in self._keys.items()}
        kept = [join.copy() for alias, join in self._joins.items() if alias in self._below]
        below = [part for part in self._where if part not in where]
        self.below = exp.Select(from_=select.args["from_"].copy(), joins=kept, laterals=select.args.get("laterals"))
        self.below = self.below.where(*below).copy()
        self.above = exp.Select(hint=select.args.get("hint")).from_(exp.table_(states, alias=self.alias)).copy()
        for join in (join.copy() for join in joins.values()):
            if on := join.args.get("on"):
                join.set("on", self._lifted(on))
            self.above.append("joins", join)
        self.above = self.above.where(*map(self._lifted, where))
        if not self.items:
            raise unmet("states with a key", "none that the query reads")

    def _require_total(self) -> None:
        """A row that a join leaves out must not make the query fail."""
        for tree in self._arguments.values():
            for node in tree.walk():
                total = call_name(node) in _TOTAL_CALLS if isinstance(node, exp.Anonymous) else isinstance(node, _TOTAL)
                if not total:
                    raise unmet("arguments of aggregates that fail on no row that a join leaves out", shown(node))

    def _lifted(self, tree: exp.Expr) -> exp.Expr:
        """An expression over states and lookups: what is of rows alone is a column of states, added if it is new."""
        tables = self._tables(tree)
        if not tables & self._below:
            return tree.copy()
        if tables <= self._below and not isinstance(tree, exp.Alias):
            known = (name for name, one in {**self._arguments, **self.items}.items() if self._same(one, tree))
            name = next(known, "") or self._free(tree.name if isinstance(tree, exp.Column) else "j0")
            self.items.setdefault(name, tree)
            return exp.column(identifier(name), table=self.alias)
        copy = tree.copy()
        for child, made in [(child, self._lifted(child)) for child in copy.iter_expressions()]:
            child.replace(made)
        return copy

    def _same(self, one: exp.Expr, other: exp.Expr) -> bool:
        owners = ([*map(self._owner, columns_of(tree))] for tree in (one, other))
        return plain(one) == plain(other) and next(owners) == next(owners)

    def _free(self, wanted: str) -> str:
        taken = {name.lower() for name in (*self._keys, *self._arguments, *self.items)}
        names = (wanted, *(f"j{number}" for number in range(len(taken) + 1)))
        return next(name for name in names if name.lower() not in taken)


def _conjuncts(tree: exp.Expr | None) -> Iterator[exp.Expr]:
    tree = tree.this if isinstance(tree, exp.Where) else tree
    if tree is not None:
        yield from tree.flatten() if isinstance(tree, exp.And) else [tree]
