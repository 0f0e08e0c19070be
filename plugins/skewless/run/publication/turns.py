"""The turns of runs that publish one day: a later turn is never undone by an earlier one."""

from __future__ import annotations

from typing import Protocol

from skewless.documents.job import Job
from skewless.errors import RunDirectoryError
from skewless.run.publication.exchange import require_exchange
from skewless.run.publication.places import make_beside, place_of
from skewless.run.publication.records import manifest_of


class Standing(Protocol):
    """Who has claimed and finished the latest turns of a day; see ``skewless_leases.ownership.turns``."""

    @property
    def claimed(self) -> int:
        """The highest turn that may be exchanged."""

    @property
    def claimant(self) -> str:
        """Who claimed it."""

    @property
    def finished(self) -> int:
        """The highest turn that was published."""

    @property
    def finisher(self) -> str:
        """Who published in it."""


class Turns(Protocol):
    """The turns of the days of an output folder; the caller brings them (``skewless_leases.Turns``)."""

    def draw(self, above: int = 0) -> int:
        """The next turn, higher than ``above``."""

    def look(self, name: str) -> Standing:
        """The standing of a day."""

    def claim(self, name: str, turn: int, who: str) -> Standing:
        """Claim a turn, unless a later one is claimed; the standing after that."""

    def finish(self, name: str, turn: int, who: str) -> Standing:
        """Finish a turn, unless a later one is finished; the standing after that."""


def draw_turn(output_path: str, turns: Turns, *, allow_gap: bool) -> int:
    """Draw the turn of a run whose input is about to be pinned.

    The turn is drawn before the input is listed. So the run with the latest turn lists its input after all others have
    drawn theirs, however long a run takes between the two.

    Args:
        output_path: the resolved folder of the result.
        turns: of its days.
        allow_gap: as the spec has it.

    Raises:
        SpecError: the file system cannot exchange folders, and the spec does not allow a gap.
        RunDirectoryError: nothing can be published there.
    """
    try:
        require_exchange(make_beside(output_path), allow_gap=allow_gap)
    except OSError as err:
        came = err.strerror or type(err).__name__
        raise RunDirectoryError.saying(output_path, f"no folder can be made beside it ({came})") from None
    return turns.draw()


def with_turn(job: Job, turn: int, turns: Turns) -> Job:
    """The job with its turn, or with a new one if the published folder has a later one: the store was lost."""
    lying = manifest_of(place_of(job).target)
    if lying is not None and lying.turn >= turn:
        turn = turns.draw(above=lying.turn)
    return job.model_copy(update={"turn": turn})
