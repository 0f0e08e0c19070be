"""What is written beside the verdict of a run: the result of Great Expectations as JSON, and a report for people."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any

from skewless.documents.commit import CommittedFile
from skewless.documents.job import Job
from skewless.documents.quality import Check, QualityReport
from skewless.run.directory import DOCUMENT, Attempt

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
        f"<ul>{_items(facts)}</ul>"
        "<table><thead><tr><th>check<th>required<th>observed<th>verdict</tr></thead>"
        f"<tbody>{''.join(_row(name, check) for name, check in named)}</tbody></table>"
        f"<p>Run <code>{escape(run)}</code></p></body></html>\n"
    )


def _items(sentences: Iterable[str]) -> str:
    return "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)


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
