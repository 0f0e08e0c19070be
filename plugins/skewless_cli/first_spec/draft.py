"""A first spec of an input, and the file of its DAG: comments say what each line does, and what else it could be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from skewless.errors import SpecError
from skewless_cli.first_spec.profile import Column, Profile

#: So many candidates for the key are listed, and so many aggregates written.
_MOST_CANDIDATES, _MOST_AGGREGATES = 8, 16
#: Where a day of the result is, and what else the output could be.
_IN_FOLDER = ("below the folder, as date=YYYY-MM-DD", "  # in a table: {format: delta, path: ...}, or iceberg")
_IN_TABLE = ("in the rows of its date", "")

_SPEC = """\
# A first spec, from a look at {rows:,} of about {listed:,} rows{of_day}. It is yours to change.
# docs/spec.md of Skewless tells all that it may say; from this folder, without Airflow:
#   skewless check {name}.yaml{date}   # says whether it is good
#   skewless run {name}.yaml{date}     # computes it
name: {name}  # of the job, of its DAG, and of its result

{schedule}

# The rows to aggregate. {input_words}
input: {input}
{window}
# The column, or the columns, by which rows are grouped. In the sample, the most skewed first:
{candidates}
key: {key}  # of several columns: {pair}

# The columns of the result; docs/spec.md of Skewless tells the form, docs/aggregates.md all functions.
aggregates:
{aggregates}

# What must hold of the result, or nothing is published: expectations of Great Expectations, by their names.
quality:
  expectations:
    - {expectation}

# Where a day is published at once: {place}.
output: {output}{other_output}
"""

_DAG = '''\
"""The DAG of {name}.yaml, which lies beside this file: put both into Airflow's DAG folder, or write them there."""

from __future__ import annotations

from pathlib import Path

from skewless_airflow import build_dag

# Whatever Airflow's DAG takes may stand beside the spec, such as schedule="0 3 * * *", tags=["mine"] or a deadline.
# Between tasks of your own, skewless_airflow.adaptive_aggregation is the same as a group of tasks.
dag = build_dag(Path(__file__).with_name("{name}.yaml"))
'''


def job_name(given: str, key: str) -> str:
    """A name for a job, from its input and its key.

    >>> job_name("/lake/clicks/date={date}", "Page URL"), job_name("local.lake.clicks", "page")
    ('clicks_by_page_url', 'clicks_by_page')
    """
    pieces = [re.sub(r"(\.(parquet|orc|csv|tsv|jsonl?|ndjson|gz|bz2|xz|zst))+$", "", one) for one in given.split("/")]
    plain = [one for one in pieces if one and not re.search(r"[{}*?=]|:$|^\d+$", one)]
    last = plain[-1].rpartition(".")[2] if plain else "rows"
    words = re.sub(r"[^A-Za-z0-9]+", "_", f"{last}_by_{key}").strip("_").lower()
    return (words if words[:1].isalpha() else f"job_{words}")[:100]


def spec_text(profile: Profile, name: str, output: dict[str, Any]) -> str:
    """The YAML of a first spec."""
    candidates = profile.key_candidates
    key = candidates[0]
    pair = [key.name, candidates[1].name if len(candidates) > 1 else "another_column"]
    expectation = {
        "type": "expect_column_values_to_be_between", "kwargs": {"column": "row_count", "min_value": 1}
    }  # fmt: skip
    day, (place, other_output) = profile.day, _IN_TABLE if "format" in output else _IN_FOLDER
    return _SPEC.format(
        rows=profile.rows,
        listed=max(profile.rows, profile.listed_rows),
        of_day=f" of {day}" if day and not profile.days_by else "",
        name=name,
        date=f" --date {day}" if day else "",
        schedule=_schedule(profile),
        input_words=_input_words(profile),
        input=_flow(profile.fields),
        window=_window(profile),
        candidates="\n".join(_candidates(candidates, profile.rows)),
        key=_flow(key.name),
        pair=_flow(pair),
        aggregates="\n".join(_aggregates(profile, key)),
        expectation=_flow(expectation),
        place=place,
        output=_flow(output),
        other_output=other_output,
    )


def dag_text(name: str) -> str:
    """The Python file of the DAG of a spec in the same folder."""
    return _DAG.format(name=name)


def _flow(value: Any) -> str:
    """A value in one line of YAML."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1 << 20, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def _schedule(profile: Profile) -> str:
    words = "# When Airflow runs it, once the DAG is switched on: five fields of cron, in a time zone."
    if profile.day is None:
        return f'{words} Without it, by hand.\n# schedule: {{cron: "0 2 * * *", timezone: UTC}}'
    return (
        f"{words}\n# A run at night computes the day before. Instead of cron, asset: 'skewless:NAME', a job.\n"
        'schedule: {cron: "0 2 * * *", timezone: UTC}'
    )


def _input_words(profile: Profile) -> str:
    if profile.days_by:
        return f"A run reads the rows of its day, by the column {profile.days_by}; at: pins a state of the table."
    if profile.day is not None:
        return "{date} is the day that a run computes, as in {date:%Y/%m/%d}."
    told = "All of them in each run; a path with {date} in it is that of a day."
    return told if "columns" not in profile.fields else f"{told}\n# The types are those of the first lines."


def _window(profile: Profile) -> str:
    if profile.days_by:
        return "\n# Over how many days a result is: states are kept, and only rows that changed are read.\nwindow: 1\n"
    if profile.day is not None:
        return "# window: 28  # a result of 28 days, for which a night reads only rows that changed\n"
    return ""


def _candidates(candidates: list[Column], rows: int) -> Iterator[str]:
    shown = candidates[:_MOST_CANDIDATES]
    wide = max(len(_flow(one.name)) for one in shown)
    for one in shown:
        words = f"{one.values:,} values, the heaviest in {one.heaviest:.1%} of the rows" if rows else one.kind
        yield f"#   {_flow(one.name):<{wide}}  {words}"


def _aggregates(profile: Profile, key: Column) -> Iterator[str]:
    yield "  row_count: count"
    taken = {"row_count", "date", "hour", "window", *(one.name.lower() for one in profile.columns)}
    others = [one for one in profile.columns if one.name != key.name and not one.constant]
    wanted = [(one, *call) for one in others for call in _calls(one, profile.rows)]
    for one, function, words in wanted[:_MOST_AGGREGATES]:
        name = _free(f"{one.name}_{'values' if function == 'approx_count_distinct' else function}", taken)
        yield f"  {name}: {_flow({'function': function, 'column': one.name})}{words}"
    if wanted[_MOST_AGGREGATES:]:
        left = ", ".join(dict.fromkeys(_flow(one.name) for one, _, _ in wanted[_MOST_AGGREGATES:]))
        yield f"  # not yet of {left}"[:1000]


def _calls(one: Column, rows: int) -> Iterator[tuple[str, str]]:
    """The functions that suit a column, each with a comment."""
    if one.is_identity(rows):
        yield "approx_count_distinct", "  # exact, and dearer: count_distinct"
    elif one.is_number:
        yield "sum", "  # or avg, min, max, {function: approx_percentile, percentage: 0.99}"
    elif one.is_time:
        yield "min", ""
        yield "max", ""


def _free(wanted: str, taken: set[str]) -> str:
    """A name for a column of the result that no other one has; it is then taken."""
    plain = re.sub(r"[^A-Za-z0-9]+", "_", wanted).strip("_").lower()[:90]
    plain = plain if plain[:1].isalpha() else f"column_{plain}"
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}_{number}", number + 1
    taken.add(name)
    return name


def write_new(folder: Path, texts: dict[str, str]) -> list[Path]:
    """Write new files into a folder, which is made; none that is there is written over.

    Raises:
        SpecError: one of them is there already, or the folder cannot be written to; then none is written.
    """
    paths = [folder / name for name in texts]
    there = next((path for path in paths if path.exists() or path.is_symlink()), None)
    if there is not None:
        raise SpecError.saying(str(there), "it is there already, and stays as it is", "give another --name, or --into")
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts.values(), strict=True):
            with path.open("x", encoding="utf-8") as out:
                written.append(path)
                out.write(text)
    except OSError as err:
        for path in written:
            path.unlink()
        raise SpecError.saying(
            str(folder), f"it cannot be written to ({err.strerror})", "name a folder by --into"
        ) from None
    return written
