"""Spark SQL as a tree, and back: functions keep the names that were written."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, ClassVar

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from skewless.document import one_line, unmet

#: What a table in FROM may have; a list of other names for columns would have to name them all.
_OF_TABLE = {"this", "alias", "db", "catalog", "joins", "laterals", "pivots"}
#: Those of functions whose arguments are not a plain list.
_OWN_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY", "POSITION")


class AsWritten(Spark):
    """Spark's dialect, in which a function is a name and its arguments, whatever other engines call it."""

    class Parser(Spark.parser_class):  # type: ignore[valid-type,misc]
        """A parser that knows no function but those with a syntax of their own."""

        #: So that a comma stays one: Spark knows it from CROSS JOIN.
        JOINS_HAVE_EQUAL_PRECEDENCE = False
        #: What ends GROUP BY ALL: these may be columns, too.
        QUERY_MODIFIER_TOKENS = Spark.parser_class.QUERY_MODIFIER_TOKENS - {TokenType.OFFSET, TokenType.WINDOW}
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        #: So that ``array(a, b)[0]`` is an element.
        ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse for name, parse in Spark.parser_class.FUNCTION_PARSERS.items() if name in _OWN_SYNTAX
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse
            for name, parse in Spark.parser_class.NO_PAREN_FUNCTION_PARSERS.items()
            if name in {"CASE", "IF"}
        }

    class Generator(Spark.generator_class):  # type: ignore[valid-type,misc]
        """A generator that writes a TIME of Spark 4.1 as one."""

        def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:
            """In SQL; a literal of TIME has been read as a cast."""
            if expression.to.is_type(exp.DataType.Type.TIME) and expression.this.is_string:
                return f"TIME {self.sql(expression, 'this')}"
            return str(super().cast_sql(expression, safe_prefix))


def parsed(text: str) -> exp.Expr:
    """The one statement of a text; a ``ValueError`` if it is none."""
    try:
        statements = [one for one in sqlglot.parse(text, read=AsWritten) if one is not None]
    except (SqlglotError, RecursionError) as err:
        faults = getattr(err, "errors", None)
        at = f"line {faults[0]['line']}, near {faults[0]['highlight']!r}: " if faults else ""
        said = re.split(" but got <|\\.\n", faults[0]["description"])[0] if faults else one_line(str(err), 80)
        raise unmet("a query of Spark SQL", f"{at}{said}") from None
    if len(statements) != 1:
        raise unmet("one query", f"{len(statements)} statements", "write it alone, with that of a view in WITH")
    return statements[0]


@lru_cache(maxsize=64)
def parsed_expression(text: str) -> exp.Expr:
    """An expression, with its name if it has one."""
    item: exp.Expr = select_of(parsed(f"SELECT {text}")).expressions[0]
    return item


def column_names(text: str) -> frozenset[str]:
    """In lower case, the names of all columns and fields that a query writes out."""
    tree = parsed(text)
    names = (part.name for node in tree.find_all(exp.Column, exp.Dot) for part in node.find_all(exp.Identifier))
    return frozenset(name.lower() for name in names)


def counts_places(text: str) -> bool:
    """Whether columns behind a star count by their places: in a UNION, or before a list of other names."""
    tree = parsed(text)
    lists = (one.args.get("alias") for one in tree.find_all(exp.CTE, exp.Subquery))
    return bool(tree.find(exp.Star)) and bool(tree.find(exp.SetOperation) or any(one and one.columns for one in lists))


def read_in(text: str) -> tuple[str, ...]:
    """The full names of the tables of a query, in lower case; one that is read twice stands twice.

    >>> read_in("SELECT 1 AS a FROM input JOIN db.Pages AS p")
    ('input', 'db.pages')
    """
    return tuple(full_name(table).lower() for table in parsed(text).find_all(exp.Table))


def select_of(tree: exp.Expr) -> exp.Select:
    """The tree, if it is a plain query."""
    while isinstance(tree, exp.Subquery | exp.Paren):
        tree = tree.this
    if isinstance(tree, exp.SetOperation):
        raise unmet("one SELECT", f"a {tree.key.upper()} of several; write its rows as one input")
    if not isinstance(tree, exp.Select):
        raise unmet("a query that begins with SELECT or WITH", shown(tree))
    return tree


def full_name(table: exp.Table) -> str:
    """The name of a table with those of its database and its catalog, as far as they are there."""
    return ".".join(str(part.name) for part in table.parts)


def identifier(name: str) -> exp.Identifier:
    """A name, in quotes if it is a word of SQL or holds other signs than those of names."""
    plain_name = re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) and name.upper() not in Spark.tokenizer_class.KEYWORDS
    return exp.Identifier(this=name, quoted=not plain_name)


def rename(table: exp.Table, name: str) -> None:
    """Read another table in the place of one, under the alias or the name of this one, if it is read as it is."""
    named, alias = table.args.get("alias"), table.alias_or_name
    odd = any(value and part not in _OF_TABLE for part, value in table.args.items())
    if odd or (named and (named.columns or not isinstance(named.this, exp.Identifier))):
        raise unmet("tables by their names in FROM, and columns by theirs", shown(table), "tables says what is read")
    table.set("db", None)
    table.set("catalog", None)
    table.set("this", identifier(name))
    if alias != name and not table.args.get("alias"):
        table.set("alias", exp.TableAlias(this=identifier(alias)))


def written(tree: exp.Expr) -> str:
    """The text of a tree."""
    return tree.sql(dialect=AsWritten, normalize_functions=False, comments=False)


def shown(tree: exp.Expr) -> str:
    """The text of a part of a query, short enough for a sentence."""
    return one_line(written(tree), 100)


def columns_of(tree: exp.Expr) -> Iterator[exp.Column]:
    """The columns in an expression, but for those of subqueries in it."""
    for node in tree.walk(prune=lambda one: isinstance(one, exp.Query) and one is not tree):
        if isinstance(node, exp.Column):
            yield node


def plain(tree: exp.Expr) -> str:
    """An expression as a text by which it is compared: without regard to case, and to the tables of its columns.

    Texts in quotes keep their case.
    """
    copy = tree.copy()
    for node in list(copy.walk()):
        if isinstance(node, exp.Column):
            node.set("table", None)
        if isinstance(node, exp.Identifier | exp.Anonymous):
            node.set("this", str(node.this).lower())
            node.set("quoted", None)
    return written(copy)


def alike(one: exp.Expr, other: exp.Expr) -> bool:
    """Whether expressions are the same, where a column without a table may be that of one.

    >>> page, mine, yours = map(parsed_expression, ("Page", "c.page", "p.page"))
    >>> alike(page, mine), alike(mine, yours)
    (True, False)
    """
    tables = ([column.table.lower() for column in tree.find_all(exp.Column)] for tree in (one, other))
    return plain(one) == plain(other) and all("" in pair or len(set(pair)) == 1 for pair in zip(*tables, strict=True))


def name_of(item: exp.Expr) -> str:
    """The name of an expression of a select list; empty if it has none of its own."""
    return str(item.alias_or_name) if isinstance(item, exp.Alias | exp.Column | exp.Dot | exp.Aliases) else ""


def call_name(node: exp.Expr) -> str:
    """The name of a function that is called, in lower case; empty if it is no call."""
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
