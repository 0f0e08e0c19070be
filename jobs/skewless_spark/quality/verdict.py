"""What a validation says: figures of the result's columns, verdicts, and the reports for people and as JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType

from skewless.documents.commit import CommittedFile
from skewless.documents.job import Job
from skewless.documents.quality import BEFORE_EXAMPLES, Check, FailingKey, QualityReport
from skewless.run.directory import DOCUMENT, Attempt
from skewless.spec.result import Expectation as ExpectationSpec
from skewless_spark.sources.formats.input_files import quoted

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation


#: Aggregates that give a number for every key, even for a key without a value.
NEVER_NULL = frozenset({"count", "count_if", "count_distinct", "approx_count_distinct", "theta_sketch_estimate"})
#: Of more aggregates only the first have figures.
MOST_COLUMNS = 30


def column_figures(job: Job, frame: DataFrame) -> dict[str, tuple[int | None, float | None]]:
    """By aggregate, how many keys have none, and its mean; None where it was not computed, or is no number."""
    wanted = {}
    for at, (name, call) in enumerate(list(job.spec.values.items())[:MOST_COLUMNS]):
        column = F.col(quoted(name))
        if call is None or call.function not in NEVER_NULL:
            wanted[f"nulls_{at}"] = F.count_if(column.isNull())
        if isinstance(frame.schema[name].dataType, NumericType):
            wanted[f"mean_{at}"] = F.avg(column.cast("double"))
    row = frame.agg(*(column.alias(name) for name, column in wanted.items())).collect()[0].asDict() if wanted else {}
    means = {name: row.get(f"mean_{at}") for at, name in enumerate(job.spec.values)}
    return {
        name: (row.get(f"nulls_{at}"), mean if (mean := means[name]) is not None and math.isfinite(mean) else None)
        for at, name in enumerate(job.spec.values)
    }


#: The longest text of a value in a sentence, of a list of observed values, and of a fault.
VALUE_CHARS, LIST_CHARS, FAULT_CHARS = 40, 300, 200
#: The longest text of one column of a key, and of a whole key.
KEY_CHARS, LONGEST_KEY = 80, 200
EXAMPLES = 3

_COLUMNS = ("column", "column_A", "column_B", "column_list")


@dataclass(frozen=True)
class Verdict:
    """One expectation with its validation result."""

    expectation: Expectation
    found: dict[str, Any]
    """Its validation result as plain JSON."""
    fault: str = ""
    """Why it could not be evaluated, in one line; "" if it could."""
    key: tuple[str, ...] = ()
    """The columns by which rows are named; of those that it samples, all others but its own are shown."""

    @classmethod
    def of(cls, expectation: Expectation, found: dict[str, Any], key: Sequence[str] = ()) -> Self:
        """A verdict as Great Expectations returned it."""
        return cls(expectation, found, _fault(found.get("exception_info") or {}), tuple(key))

    @property
    def unexpected(self) -> int:
        """How many values were unexpected; 0 of an expectation that is not about single values."""
        return int(self.found["result"].get("unexpected_count") or 0)

    def judged(self, spec: ExpectationSpec, keys: int) -> Check:
        """The verdict on one of the spec's own expectations, of a result of so many keys."""
        check = self.check("result")
        if self.fault or spec.severity == "fail":
            return check
        if spec.too_many(self.unexpected, keys):
            found, before, examples = check.found.partition(BEFORE_EXAMPLES)
            said = f"{found}, at most {spec.at_most} may be{before}{examples}"
            return check.model_copy(update={"success": False, "found": said})
        return check.model_copy(update={"severity": spec.severity})

    @property
    def columns(self) -> list[str]:
        """The columns of the result that it is about."""
        kwargs = self.expectation.configuration.kwargs
        given = [kwargs[name] for name in _COLUMNS if name in kwargs]
        return [column for value in given for column in (value if isinstance(value, list | tuple) else [value])]

    @property
    def name(self) -> str:
        """Its type and arguments, as text."""
        return f"{self.expectation.expectation_type}({', '.join([*self.columns, *self._further])})"

    @property
    def _further(self) -> list[str]:
        given = self.expectation.configuration.kwargs
        # `ignore_row_if` is how we evaluate, not what is expected.
        return [f"{name}={_short(value)}" for name, value in given.items() if name not in (*_COLUMNS, "ignore_row_if")]

    def check(self, subject: str) -> Check:
        """The verdict as a line of our report."""
        result = self.found["result"]
        observed = _number(result["observed_value"]) if result.get("observed_value") is not None else ""
        return Check(
            subject=subject,
            expectation=self.expectation.expectation_type,
            column=", ".join(self.columns),
            success=bool(self.found["success"]),
            required=", ".join(self._further),
            observed=observed,
            found=self._numbers(result, observed),
            keys=self._keys(result),
        )

    def _keys(self, result: dict[str, Any]) -> tuple[FailingKey, ...]:
        """The keys of the rows that were sampled, each once, the largest values first."""
        found: dict[str, tuple[tuple[bool, float, str], str]] = {}
        for row in result.get("partial_unexpected_index_list") or []:
            named = key_words([row[column] for column in self.key])
            checked = [value for column, value in row.items() if column in self.columns and column not in self.key]
            words = ", ".join("null" if value is None else _number(value) for value in checked)
            shown = [f"{column}={'null' if value is None else _number(value)}" for column, value in row.items()
                     if column not in {*self.columns, *self.key}]  # fmt: skip
            number = len(checked) == 1 and isinstance(checked[0], int | float) and not isinstance(checked[0], bool)
            rank = _order(-checked[0] if number else None, named)
            found.setdefault(named, (rank, _cut("; ".join(filter(None, [words, *shown])), LIST_CHARS // 2)))
        return tuple(
            FailingKey(key=named, found=found[named][1]) for named in sorted(found, key=lambda key: found[key])
        )

    def _numbers(self, result: dict[str, Any], observed: str) -> str:
        if self.fault:
            return f"could not be evaluated: {self.fault}"
        if "unexpected_count" in result:
            return self._unexpected(result)
        if observed:
            return f"observed {observed}"
        if "observed_value" in result:
            return "there was no value to observe"
        return "holds" if self.found["success"] else "does not hold"

    def _unexpected(self, result: dict[str, Any]) -> str:
        considered = result["element_count"] - (result.get("missing_count") or 0)
        count = result["unexpected_count"] or 0  # null when there were no rows
        share = f" ({count / considered:.2%})" if count and considered else ""
        samples = {self._sample(value): value for value in result.get("partial_unexpected_list") or []}
        examples = sorted(samples, key=lambda text: _order(samples[text], text))[:EXAMPLES]
        named = f"{BEFORE_EXAMPLES}{', '.join(examples)}" if examples else ""
        return f"{count:,} of {considered:,} values unexpected{share}{named}"

    def _sample(self, value: Any) -> str:
        if isinstance(value, dict):  # a row of several columns
            value = [*value.values()]
        if isinstance(value, list) and "column" not in self.expectation.configuration.kwargs:
            return f"({', '.join(map(_short, value))})"
        return _short(value)


def _order(value: Any, text: str) -> tuple[bool, float, str]:
    number = isinstance(value, int | float)
    return (not number, value if number else 0, text)


def key_words(values: Sequence[Any]) -> str:
    """A key as text of bounded length: printable texts as they are, anything else as ``repr`` has it.

    >>> key_words(["/page/1"]), key_words([None, 7]), key_words([""]), key_words([" b"])
    ('/page/1', 'null, 7', "''", "' b'")
    """
    told = []
    for value in values:
        if isinstance(value, str) and value.isprintable() and value == value.strip() != "":
            told.append(_cut(value, KEY_CHARS))
        else:
            told.append("null" if value is None else _short(value, KEY_CHARS))
    return _cut(", ".join(told), LONGEST_KEY)


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars - 3]}..."


def _number(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}"
    return _short(value, LIST_CHARS if isinstance(value, list) else VALUE_CHARS)


def _short(value: Any, chars: int = VALUE_CHARS) -> str:
    """``repr``, which escapes line ends and NULs, of at most ``chars`` characters."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    text = "null" if value is None else repr(value[: chars + 1] if isinstance(value, str) else value)
    return _cut(text, chars)


def _fault(info: dict[str, Any]) -> str:
    """The first fault in one line. Great Expectations may report several, by the metric that failed."""
    several = [info] if "raised_exception" in info else [one for one in info.values() if isinstance(one, dict)]
    for one in several:
        if one.get("raised_exception"):
            message = str(one.get("exception_message") or "unknown fault")
            text = re.sub(r"\s+", " ", [message, *re.findall(r"Caused by: [\w.$]+: (.+)", message)][-1]).strip(" .")
            return _cut(text, FAULT_CHARS)
    return ""


#: The names of these files, which are kept as long as all documents of the run.
VALIDATION, PAGE = "validation.json", "report.html"

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#1b1f24;background:#fff}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.4em .6em;
border-bottom:1px solid #d8dee4;overflow-wrap:anywhere}code{font-size:.9em}.passed{color:#17653a}.failed{color:#a40e26;
font-weight:600}.warned,.quarantined{color:#7d4e00;font-weight:600}h1{margin-bottom:0}
"""


def write_reports(attempt: Attempt, job: Job, report: QualityReport, validation: dict[str, Any]) -> list[CommittedFile]:
    """Write both files into an attempt at the validation, which commits them.

    Args:
        validation: the result of Great Expectations, as it has it in JSON. Our own checks come into its ``meta``.
    """
    ours = [
        {"subject": check.subject, "success": check.success, "severity": check.severity, "sentence": check.sentence}
        for check in report.checks
    ]
    told = {"job": job.spec.name, "part": job.part.name, "success": report.success, "checks": ours}
    whole = {**validation, "meta": {**(validation.get("meta") or {}), "skewless": told}}
    texts = {
        VALIDATION: json.dumps(whole, ensure_ascii=False, indent=1, default=str),
        PAGE: page_of(job, report, str(attempt.run)),
    }
    files = []
    for name, text in texts.items():
        path = f"{attempt.run.root}/{attempt.folder}/{name}"
        with attempt.run.fs.open(path, "wb") as opened:
            opened.write(text.encode())
        files.append(attempt.described(DOCUMENT, path, 0))
    return files


def page_of(job: Job, report: QualityReport, run: str) -> str:
    """The report as one page of HTML, which needs no login, script or other file; all that it shows is escaped."""
    own = len(job.spec.quality.expectations)
    count, failures = report.failed_words(own)
    warnings = report.warnings(own) if report.success else []
    outcome, state = (f"{count}: {failures}", "failed") if not report.success else (
        ("warned", "warned") if warnings else ("passed", "passed")
    )  # fmt: skip
    title = f"{job.spec.name}, {job.part}: {state}"
    ledger = report.ledger
    balance = "it balances" if ledger.balanced else "; ".join(ledger.problems)
    facts = [
        f"{report.published_keys:,} of {report.keys:,} keys of the result may be published"
        if report.success else "Nothing of this run may be published.",
        f"{ledger.input_rows:,} rows in the input, {ledger.state_rows:,} in the states: {balance}",
        *warnings, *(report.bands.sentences if report.bands else ()),
    ]  # fmt: skip
    named = sorted(report.named(own), key=lambda pair: pair[1].success)  # what does not hold comes first
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(f'{job.spec.name}, {job.part}')}</h1><p class={state}>{escape(outcome)}</p>"
        f"<ul>{''.join(f'<li>{escape(fact)}</li>' for fact in facts)}</ul>"
        "<table><thead><tr><th>check<th>required<th>observed<th>verdict</tr></thead>"
        f"<tbody>{''.join(_row(name, check) for name, check in named)}</tbody></table>"
        f"<p>Run <code>{escape(run)}</code></p></body></html>\n"
    )


def _row(name: str, check: Check) -> str:
    keys = "; ".join(
        f"<bdi><code>{escape(key.key)}</code></bdi>" + (f": {escape(key.found)}" if key.found else "")
        for key in check.keys
    )
    observed = escape(check.found) + (f"<br>in {keys}" if keys else "")
    return (
        f"<tr><td>{escape(name)}<br><code>{escape(check.expectation)}</code><td>{escape(check.required)}<td>{observed}"
        f"<td class={check.verdict}>{check.verdict}</tr>"
    )
