"""Publishing a run: into a folder, or as a commit of a table. The same call for all of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Mapping

from skewless.documents.job import Job
from skewless.documents.quality import QualityReport
from skewless.errors import RunDirectoryError
from skewless.run.directory import QUALITY_REPORT, QUALITY_STEP, RESULT_STEP, RunDirectory
from skewless.run.publication import (
    PUBLISHED,
    Identity,
    Overtaken,
    Publication,
    Turns,
    identity_of,
    publish,
    published_path,
    record_of,
    require_passed,
    turns_folder,
    turns_of_table,
)
from skewless_lake.commits import RULES, Commit, identity_in
from skewless_lake.refusals import told_plainly
from skewless_lake.staged import STAGED, OutputPart, StagedResult, rules_digest
from skewless_leases import Turns as StoredTurns
from skewless_leases import open_store


def turns_of(target: OutputPart) -> Turns:
    """The turns of the parts of a table."""
    return StoredTurns(open_store(turns_of_table(target.path, target.root)))


def publish_run(run: RunDirectory, now: dt.datetime) -> Publication:
    """Publish a validated result, unless a later run of the part has published.

    It may be killed, paused and called again at any moment, by several processes at once.

    Args:
        run: its directory.
        now: the time.

    Returns:
        The record; its ``superseded`` says by whom, if a later run has published.

    Raises:
        QualityError: the result failed validation.
        RunDirectoryError: a step before this has not committed, or what it wrote is gone.
        LostRaceError: others commit all the time, or are publishing the same part.
        UnreachableError: the store or the catalog of the table does not answer.
    """
    job = run.job()
    if not job.spec.output.is_table:
        return publish(run, StoredTurns(open_store(turns_folder(job.output_path))), now)
    steps = publishing_table(run, now)
    with told_plainly(job.output_path):
        while True:
            try:
                next(steps)
            except StopIteration as done:
                record: Publication = done.value
                return record


def publishing_table(run: RunDirectory, now: dt.datetime) -> Generator[str, None, Publication]:
    """``publish_run`` of a table, step by step: yields the name of each step that is done."""
    job, result = run.job(), run.committed(RESULT_STEP)
    report = run.committed_document(run.committed(QUALITY_STEP), QUALITY_REPORT, QualityReport)
    require_passed(run, report)
    if (record := record_of(run)) is not None:
        return record
    staged = run.read(STAGED, StagedResult)
    keys = result.count("keys")
    if staged.rows != keys or report.keys != keys:
        raise RunDirectoryError(
            f"staged result of {run}", f"{keys:,} rows, as the ledger has them", f"{staged.rows:,}", "begin a new run"
        )
    turns = turns_of(OutputPart.of(job))
    over = _overtaken(job, turns)
    commit = Commit(None, over)
    if over is None:
        held = rules_digest(staged.rules)
        about = {**summary_of(run, now), **_verdict(report), **({RULES: held} if held else {})}
        commit = yield from _committing(run, job, staged, about)
    if commit.over is None:
        turns.finish(job.part.name, job.turn, str(identity_of(run)))
        yield "finished"
    published = Publication(
        path=published_path(job),
        rows=result.count("rows"),
        keys=keys,
        turn=job.turn,
        superseded=commit.over,
        snapshot=commit.snapshot,
    )
    run.write_once(PUBLISHED, published)
    yield "recorded"
    return run.read(PUBLISHED, Publication)


def _committing(
    run: RunDirectory, job: Job, staged: StagedResult, about: Mapping[str, str]
) -> Generator[str, None, Commit]:
    if job.spec.output.format == "iceberg":
        from skewless_lake.iceberg import publishing as iceberg  # noqa: PLC0415  # an extra

        return (yield from iceberg.committing(run, OutputPart.of(job), job.turn, staged, about))
    from skewless_lake.delta import publishing as delta  # noqa: PLC0415  # an extra

    return (yield from delta.committing(run, OutputPart.of(job), job.turn, staged, about))


def _overtaken(job: Job, turns: Turns) -> Overtaken | None:
    standing = turns.look(job.part.name)
    if standing.finished <= job.turn:
        return None
    by = Identity.parse(standing.finisher, f"turns of {job.part.name} of {job.output_path}")
    return Overtaken(by=by, turn=standing.finished)


def require_fitting(target: OutputPart) -> None:
    """Refuse a table, if it is there already, whose partitions are not those that a result needs.

    Raises:
        SpecError: says which it has; or the catalog cannot be opened.
        UnreachableError: the store or the catalog does not answer.
    """
    with told_plainly(target.path):
        if target.output.format == "iceberg":
            from skewless_lake.iceberg import tables as iceberg  # noqa: PLC0415  # an extra

            iceberg.fitting_table(target)
        else:
            from skewless_lake.delta import tables as delta  # noqa: PLC0415  # an extra

            delta.fitting_table(target)


def turn_in_table(target: OutputPart) -> int:
    """The latest turn in which a part was published in its table, as the table's history says; 0 if none.

    Raises:
        SpecError: as ``require_fitting``: what a run would compute could not be published.
        UnreachableError: the store or the catalog does not answer.
    """
    with told_plainly(target.path):
        if target.output.format == "iceberg":
            from skewless_lake.iceberg import publishing as iceberg  # noqa: PLC0415  # an extra

            return iceberg.latest_turn(target)
        from skewless_lake.delta import publishing as delta  # noqa: PLC0415  # an extra

        return delta.latest_turn(target)


def published_parts(target: OutputPart) -> dict[str, tuple[str, Identity]]:
    """By part: the snapshot or version of its newest publication, and which run that was of.

    Args:
        target: any part of the table.

    Raises:
        UnreachableError: the store or the catalog does not answer.
    """
    with told_plainly(target.path):
        if target.output.format == "iceberg":
            from skewless_lake.iceberg import publishing as iceberg  # noqa: PLC0415  # an extra

            found = iceberg.newest(target)
        else:
            from skewless_lake.delta import publishing as delta  # noqa: PLC0415  # an extra

            found = delta.newest(target)
    return {part: (str(number), identity_in(told)) for part, (number, told) in found.items()}


def shown_by_table(job: Job) -> dict[str, Identity]:
    """By part of the table that a job publishes in: which run's result it shows, as its history says.

    Raises:
        UnreachableError: the store or the catalog does not answer.
    """
    return {part: by for part, (_, by) in published_parts(OutputPart.of(job)).items()}


def summary_of(run: RunDirectory, now: dt.datetime) -> dict[str, str]:
    """Where a result comes from, as texts by name: what the table's own history says of it."""
    job, result, me = run.job(), run.committed(RESULT_STEP), identity_of(run)
    table = job.source.pinned
    return {
        "job": job.spec.name,
        "part": job.part.name,
        "turn": str(job.turn),
        "run": me.run,
        "run-digest": me.job,
        "spec-digest": job.spec.digest(),
        "input": job.input_path,
        **({} if table is None else {"input-table": table.name, "input-snapshot": table.snapshot or "none"}),
        "input-rows": str(result.count("rows")),
        "result-rows": str(result.count("keys")),
        "at": now.astimezone(dt.UTC).isoformat(timespec="seconds"),
    }


def _verdict(report: QualityReport) -> dict[str, str]:
    """What the audit has found, as texts by name."""
    ledger = report.ledger
    read = f"{ledger.input_rows} rows reduced + {ledger.unchanged_rows} in kept states"
    return {"quality": f"passed, {len(report.checks)} checks", "ledger": f"{read} = {ledger.state_rows} in the result"}
