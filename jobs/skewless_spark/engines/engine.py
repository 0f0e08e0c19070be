"""What a stage asks of its engine."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from skewless.documents.commit import CommittedFile
from skewless.documents.stage_report import StageReport
from skewless_spark.session.step_measures import JobsSeen
from skewless_spark.sources.cutting import split_bytes
from skewless_spark.sources.formats.input_files import ROW_INDEX
from skewless_spark.sources.unit_reading import placing_settings, scanned_bytes
from skewless_spark.stage.measured_stage import measure
from skewless_spark.stage.routes import Stage
from skewless_spark.stage.state_counts import CountsRead
from skewless_spark.states.committed_files import NATIVE, Reader

#: Files of a stage at most in which each task has a file for each part.
MOST_FILES = 1 << 10
#: Rows whose states one partition takes in: it costs some ten milliseconds and a file.
_PARTITION_ROWS = 50_000


class Engine:
    """Where the states of a stage are made. ``outcome`` is each engine's own, and what else it does otherwise."""

    #: Whether the native states of a key are merged in the stage, and results made of all states of a key.
    merges = False

    def outcome(self, stage: Stage) -> DataFrame:
        """What a stage writes: states and backlog, distinguished by the column ``kind``; or results of keys.

        Nothing has run yet.
        """
        raise NotImplementedError

    def partitions(self, stage: Stage) -> int:
        """Into how many partitions a stage shuffles."""
        return len(stage.plan.tasks)

    def settings(self, stage: Stage, backlog: Sequence[CommittedFile]) -> dict[str, str]:
        """Spark's settings for the query of a stage that does not route rows: those of even splits, some for each slot.

        Spark's own, few and padded for files that are slow to open, are for rows that are shuffled next, as for a join.
        """
        job = stage.columns.job
        admitted = job.admitted_units(stage.plan.waves)
        placing = placing_settings(job, admitted)
        if placing and (stage.columns.reads_places or ROW_INDEX in job.source.reads):
            return placing
        if job.joined:
            return {}
        wave = scanned_bytes(stage.spark, job, admitted, located=stage.columns.reads_places)
        sizes = [*wave, *(file.size_bytes for file in backlog)]
        return {
            "spark.sql.files.maxPartitionBytes": str(split_bytes(sizes, self.splits(stage), job.slots_at())),
            "spark.sql.files.openCostInBytes": "0",
            "spark.sql.files.minPartitionNum": "1",  # of more, Spark would take an even share of the bytes as the limit
        }

    def splits(self, stage: Stage) -> int:
        """Into how many even splits a wave is cut."""
        return stage.columns.job.combine_splits

    def in_parts(self, stage: Stage, kinds: Sequence[str]) -> bool:
        """Whether each file is to have the states of one part, as they are kept; one task has all of them, or any may.

        Args:
            kinds: of the rows that the stage writes.
        """
        job, plan = stage.columns.job, stage.plan
        files = 0 if self.merges else len(job.covered.reduced) * len(plan.tasks)
        return job.window is not None and kinds == [NATIVE] and not plan.epoch and files <= MOST_FILES

    def reader(self, stage: Stage, read: CountsRead) -> Reader | None:
        """What reads the files that a stage has just written; None if its report needs no counts of theirs."""
        del stage
        return read.take

    def report(self, stage: Stage, files: Sequence[CommittedFile], read: CountsRead, seen: JobsSeen) -> StageReport:
        """The report of a stage whose files are written but not committed; its seconds are not known yet.

        Raises:
            LedgerError: native and Python states saw different rows.
        """
        del seen
        return measure(stage, files, read)


def few_partitions(stage: Stage, states: int = 0) -> int:
    """A partition for each task, or fewer if they would get few states.

    Args:
        states: that are expected; 0 where nothing is known.
    """
    queued = stage.columns.job.admitted_rows(stage.plan.waves) + stage.backlog_rows
    return min(len(stage.plan.tasks), -(-min(queued, states or queued) // _PARTITION_ROWS) or 1)
