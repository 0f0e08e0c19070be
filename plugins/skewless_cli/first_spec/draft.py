"""A first spec of an input, and the file of its DAG: comments say what each line does, and what else it could be."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from skewless.errors import SpecError
from skewless_cli.first_spec.profile import Column, Profile

#: So many candidates for the key are listed, and so many aggregates written.
_MOST_CANDIDATES, _MOST_AGGREGATES = 8, 16

_SPEC = """\
# A first spec, from a look at {rows:,} of about {listed:,} rows{of_day}. It is yours to change.
# docs/spec.md of Skewless tells all that it may say; from this folder, without Airflow:
#   skewless check {name}.yaml{date}   # says whether it is good
#   skewless run {name}.yaml{date}     # computes it
name: {name}  # of the job, of its DAG, and of its result

# When Airflow runs it, once the DAG is switched on: five fields of cron, in a time zone. Without it, by hand.
# A run at night computes the day before. Instead of cron, asset: 'skewless:NAME', a job.
{schedule}

# The rows to aggregate. {input_comment}
input: {input}
{window}
# The column, or the columns, by which rows are grouped. In the sample, the most skewed first:
{candidates}
key: {key}  # of several columns: [{key}, {another}]

# The columns of the result; docs/spec.md of Skewless tells the form, docs/aggregates.md all functions.
aggregates:
{aggregates}{left_out}

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


def job_name(path: str, key: str) -> str:
    """A name for a job, from its input and its key.

    >>> job_name("/lake/clicks/date={date}", "Page URL"), job_name("local.lake.clicks", "page")
    ('clicks_by_page_url', 'clicks_by_page')
    """
    pieces = [
        re.sub(r"(\.(parquet|orc|csv|tsv|jsonl?|ndjson|gz|bz2|xz|zst))+$", "", piece) for piece in path.split("/")
    ]
    plain = [piece for piece in pieces if piece and not re.search(r"[{}*?=]|:$|^\d+$", piece)]
    last = plain[-1].rpartition(".")[2] if plain else "rows"
    name = re.sub(r"[^A-Za-z0-9]+", "_", f"{last}_by_{key}").strip("_").lower()
    return (name if name[:1].isalpha() else f"job_{name}")[:100]


def spec_text(profile: Profile, name: str, output: dict[str, Any]) -> str:
    """The YAML of a first spec."""
    key, *others = profile.key_candidates
    shown, day = [key, *others][:_MOST_CANDIDATES], profile.day
    width = max(len(_flow(column.name)) for column in shown)
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
        input=_flow(profile.fields),
        window=window,
        candidates="\n".join(f"#   {_flow(column.name):<{width}}  {seen.format(column)}" for column in shown),
        key=_flow(key.name),
        another=_flow(others[0].name) if others else "another_column",
        aggregates="\n".join(_aggregates(profile, key)),
        left_out="".join(f"\n{line}"[:200] for line in _left_out(profile, key)),
        output=_flow(output),
    )


def _flow(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1 << 20, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def _aggregates(profile: Profile, key: Column) -> Iterator[str]:
    yield "  row_count: count"
    names = {"row_count", "date", "hour", "window", *(column.name.lower() for column in profile.columns)}
    others = [column for column in profile.columns if column.name != key.name and not column.constant]
    calls = [(column.name, *call) for column in others for call in _calls(column, profile.rows)]
    for column, function, comment in calls[:_MOST_AGGREGATES]:
        wanted = f"{column}_{'values' if function == 'approx_count_distinct' else function}"
        name = re.sub(r"[^A-Za-z0-9]+", "_", wanted).strip("_").lower()[:90]
        name = name if name[:1].isalpha() else f"column_{name}"
        while name in names:
            name += "_2"
        names.add(name)
        yield f"  {name}: {_flow({'function': function, 'column': column})}{comment}"


#: What takes a column of a kind that no aggregate is written of, by how the kind begins.
_TAKEN_BY = {
    "map<": "map: {{select: [\"{0}['NAME'] AS name\"]}} takes one of its values",
    "array<": "map: {{select: ['explode({0}) AS item']}} makes a row of each item",
    "": "a further key, or a column of max_by or collect_set",
}


def _left_out(profile: Profile, key: Column) -> Iterator[str]:
    """The columns that no aggregate is of, each with what would take it."""
    lines = list(profile.unread)
    for column in profile.columns:
        if column.name == key.name or any(_calls(column, profile.rows)):
            continue
        name, text = _flow(column.name), next((str(one) for one in column.texts or () if one.as_py()), "")
        way = next(way for begin, way in _TAKEN_BY.items() if column.kind.startswith(begin)).format(name)
        if re.fullmatch(r"[-+]?\d[\d.,]*[.,]\d+", text):
            way = f"like {text}: columns: {{{name}: 'decimal(18,2)'}}, with options: {{locale: de}} if that is German"
        lines.append(f"{name}: {column.kind}; {way}")
    yield from ["  # Left out:", *(f"  #   {line}" for line in lines[:_MOST_AGGREGATES])] if lines else ()


def _calls(column: Column, rows: int) -> Iterator[tuple[str, str]]:
    if column.is_identity(rows):
        yield "approx_count_distinct", "  # exact, and dearer: count_distinct"
    elif column.is_number:
        yield "sum", "  # or avg, min, max, {function: approx_percentile, percentage: 0.99}"
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
