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
    """A file of the input or of the published table.

    Attributes:
        version: as ``InputFile`` has it, as are values and inner.
        sha256: of its bytes, if the run has recorded it; else empty.
        rows: that the run has read of it, with the hash of their columns.
        unchecked: why its rows are not told; empty if they are.
    """

    path: str
    size_bytes: Count
    version: str = ""
    sha256: str = ""
    values: dict[str, str | None] = Field(default_factory=dict)
    inner: dict[str, str | None] = Field(default_factory=dict)
    rows: Count = 0
    rows_hash: Count = 0
    unchecked: str = ""


class CertifiedInput(Frozen):
    """The input as the run has pinned it: its files, and the columns that are read, with their types in DuckDB."""

    path: str
    format: str
    snapshot: str
    columns: dict[str, str]
    files: tuple[CertifiedFile, ...]


class CertifiedRows(Frozen):
    """The rows that were aggregated.

    Attributes:
        columns: that their hash is of, in order, with their types in DuckDB.
        spark: the query that makes them of the rows of ``input``; empty if these are the rows.
        duckdb: the same for DuckDB; empty if it is ``unchecked``, and why.
    """

    columns: dict[str, str]
    total: Total
    spark: str = ""
    duckdb: str = ""
    unchecked: str = ""


class CertifiedValue(Frozen):
    """A published column beside the key: its aggregate over the rows in DuckDB, and how far that may be off.

    Attributes:
        within: ``rel_tol`` and ``abs_tol`` of ``math.isclose``; equal if it is empty.
    """

    spark: str
    duckdb: str = ""
    within: dict[str, float] = Field(default_factory=dict)
    unchecked: str = ""


class CertifiedResult(Frozen):
    """The published table.

    Attributes:
        columns: that the hash of its rows is of, in order, with their types in DuckDB.
        keys: the published name of each key column of the rows.
        where: of which rows the values are told.
    """

    path: str
    snapshot: str
    columns: dict[str, str]
    files: tuple[CertifiedFile, ...]
    keys: dict[str, str]
    where: dict[str, int | None]
    values: dict[str, CertifiedValue]


class RunCertificate(Document):
    """That what a run has published was made of its input, with nothing lost, doubled or altered.

    Attributes:
        query: of the spec; empty where it has none.
        skewless: the release that wrote it.
    """

    run: str
    job: str
    part: str
    query: str
    skewless: str
    input: CertifiedInput
    rows: CertifiedRows
    balances: tuple[Balance, ...]
    result: CertifiedResult
