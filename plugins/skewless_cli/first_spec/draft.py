"""A first spec of an input, or of a statement that a job has; and the file of its DAG, with comments on each line."""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import yaml
from sqlglot import exp

from skewless.document import unmet
from skewless.errors import SpecError
from skewless.query.rows import tables_of
from skewless.query.sql import full_name, name_of, parsed, parsed_expression, select_of, shown, written
from skewless_cli.first_spec.profile import Column, Profile

#: So many candidates for the key are listed, and so many aggregates written.
_MOST_CANDIDATES, _MOST_AGGREGATES = 8, 16

_SPEC = """\
# A first spec, from a look at {rows:,} of about {listed:,} rows{of_day}. It is yours to change.
# docs/query.md of Skewless tells what the query may be, docs/spec.md all else; from this folder, without Airflow:
#   skewless check {name}.yaml{date}   # says whether it is good, and how it is understood
#   skewless run {name}.yaml{date}     # computes it
name: {name}  # of the job, of its DAG, and of its result

# When Airflow runs it, once the DAG is switched on: five fields of cron, in a time zone. Without it, by hand.
# A run at night computes the day before. Instead of cron, asset: 'skewless:NAME', a job.
{schedule}

# Spark SQL. Rows are grouped by the most skewed column of the sample; other ones, in their order:
{candidates}
query: |
{query}{left_out}

# The tables of the query: the first one of FROM, and others that it joins. {input_comment}
tables:
  {table}: {input}
{window}
# What must hold of the result, or nothing is published: expectations of Great Expectations, by their names.
quality:
  expectations:
    - {{type: expect_column_values_to_be_between, kwargs: {{column: row_count, min_value: 1}}}}

# Where a day is published at once: of a folder below it, as date=YYYY-MM-DD; of a table in the rows of its date.
output: {output}  # in a table: {{format: delta, path: ...}}, or iceberg
"""

DAG = '''\
"""The DAG of {name}.yaml, which lies beside this file: put both into Airflow's DAG folder, or write them there."""


from pathlib import Path

from skewless_airflow import build_dag

# Whatever Airflow's DAG takes may stand beside the spec, such as schedule="0 3 * * *", tags=["mine"] or a deadline.
# Between tasks of your own, skewless_airflow.adaptive_aggregation is the same as a group of tasks.
dag = build_dag(Path(__file__).with_name("{name}.yaml"))
'''


_TEMPLATE, _DAY = r"\{\{.*?\}\}|\{%.*?%\}|\$\{.*?\}", r"\d{4}-\d\d-\d\d"


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
    ...     "WITH c AS (SELECT a FROM d.c) INSERT INTO m.n PARTITION (d='{{ds}}') SELECT a, max(a) m FROM c GROUP BY 1;"
    ... )
    ... # doctest: +NORMALIZE_WHITESPACE
    Statement(query='WITH c AS (SELECT a FROM d.c) SELECT a, max(a) AS m FROM c GROUP BY 1', tables=('d.c',),
      target='m.n', other="SELECT * FROM m.n WHERE d = '{date}'")
    >>> statement_of("SELECT page, count(*) AS n FROM {{ ref('clicks') }} GROUP BY page")
    Traceback (most recent call last):
    pydantic_core._pydantic_core.PydanticCustomError: a query without templates
    """
    text = dedent(text).strip().rstrip(";").rstrip()
    if template := re.search(r"\{\{\s*(config|ref|source)\b.*?\}\}|\{%.*?%\}|\{#.*?#\}", text, re.DOTALL):
        raise unmet("a query without templates", template[0], "dbt compile writes it below target/compiled")
    tree, target, other, fixed = parsed(text), "", "", _TEMPLATE
    if isinstance(tree, exp.Insert | exp.Create):
        into, having, tree = tree.find(exp.Table), tree.args.get("with_"), tree.expression
        if into is None or tree is None:
            raise unmet("INSERT or CREATE TABLE with a query", shown(parsed(text)))
        tree, target = select_of(tree), full_name(into)
        tree.set("with_", having or tree.args.get("with_"))
        days = [
            re.sub(f"{_TEMPLATE}|{_DAY}", "{date}", written(one))
            for one in (into.args.get("partition") or exp.Partition()).expressions
            if isinstance(one, exp.EQ)
        ]
        # The day that is written is of one run; where the rows are chosen by it, too, it would be that of each.
        fixed = "|".join([_TEMPLATE, *re.findall(_DAY, str(into.args.get("partition", "")))])
        other = f"SELECT * FROM {target}" + (f" WHERE {' AND '.join(days)}" if days else "")  # noqa: S608  # nothing is run
        # Its own text, if the rest is all of it, has its lines and comments.
        begins = (text[one.start() :] for one in re.finditer(r"\b(WITH|SELECT)\b", text, re.IGNORECASE))
        text = next((rest for rest in begins if _parses_as(rest, tree)), written(tree))
    if template := re.search(fixed, text, re.DOTALL):
        raise unmet(
            "a query of all rows of its tables, not of one day", template[0],
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
        raise unmet('one call of spark.sql("...")', f"{len(calls)}", "write the query into a .sql file")
    text = getattr(calls[0].args[0], "value", None)
    if not isinstance(text, str):
        raise unmet(
            'a literal in spark.sql("...")', ast.unparse(calls[0].args[0])[:80], "write the query into a .sql file"
        )
    return text


def table_name(path: str) -> str:
    """A name for a table, from its path.

    >>> table_name("/lake/clicks/date={date}"), table_name("local.lake.clicks"), table_name("/2026.csv")
    ('clicks', 'clicks', 'rows')
    """
    pieces = [
        re.sub(r"(\.(parquet|orc|csv|tsv|jsonl?|ndjson|gz|bz2|xz|zst))+$", "", piece) for piece in path.split("/")
    ]
    plain = [piece for piece in pieces if piece and not re.search(r"[{}*?=]|:$|^\d+$", piece)]
    return plain_name(plain[-1].rpartition(".")[2] if plain else "rows", "table")


def plain_name(text: str, kind: str) -> str:
    """A name of letters, digits and underscores.

    >>> plain_name("clicks_by_Page URL", "job"), plain_name("2 €", "job")
    ('clicks_by_page_url', 'job_2')
    """
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lower()
    return (name if name[:1].isalpha() else f"{kind}_{name}".rstrip("_"))[:100]


def adopted_text(
    name: str, statement: Statement, tables: dict[str, dict[str, Any]], output: dict[str, Any], other: str
) -> str:
    """The YAML of a spec of a query that another job computes, beside which it is run."""
    lines = [f"  {line}".rstrip() for line in statement.query.splitlines()]
    sources = [f"  {table}: {_flow(source)}" for table, source in tables.items()]
    shadow = f"shadow: {_flow({'with': other})}  # without this line, it is published"
    text = [f"name: {name}", "query: |", *lines, "tables:", *sources, f"output: {_flow(output)}", shadow]
    return "\n".join(text) + "\n"


def spec_text(profile: Profile, name: str, output: dict[str, Any]) -> str:
    """The YAML of a first spec."""
    key, *_ = shown = profile.key_candidates[:_MOST_CANDIDATES]
    day = profile.day
    width = max(len(_column(column.name)) for column in shown)
    seen = "{0.values:,} values, the heaviest in {0.heaviest:.1%} of the rows" if profile.rows else "{0.kind}"
    if profile.days_by:
        comment = f"A run reads the rows of its day, by the column {profile.days_by}; at: pins a state of the table."
        window = "\n# Over how many days a result is: states are kept, and only changed rows are read.\nwindow: 1\n"
    elif day is not None:
        comment = "{date} is the day that a run computes, as in {date:%Y/%m/%d}."
        window = "# window: 28  # a result of 28 days, for which a night reads only rows that changed\n"
    else:
        comment, window = "All of them in each run; a path with {date} in it is that of a day.", ""
    if "columns" in profile.fields:
        comment += "\n# The types are those of the first lines."
    return _SPEC.format(
        rows=profile.rows,
        listed=max(profile.rows, profile.listed_rows),
        of_day=f" of {day}" if day and not profile.days_by else "",
        name=name,
        date=f" --date {day}" if day else "",
        schedule=f'{"" if day else "# "}schedule: {{cron: "0 2 * * *", timezone: UTC}}',
        input_comment=comment,
        query="\n".join(f"  {line}" for line in _query(profile, key, table_name(profile.fields["path"]))),
        table=table_name(profile.fields["path"]),
        input=_flow(profile.fields),
        window=window,
        candidates="\n".join(f"#   {_column(column.name):<{width}}  {seen.format(column)}" for column in shown),
        left_out="".join(f"\n{line}"[:200] for line in _left_out(profile, key)),
        output=_flow(output),
    )


def _flow(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1 << 20, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def _column(name: str) -> str:
    """A column as SQL has it: as it is, a field by its steps, all else in backticks."""
    if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", name, re.ASCII):
        with suppress(ValueError):  # a word of the language
            if name_of(parsed_expression(name)) == name.rpartition(".")[2]:
                return name
    return f"`{name.replace('`', '``')}`"


def _query(profile: Profile, key: Column, table: str) -> Iterator[str]:
    names = {"row_count", "date", "hour", "window", *(column.name.lower() for column in profile.columns)}
    others = [column for column in profile.columns if column.name != key.name and not column.constant]
    calls = [(column.name, *call) for column in others for call in _calls(column, profile.rows)][:_MOST_AGGREGATES]
    items = [("count(*) AS row_count", "")]
    for column, function, comment in calls:
        wanted = f"{column}_{'values' if function == 'approx_count_distinct' else function}"
        name = plain_name(wanted, "column")[:90]
        while name in names:
            name += "_2"
        names.add(name)
        items.append((f"{function}({_column(column)}) AS {name}", comment))
    yield f"SELECT {_column(key.name)},"
    yield from (f"  {item},{comment}" for item, comment in items[:-1])
    yield "  {}{}".format(*items[-1])
    yield f"FROM {_column(table)}"
    yield f"GROUP BY {_column(key.name)}"


#: What takes a column of a kind that no aggregate is written of, by how the kind begins.
_TAKEN_BY = {
    "map<": "{0}['NAME'] takes one of its values",
    "array<": "LATERAL VIEW explode({0}) AS item makes a row of each item",
    "": "a further key, or a column of max_by or collect_set",
}


def _left_out(profile: Profile, key: Column) -> Iterator[str]:
    """The columns that no aggregate is of, each with what would take it."""
    lines = list(profile.unread)
    for column in profile.columns:
        if column.name == key.name or any(_calls(column, profile.rows)):
            continue
        name, text = _column(column.name), next((str(one) for one in column.texts or () if one.as_py()), "")
        way = next(way for begin, way in _TAKEN_BY.items() if column.kind.startswith(begin)).format(name)
        if re.fullmatch(r"[-+]?\d[\d.,]*[.,]\d+", text):
            way = f"like {text}: columns: {{{name}: 'decimal(18,2)'}}, with options: {{locale: de}} if that is German"
        lines.append(f"{name}: {column.kind}; {way}")
    yield from ["# Left out:", *(f"#   {line}" for line in lines[:_MOST_AGGREGATES])] if lines else ()


def _calls(column: Column, rows: int) -> Iterator[tuple[str, str]]:
    if column.is_identity(rows):
        yield "approx_count_distinct", "  -- exact, and dearer: count(DISTINCT ...)"
    elif column.is_number:
        yield "sum", "  -- or avg, min, max, approx_percentile(..., 0.99)"
    elif column.is_time:
        yield "min", ""
        yield "max", ""


def write_new(folder: Path, texts: dict[str, str]) -> list[Path]:
    """Write new files into a folder, which is made; none that is there is written over."""
    paths = [folder / name for name in texts]
    there = next((path for path in paths if path.exists() or path.is_symlink()), None)
    if there is not None:
        raise SpecError.saying(str(there), "it is there already, and stays as it is", "give another --name, or --into")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts.values(), strict=True):
            with path.open("x", encoding="utf-8") as out:
                out.write(text)
    except OSError as err:
        fact = f"it cannot be written to ({err.strerror})"
        raise SpecError.saying(str(folder), fact, "name a folder by --into") from None
    return paths
