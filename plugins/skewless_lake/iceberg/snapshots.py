"""Snapshots of a table by which a part is replaced: what is in the part, what was published, and the commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pyiceberg.exceptions import BadRequestError, CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, Reference
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import ManifestGroupPlanner, Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.transforms import IdentityTransform

from skewless.errors import RunDirectoryError, SpecError
from skewless_lake.formats import RULES, reason, told, written
from skewless_lake.staged_files import OutputPart, TableRule, rules_digest

#: Commits upon one and the same state of a table that may fail: others hold its lock, or pyiceberg passed over a file.
_UPON_ONE_STATE = 10


def column_names(table: Table) -> list[str]:
    """The names of a table's columns."""
    return [field.name for field in table.schema().fields]


def rules_of(table: Table) -> tuple[TableRule, ...]:
    """What each row of a table must be: those who write its files hold to it."""
    return tuple(TableRule(name=f"NOT NULL {field.name}") for field in table.schema().fields if field.required)


def require_race(table: Table, target: OutputPart, failed: Counter[str], err: Exception) -> None:
    """See ``formats.TableFormat``; states of a table are told by their metadata."""
    del target
    failed[table.metadata_location] += 1
    if failed[table.metadata_location] > _UPON_ONE_STATE:
        raise SpecError.saying(
            f"table {'.'.join(table.name())}", f"its catalog does not commit to it ({reason(err)})",
            "see what the catalog says of it, or publish into a table of its own",
        ) from None  # fmt: skip


def earlier_files(table: Table, target: OutputPart, number: int | None = None) -> list[DataFile]:
    """The data files of a part in a snapshot, by default in the current one.

    Raises:
        SpecError: a file has rows of other parts too, as it is older than the table's partitions; or the part has
            equality deletes, which pyiceberg does not read.
    """
    snapshot = table.current_snapshot() if number is None else table.snapshot_by_id(number)
    if snapshot is None:
        return []
    condition: BooleanExpression = AlwaysTrue()
    for column, value in target.values.items():
        condition = And(condition, EqualTo(term=Reference(column), value=value))
    # A scan would also work out, file by file and for longer than all the rest, what of the condition is left to check.
    planner, found = ManifestGroupPlanner(table.metadata, table.io, condition), list[DataFile]()
    for file in (one.data_file for of in planner.plan_manifest_entries(snapshot.manifests(table.io)) for one in of):
        if file.content == DataFileContent.EQUALITY_DELETES:
            raise SpecError(
                f"table {'.'.join(table.name())}", "rows that are deleted by position", "equality deletes",
                "rewrite its data files by compaction, which applies them",
            )  # fmt: skip
        if file.content == DataFileContent.DATA:
            found.append(file)
    specs = table.specs()
    for file in found:
        whole = (field for field in specs[file.spec_id].fields if isinstance(field.transform, IdentityTransform))
        names = {table.schema().find_column_name(field.source_id) for field in whole}
        if not set(target.values) <= names:
            raise SpecError(
                f"table {'.'.join(table.name())}", f"a partition of its own for each {' and '.join(target.values)}",
                f"{file.file_path}, which is older than the table's partitions and may have rows of several",
                "rewrite the table's data files, or publish into a table of its own",
            )  # fmt: skip
    return found


def commit_part(table: Table, target: OutputPart, files: Sequence[DataFile], about: Mapping[str, str]) -> int:
    """Commit a snapshot upon the current one in which a part has just these files, and all others are as they were.

    Raises:
        CommitFailedException: another snapshot has become the current one, or pyiceberg has passed over a file.
        RunDirectoryError: the table requires more columns than when the files were written, or has other files in the
            part than these by then.
    """
    if rules_digest(rules_of(table)) != about.get(RULES, ""):
        raise RunDirectoryError.saying(
            f"table {'.'.join(table.name())}", "its required columns have changed since these files were written",
            "begin a new run",
        )  # fmt: skip
    base, before = table.current_snapshot(), earlier_files(table, target)
    kept = {file.file_path for file in files}
    # pyiceberg would apply the change to whatever is there by then: a part that was replaced in between would be there
    # twice. So nothing is tried again here.
    table.metadata = table.metadata.model_copy(
        update={"properties": {**table.metadata.properties, "commit.retry.num-retries": "0"}}
    )
    there = {file.file_path for file in before}
    try:
        with (
            table.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties=written(about)).overwrite() as change,
        ):
            for file in before:
                if file.file_path not in kept:
                    change.delete_data_file(file)
            for file in files:
                if file.file_path not in there:
                    change.append_data_file(file)
            made = change.snapshot_id
    except (ValueError, BadRequestError) as err:
        if "sequence number" not in str(err):
            raise
        # The next number is taken. Of most catalogs pyiceberg itself finds that, a REST catalog says it.
        raise CommitFailedException(str(err)) from None
    except ValidationException as err:
        # Threads of pyiceberg share what they prune manifests by, so one may pass over a manifest with files that are
        # to be replaced. It finds that they are missing then, and commits nothing.
        raise CommitFailedException(str(err)) from None
    found = table.snapshot_by_id(made)
    if found is None or found.parent_snapshot_id != (base.snapshot_id if base else None):
        raise AssertionError(f"snapshot {made} of {table.name()} was not committed upon {base and base.snapshot_id}")
    _require_just(table, target, made, kept)
    return made


def _require_just(table: Table, target: OutputPart, made: int, wanted: set[str]) -> None:
    """After a commit: a part has just the files that it was to have."""
    found = {file.file_path for file in earlier_files(table, target, made)}
    if found != wanted:
        raise RunDirectoryError(
            f"snapshot {made} of table {'.'.join(table.name())}", f"just the {len(wanted):,} files of the part",
            f"{len(found):,} files", "roll the table back to the snapshot before it, and begin a new run",
        )  # fmt: skip


def ours(table: Table) -> Iterator[tuple[Snapshot, dict[str, str]]]:
    """The published snapshots that runs of ours have made, newest first, with what their summaries say."""
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        about = told(snapshot.summary.additional_properties if snapshot.summary else {})
        if "part" in about:
            yield snapshot, about
