"""A statement of a job that is there: its query, the tables that it reads, and the one that it writes."""

import ast
import re
from textwrap import dedent
from typing import NamedTuple

from sqlglot import exp

from skewless.document import unmet
from skewless.query.rows import tables_of
from skewless.query.sql import full_name, parsed, select_of, shown, written

_TEMPLATE = r"\{\{.*?\}\}|\{%.*?%\}|\$\{.*?\}"


class Statement(NamedTuple):
    """What a job is moved by."""

    query: str
    tables: tuple[str, ...]
    """By their full names, as the query has them."""
    target: str = ""
    """Of what is written, its full name; empty of a query alone."""
    other: str = ""
    """A query for what is there of a day, with ``{date}`` in the place of a day or a template."""


def statement_of(text: str) -> Statement:
    """A query, ``INSERT ... SELECT`` or ``CREATE TABLE ... AS SELECT``, taken apart.

    Raises:
        ValueError: it is none of these, or its query has templates.

    >>> statement_of(
    ...     "INSERT INTO marts.n PARTITION (ds='{{ ds }}') SELECT page, count(*) AS n FROM db.c GROUP BY page;"
    ... )
    ... # doctest: +NORMALIZE_WHITESPACE
    Statement(query='SELECT page, count(*) AS n FROM db.c GROUP BY page', tables=('db.c',), target='marts.n',
      other="SELECT * FROM marts.n WHERE ds = '{date}'")
    >>> statement_of("SELECT page, count(*) AS n FROM {{ ref('clicks') }} GROUP BY page")
    Traceback (most recent call last):
    pydantic_core._pydantic_core.PydanticCustomError: a query without templates
    """
    text = dedent(text).strip().rstrip(";").rstrip()
    if template := re.search(r"\{\{\s*(config|ref|source)\b.*?\}\}|\{%.*?%\}", text, re.DOTALL):
        raise unmet("a query without templates", template[0], "dbt compile writes it below target/compiled")
    tree, target, other = parsed(text), "", ""
    if isinstance(tree, exp.Insert | exp.Create):
        table, tree = tree.find(exp.Table), tree.expression
        if table is None or tree is None:
            raise unmet("INSERT or CREATE TABLE with a query", shown(parsed(text)))
        tree, target = select_of(tree), full_name(table)
        days = [
            re.sub(rf"{_TEMPLATE}|\d{{4}}-\d\d-\d\d", "{date}", written(one))
            for one in (table.args.get("partition") or exp.Partition()).expressions
            if isinstance(one, exp.EQ)
        ]
        other = f"SELECT * FROM {target}" + (f" WHERE {' AND '.join(days)}" if days else "")  # noqa: S608  # nothing is run
        # Its own text, if the rest is all of it, has its lines and comments.
        begins = (text[one.start() :] for one in re.finditer(r"\b(WITH|SELECT)\b", text, re.IGNORECASE))
        text = next((rest for rest in begins if _parses_as(rest, tree)), written(tree))
    if template := re.search(_TEMPLATE, text, re.DOTALL):
        raise unmet(
            "a query of all rows of its tables, without templates", template[0],
            "leave its condition out, and give the table a path with {date}",
        )  # fmt: skip
    return Statement(text, tables_of(select_of(tree)), target, other)


def _parses_as(text: str, tree: exp.Expr) -> bool:
    try:
        return parsed(text) == tree
    except ValueError:
        return False


def query_of_program(source: str) -> str:
    """The text of the only call ``.sql("...")`` of a Python program, which is not run.

    >>> query_of_program("n = spark.sql('SELECT 1 AS n').count()")
    'SELECT 1 AS n'
    """
    try:
        nodes = ast.walk(ast.parse(source))
    except SyntaxError as err:
        raise unmet("a Python program", str(err)) from None
    calls = [one for one in nodes if isinstance(one, ast.Call) and getattr(one.func, "attr", "") == "sql" and one.args]
    if len(calls) != 1:
        raise unmet('one call of spark.sql("...")', f"{len(calls)}")
    text = getattr(calls[0].args[0], "value", None)
    if not isinstance(text, str):
        raise unmet(
            'a literal in spark.sql("...")', ast.unparse(calls[0].args[0])[:80], "write the query into a .sql file"
        )
    return text
