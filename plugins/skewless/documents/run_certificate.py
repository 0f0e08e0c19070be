"""What ``skewless certify`` writes of a run: an auditor's checker reads it, ``skewless_cli/check_certificate.py``."""

from pydantic import Field

from skewless.document import Count, Document, Frozen

#: Rows, and their hash, see ``skewless.document.HASHES``.
Total = tuple[Count, Count]


class Balance(Frozen):
    """What adds up: the totals ``of`` some rows, by their names, and of what was ``made`` of these."""

    what: str
    of: dict[str, Total]
    made: dict[str, Total]


class CertifiedFile(Frozen):
    """A file of the input or of the published table."""

    path: str
    size_bytes: Count
    version: str = ""
    """As ``InputFile`` has it, as are values and inner."""
    sha256: str = ""
    """Of its bytes, if the run has recorded it; else empty."""
    values: dict[str, str | None] = Field(default_factory=dict)
    inner: dict[str, str | None] = Field(default_factory=dict)
    rows: Count = 0
    """That the run has read of it, with the hash of their columns."""
    rows_hash: Count = 0
    unchecked: str = ""
    """Why its rows are not told; empty if they are."""


class CertifiedInput(Frozen):
    """The input as the run has pinned it: its files, and the columns that are read, with their types in DuckDB."""

    path: str
    format: str
    snapshot: str
    columns: dict[str, str]
    files: tuple[CertifiedFile, ...]


class CertifiedRows(Frozen):
    """The rows that were aggregated."""

    columns: dict[str, str]
    """That their hash is of, in order, with their types in DuckDB."""
    total: Total
    spark: str = ""
    """The query that makes them of the rows of ``input``; empty if these are the rows."""
    duckdb: str = ""
    """The same for DuckDB; empty if it is ``unchecked``, and why."""
    unchecked: str = ""


class CertifiedValue(Frozen):
    """A published column beside the key: its aggregate over the rows in DuckDB, and how far that may be off."""

    spark: str
    duckdb: str = ""
    within: dict[str, float] = Field(default_factory=dict)
    """``rel_tol`` and ``abs_tol`` of ``math.isclose``; equal if it is empty."""
    unchecked: str = ""


class CertifiedResult(Frozen):
    """The published table."""

    path: str
    snapshot: str
    columns: dict[str, str]
    """That the hash of its rows is of, in order, with their types in DuckDB."""
    files: tuple[CertifiedFile, ...]
    keys: dict[str, str]
    """The published name of each key column of the rows."""
    where: dict[str, int | None]
    """Of which rows the values are told."""
    values: dict[str, CertifiedValue]


class RunCertificate(Document):
    """That what a run has published was made of its input, with nothing lost, doubled or altered."""

    run: str
    job: str
    part: str
    query: str
    """Of the spec; empty where it has none."""
    skewless: str
    """The release that wrote it."""
    input: CertifiedInput
    rows: CertifiedRows
    balances: tuple[Balance, ...]
    result: CertifiedResult
