"""Publishing a run: into a folder, or as a commit of a table. The same call for all of them; and going back.

Whatever asks a table raises UnreachableError if its store or its catalog does not answer.
"""

import datetime as dt
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import NamedTuple

from skewless.documents.job import Job
from skewless.documents.nights import Finality
from skewless.documents.quality import State
from skewless.documents.step_documents import AS_IT_RAN, Replayed, Savings
from skewless.errors import LostRaceError, RunDirectoryError, SkewlessError, SpecError
from skewless.history import NightsStore, finality_of, tells_finality, with_run
from skewless.publication import folder_output
from skewless.publication.places import beside_folder, beside_output, beside_table
from skewless.publication.publish import Commit, Target, Turns, Validated, publish, publishing
from skewless.publication.records import (
    Identity,
    Overtaken,
    Publication,
    identity_of,
    publication_of,
    published_path,
    read_manifest,
    record_of,
    state_of,
)
from skewless.replay import as_it_ran, replay
from skewless.run.directory import FINALITY, RESULT_STEP, SAVINGS, RunDirectory, replay_document
from skewless.run.folder import is_object
from skewless.run.step_names import last_step_of
from skewless.savings import savings_of
from skewless.spec.result import Output
from skewless.spec.spec import JobSpec
from skewless_lake import bucket_output, partition_output
from skewless_lake.formats import (
    RULES,
    Race,
    fitting_table,
    identity_in,
    of_part,
    standing,
    summary_of,
    table_format,
    told_plainly,
)
from skewless_lake.partition_output import shown_parts
from skewless_lake.staged_files import OutputPart, StagedResult, rules_digest, staged_parts
from skewless_leases import Turns as StoredTurns
from skewless_leases import open_store

log = logging.getLogger(__name__)


def turns_of(spec: JobSpec, output_path: str, root: str) -> Turns:
    """The turns of the parts of an output."""
    return StoredTurns(open_store(f"{beside_output(spec, output_path, root)}/turns"))


def drawn_turn(spec: JobSpec, output_path: str, root: str, above: int = 0) -> int:
    """Draw the turn of a run that will publish, above one that is known to have been drawn (see ``draw_turn``)."""
    way = way_of(spec.output, output_path)
    return way.draw(spec.output, output_path, turns_of(spec, output_path, root), above)


def latest_turn(job: Job) -> int:
    """The latest turn in which a job's part, or its keys in quarantine, were published; 0 if none (``shown_turn``)."""
    return way_of(job.spec.output, job.output_path).shown_turn(job)


#: What a publication says of its keys in quarantine: the snapshot or version of the table beside that has them.
HELD_IN = "quarantine-snapshot"


def nights_of(job: Job) -> NightsStore:
    """Where the nights of a job are kept; of a job of hours, those of its hour."""
    folder = beside_output(job.spec, job.output_path, job.root)
    return NightsStore("/".join([folder, "nights", job.spec.name, *([job.hour[:2]] if job.hour else [])]))


def keep_night(run: RunDirectory, now: dt.datetime) -> Finality | None:
    """Add a published run to the nights of its job, unless that was done before; what it tells of finality, if it does.

    Publishing does not fail by it: the log says so, and the night is not among those that later ones are compared with.
    """
    try:
        job, record, report = run.job(), record_of(run), run.quality()
        if record is None or record.superseded is not None or report is None:
            return None
        if (told := run.finality()) is not None:
            return told
        night = partial(with_run, job=job, figures=report.figures, ledger=report.ledger, clock_day=now.date())
        kept = nights_of(job).change(night)
    except (SkewlessError, OSError) as err:
        log.warning("the figures of this night are not kept: %s", err)
        return None
    if not tells_finality(job):
        return None
    told = finality_of(kept, job, now.date())
    with suppress(SkewlessError, OSError):  # it is told all the same
        run.write_once(FINALITY, told)
    return told


def publish_run(run: RunDirectory, now: dt.datetime) -> Publication:
    """Publish a validated result, see ``publishing_run``."""
    return publish(publishing_run(run, now))


def publishing_run(run: RunDirectory, now: dt.datetime) -> Generator[str, None, Publication]:
    """See ``publishing``; a ``RunDirectoryError`` also if the run's spec has ``shadow``."""
    job = run.job()
    if not last_step_of(job.spec).publishes:
        raise RunDirectoryError.saying(
            f"run {run}", "it was begun with a spec with shadow, which publishes nothing", "begin a new run"
        )
    turns = turns_of(job.spec, job.output_path, job.root)
    return publishing(run, way_of(job.spec.output, job.output_path).target(run, now, turns), turns)


class TableOutput(Target):
    """A part of a table as the target of a publication, see ``skewless.publication.publish.Target``."""

    def __init__(self, run: RunDirectory, now: dt.datetime) -> None:
        super().__init__(run)
        self.now, self.day, self.where = now, self.job.part.name, self.job.output_path

    def plainly(self) -> AbstractContextManager[None]:
        """Errors of the table's library in one sentence."""
        return told_plainly(self.where)

    def shown(self) -> None:
        """What the table's own history says is looked up with each commit."""

    def stands(self) -> bool:
        """A commit that was made stays in the table's history."""
        return True

    def replace(self, turns: Turns) -> Generator[str, None, Commit]:
        """Commit what is staged: the keys in quarantine first, then what the output's readers see."""
        del turns
        result, report = self.run.committed(RESULT_STEP), Validated.of(self.run).report
        parts, keys = staged_parts(self.run), result.count("keys")
        rows = [staged.rows for _, staged in parts]
        expected = [report.quarantined_keys, report.published_keys][-len(parts) :]
        if report.keys != keys or rows != expected:
            observed = " and ".join(f"{count:,}" for count in rows) or "nothing"
            raise RunDirectoryError(
                f"staged result of {self.run}", f"{keys:,} rows, as the ledger has them", observed, "begin a new run"
            )
        ledger, commit = report.ledger, Commit()
        read = f"{ledger.input_rows} rows reduced + {ledger.unchanged_rows} in kept states"
        about = summary_of(self.run, self.now) | {
            "quality": f"passed, {len(report.checks)} checks",
            "ledger": f"{read} = {ledger.state_rows} in the result",
        }
        for part, staged in parts:
            commit = yield from _committing(part, staged, about, self.job.turn, self.me, commit.over)
            # What the output's commit names counts, and nothing else of that table.
            about |= {"quarantine-table": part.path, HELD_IN: str(commit.number), "quarantine-rows": str(staged.rows)}
        return commit

    def settle(self) -> None:
        """What is left in a table goes with its run, see ``pruning``."""


def _committing(
    target: OutputPart, staged: StagedResult, about: Mapping[str, str], turn: int, me: Identity, over: Overtaken | None
) -> Generator[str, None, Commit]:
    """Publish staged files in a commit, upon whatever is published by then; yields what is done.

    Each attempt loads the table, looks for this run and for later ones in its history, and commits upon just that
    state. So a commit of others in between is never undone, and a run that has published already, whether or not it
    knows, does not publish again.

    Args:
        over: by whom the keys in quarantine were overtaken, which are committed first: then nothing is committed.
    """
    tables = table_format(target.output)
    race, held = Race(tables, target), rules_digest(staged.rules)
    about = {**about, **({RULES: held} if held else {})}
    while True:
        table = race.table()
        before = standing(tables, table, target, turn, me) if table is not None else None
        if before is not None:
            return before
        if over is not None:
            raise LostRaceError(
                f"{target.path}, part {target.part}", f"turn {turn} to be the last one in {target.quarantine.path}",
                f"turn {over.turn} of {over.by.run}, which has not published yet",
                "try again, to find what that has published; if it was given up, begin a new run",
            )  # fmt: skip
        if table is None:
            raise RunDirectoryError.saying(f"table {target.path}", "it is gone", "begin a new run")
        # Of the very state that is committed upon. Once the run has published, what it has staged may be gone.
        files = tables.staged_files(table, target, staged)
        yield "loaded"
        try:
            number = race.commit(table, files, about)
        except (*tables.LOST, *tables.UNANSWERED) as err:
            race.lost(table, err)
            continue
        yield "committed"
        return Commit(number)


def require_fitting(target: OutputPart) -> None:
    """Refuse a table, if it is there already, whose partitions are not those that a result needs."""
    with told_plainly(target.path):
        fitting_table(table_format(target.output), target)


def turn_in_table(target: OutputPart) -> int:
    """The latest turn in which a part was published in its table, as the table's history says; 0 if none."""
    tables = table_format(target.output)
    with told_plainly(target.path):
        table = fitting_table(tables, target)
        return tables.latest_turn(table, target) if table is not None else 0


def published_parts(target: OutputPart) -> dict[str, tuple[str, Identity]]:
    """By part: the snapshot or version of its newest publication, and which run that was of."""
    if target.output.table is not None:
        with told_plainly(target.path):
            return shown_parts(target.output)
    tables, newest = table_format(target.output), dict[str, tuple[str, Identity]]()
    with told_plainly(target.path):
        table = tables.find_table(target)
        for number, about in tables.publications(table, target) if table is not None else ():
            newest.setdefault(about["part"], (str(number), identity_in(about)))
    return newest


def shown_by_table(job: Job) -> dict[str, Identity]:
    """By part of the table that a job publishes in: which run's result it shows, as its history says."""
    return {part: by for part, (_, by) in published_parts(OutputPart.of(job)).items()}


def readers_have(job: Job) -> str:
    """Which run's result of its day readers have, in words; "" where a store or a catalog does not say it."""
    with suppress(SkewlessError, ImportError, OSError):
        by = _shown_by(job, {})
        return f"readers see that of {by.run}" if by else f"readers have no result of {job.part}"
    return ""


def state_now(run: RunDirectory, tables: dict[str, Mapping[str, Identity]] | None = None) -> State:
    """``state_of``, and ``superseded`` also if readers have another run's result of its day since.

    ``tables`` is filled with what ``shown_by_table`` says of each, for the next call.
    """
    state, by = state_of(run), None
    with suppress(SkewlessError, ImportError, OSError):
        by = _shown_by(run.job(), {} if tables is None else tables) if publication_of(run) else None
    if by is None or by.job == identity_of(run).job:
        return state
    return State("superseded", f"{state.sentence}, and replaced since: readers see that of {by.run}")


def _shown_by(job: Job, tables: dict[str, Mapping[str, Identity]]) -> Identity | None:
    if not job.spec.output.in_catalog:
        with suppress(FileNotFoundError):
            manifest = read_manifest(published_path(job))
            return manifest.by if manifest else None
        return None
    if job.output_path not in tables:
        tables[job.output_path] = shown_by_table(job)
    return tables[job.output_path].get(job.part.name)


def roll_back(target: OutputPart, now: dt.datetime) -> Mapping[str, str]:
    """Commit the files that a part had before the newest publication of it; other parts stay as they are.

    Returns:
        Where these came from, as the table's history says, and the new snapshot or version as ``snapshot``.
    """
    if target.output.table is not None:
        return partition_output.roll_back(target, StoredTurns(open_store(f"{beside_folder(target.path)}/turns")))
    turns = StoredTurns(open_store(f"{beside_table(target.path, target.root)}/turns"))
    at = now.astimezone(dt.UTC).isoformat(timespec="seconds")
    # The store of turns may have been lost: the table knows its own.
    turn = turns.draw(above=max(turns.look(target.part.name).finished, turn_in_table(target)))
    with told_plainly(target.path):
        about = _go_back(target, turn, at)
    turns.finish(target.part.name, turn, f"{about['run-digest']} {about['run']}")
    return about


def _go_back(target: OutputPart, turn: int, at: str) -> dict[str, str]:
    tables = table_format(target.output)
    race = Race(tables, target)
    unanswered: Exception | None = None
    while True:
        table = race.table()
        history = list(of_part(tables, table, target)) if table is not None else []
        if len(history) < 2:
            raise SpecError(
                f"{target.path}, part {target.part}", "two publications of it in the table's history",
                f"{len(history)}",
                f"run the job again, or look for an older {tables.NUMBERED} with programs of its format",
            )  # fmt: skip
        done = next((one for one in history if one[1].get("turn") == str(turn)), None)
        if done is not None:  # the answer to an attempt was lost, and it was a success: once more would undo it
            return {**done[1], "snapshot": str(done[0])}
        if unanswered is not None:
            raise unanswered
        (newest, replaced), (before, told) = history[:2]
        about = {**told, "turn": str(turn), "at": at, "rolled-back": f"from {tables.NUMBERED} {newest}"}
        if {HELD_IN} & {*told, *replaced}:
            about |= _go_back_beside(target.quarantine, about)
        files = tables.earlier_files(table, target, before)
        try:
            number = race.commit(table, files, about)
        except tables.LOST as err:
            race.lost(table, err)
        except SkewlessError:
            raise
        except Exception as err:  # noqa: BLE001  # each library has its own; it may have been committed: the table tells
            unanswered = err
        else:
            return {**about, "snapshot": str(number)}


def _go_back_beside(target: OutputPart, about: Mapping[str, str]) -> dict[str, str]:
    """Commit the keys in quarantine that a publication names, or none, before the output goes back to it.

    Returns:
        What the output's commit says of them.
    """
    tables, wanted = table_format(target.output), about.get(HELD_IN)
    race = Race(tables, target)
    while True:
        table = race.table()
        there = dict(tables.publications(table, target)) if table is not None else {}
        if wanted is not None and int(wanted) not in there:
            required = f"its keys in quarantine, of {tables.NUMBERED} {wanted}"
            raise SpecError(f"{target.path}, part {target.part}", required, "none", "run the job again")
        if not there:
            return {}
        if table is not None and (later := tables.latest_turn(table, target)) > int(about["turn"]):
            raise LostRaceError(
                f"{target.path}, part {target.part}", f"turn {about['turn']} to be the last one", f"turn {later}",
                "wait until that run has published, and roll back then",
            )  # fmt: skip
        rules = next(iter(there.values())).get(RULES)
        files = tables.earlier_files(table, target, int(wanted)) if wanted is not None else ()
        said = {name: value for name, value in about.items() if name != RULES} | ({RULES: rules} if rules else {})
        try:
            number = race.commit(table, files, said)
        except tables.LOST as err:
            race.lost(table, err)
            continue
        return {HELD_IN: str(number)} if wanted is not None else {}


def replayed(run: RunDirectory, policy: str) -> Replayed:
    """A finished run under a policy, or ``AS_IT_RAN``: a document that the first call computes and writes."""
    if (before := run.replayed(policy)) is not None:
        return before
    job, reports = run.job(), run.reports()
    if policy == AS_IT_RAN:
        plans = [run.plan(report.stage) for report in reports]
        # The last possible stage is followed by no decision.
        decided = [stage for stage in range(1, len(reports) + 1) if run.exists(f"decisions/{stage:04d}.json")]
        played = as_it_ran(job, plans, reports, [run.decision(stage).sentence for stage in decided])
    else:
        # Plan 0 may be from the last run; another policy begins with a plan of its own.
        played = replay(job, reports, policy, run.plan(0) if policy == job.spec.routing.policy.name else None)
    run.write_once(replay_document(policy), played)
    return played


def keep_savings(run: RunDirectory) -> Savings | None:
    """Write down and return what a published or compared run has saved, once, with the replays that say so.

    Neither step fails by it: the sentence says why it is not known. None if documents cannot be read or written.
    """
    with suppress(SkewlessError, OSError):
        if (before := run.savings()) is not None:
            return before
        try:
            reports = run.reports()
            plans = [run.plan(report.stage) for report in reports]
            savings = savings_of(run.job(), plans, reports, partial(replayed, run))
        except Exception as err:  # noqa: BLE001  # the run is published, whatever becomes of this
            savings = Savings.unknown("", f"{type(err).__name__}: {err}")
        run.write_once(SAVINGS, savings)
        return savings
    return None


class Way(NamedTuple):
    """A way to publish."""

    draw: Callable[[Output, str, Turns, int], int]
    """The turn of a run whose input is about to be pinned, above a given one; an error of what cannot be."""
    shown_turn: Callable[[Job], int]
    """The latest turn that a job's part shows; 0 if none."""
    target: Callable[[RunDirectory, dt.datetime, Turns], Target]
    """What a run's publication replaces."""


_FOLDER = Way(
    lambda _, path, turns, above: folder_output.draw_turn(path, turns, above), folder_output.shown_turn,
    lambda run, now, _: folder_output.FolderOutput(run, now),
)  # fmt: skip
_BUCKET = Way(
    lambda _, path, turns, above: bucket_output.draw_turn(path, turns, above), folder_output.shown_turn,
    lambda run, *_: bucket_output.BucketOutput(run),
)  # fmt: skip
_PARTITION = Way(partition_output.draw_turn, partition_output.shown_turn, partition_output.PartitionOutput)
_TABLE = Way(
    lambda _output, _path, turns, above: turns.draw(above),
    lambda job: max(map(turn_in_table, OutputPart.all_of(job))), lambda run, now, _: TableOutput(run, now),
)  # fmt: skip


def way_of(output: Output, output_path: str) -> Way:
    """How a result is published."""
    if output.is_table:
        return _TABLE
    if output.table is not None:
        return _PARTITION
    return _BUCKET if is_object(output_path) else _FOLDER
