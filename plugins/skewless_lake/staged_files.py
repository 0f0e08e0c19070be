"""What is staged: the result of a run in files of the output's table, which no reader of the table sees yet."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from skewless.document import Count, Document, Frozen
from skewless.documents.job import Job
from skewless.publication.records import QUARANTINE
from skewless.run.directory import PUBLISH_STEP, QUALITY_STEP, RunDirectory
from skewless.spec.part import Part
from skewless.spec.result import Output

#: The folder of the records of what attempts were about to write into the table, a ``TableFiles`` each.
BEGUN = f"{PUBLISH_STEP}/begun"
#: Documents of the verdict: what is staged of the keys that are published, and of those in quarantine.
KEPT, HELD = "staged_kept.json", "staged_quarantine.json"
#: With ``output.partition`` of an hourly job: the column that says which hour a row is of.
HOUR_COLUMN = "hour"


class StagedFile(Frozen):
    """One file of the table, with all of its rows."""

    path: str
    """As the table's own format names it: a URI or, of a Delta table, a path below the table."""
    rows: Count
    size_bytes: Count
    statistics: str = ""
    """What the table's metadata says of the file's columns, as its format has it."""


class TableRule(Frozen):
    """What a table asks of each of its rows."""

    name: str
    """With which it is told, such as ``CHECK positive``."""
    condition: str = ""
    """In Spark's SQL, and must be true of each row; empty if those who write the files hold to it."""


def rules_digest(rules: Sequence[TableRule]) -> str:
    """A digest of the rules of a table; empty if it has none."""
    told = "\n".join(f"{rule.name}\t{rule.condition}" for rule in rules)
    return hashlib.sha256(told.encode()).hexdigest()[:16] if rules else ""


class TableFiles(Document):
    """Files that an attempt to stage was about to write, whether or not it came to that; see ``StagedFile.path``."""

    paths: tuple[str, ...]
    table: str = ""
    """The one that they are files of, see ``OutputPart.path``; empty for that of the output."""


class StagedResult(Document):
    """The result of a run, staged."""

    table: str
    """The output, as ``Job.output_path`` names it."""
    location: str
    """The folder or URL of the table."""
    files: tuple[StagedFile, ...]
    """Exactly the files of the result."""
    rules: tuple[TableRule, ...] = ()
    """What the table asks of each row, and the audit looks at."""

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self.files)


class OutputPart(NamedTuple):
    """A part of the table of an output: what one publication replaces."""

    output: Output
    """The section of the spec."""
    path: str
    """The table, as ``Job.output_path`` names it."""
    root: str
    part: Part
    """The day or the hour."""

    @classmethod
    def of(cls, job: Job) -> "OutputPart":
        """The one that a job computes."""
        return cls(job.spec.output, job.output_path, job.root, job.part)

    @classmethod
    def all_of(cls, job: Job) -> tuple["OutputPart", ...]:
        """Those that a job publishes in, in this order: of keys in quarantine, if some may be, and of its result."""
        output = cls.of(job)
        return (output.quarantine, output) if job.spec.quality.quarantines else (output,)

    @property
    def quarantine(self) -> "OutputPart":
        """The part of the table beside this one that has its keys in quarantine."""
        path = f"{self.output.path.rstrip('/')}{QUARANTINE}"
        output = self.output.model_copy(update={"path": path, "sort": (), "columns": "evolve"})
        return self._replace(output=output, path=f"{self.path.rstrip('/')}{QUARANTINE}")

    @property
    def values(self) -> dict[str, Any]:
        """The values of the columns that say which part a row is of: a date, and an hour as text."""
        values: dict[str, Any] = {self.output.partition: self.part.date}
        return values if self.part.hour is None else {**values, HOUR_COLUMN: self.part.hour}


def staged_parts(run: RunDirectory) -> list[tuple[OutputPart, StagedResult]]:
    """What is staged of a run to be published, in the order in which it is committed, see ``OutputPart.all_of``."""
    job, verdict = run.job(), run.commit_of(QUALITY_STEP)
    if verdict is None or not any(file.path.endswith(f"/{KEPT}") for file in verdict.files):
        return []
    names = (HELD, KEPT) if job.spec.quality.quarantines else (KEPT,)
    documents = [run.committed_document(verdict, name, StagedResult) for name in names]
    return list(zip(OutputPart.all_of(job), documents, strict=True))
