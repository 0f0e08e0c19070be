"""What is kept of the nights of a job, and what they tell about one: bands of its figures, and when a day is final."""

import datetime as dt
from typing import Annotated, Literal

from pydantic import Field

from skewless.document import Count, Document, Frozen
from skewless.errors import counted

#: Of so many nights figures are kept: of the newest ones.
MOST_NIGHTS = 200
#: A figure, and of how many rows or keys it is a share; 0 if it is no share.
Measured = tuple[float, Count]
#: How many days after its own a day was looked at, and the rows that it had then.
Came = tuple[Count, Count]


class Night(Frozen):
    """The figures of the newest publication of a part."""

    part: str
    turn: Count
    """Of the run; a later one takes its place."""
    shape: str
    """A digest of what the figures are of, see ``shape_of``."""
    figures: dict[str, Measured]


class FinalDay(Frozen):
    """A day that is final."""

    part: str
    delay: Count
    """How many days after it that was told."""
    run: str
    """The part of the run that has told it, and ``turn`` that run's turn."""
    turn: Count


class Arrivals(Frozen):
    """How the rows of a day have come."""

    part: str
    turn: Count = 0
    """Of the run that looked at it last: one that pinned its input before it knows less."""
    came: Annotated[tuple[Came, ...], Field(min_length=1)]
    """Its rows by its age, each time that they had changed until it was final, in the order of time."""
    final: FinalDay | None = None
    """Whether and how it was told to be final."""


class JobNights(Document):
    """The published nights of a job, by part, oldest first, each once."""

    nights: Annotated[tuple[Night, ...], Field(max_length=MOST_NIGHTS)] = ()
    arrivals: Annotated[tuple[Arrivals, ...], Field(max_length=MOST_NIGHTS)] = ()


class Band(Frozen):
    """A figure of the run beside the band of the nights around it."""

    figure: str
    share: bool
    """Whether it is a share of rows or keys."""
    value: float
    low: float
    """The least that is usual, inclusive; ``high`` the most."""
    middle: float
    high: float
    nights: Count
    """How many nights the band is of."""
    outcome: Literal["passed", "warned", "failed"]

    @property
    def sentence(self) -> str:
        """The figure and its band."""
        value, low, middle, high = map(self.text, (self.value, self.low, self.middle, self.high))
        return (
            f"{self.figure}: {value}; usual for the weekday, by {self.nights} nights: {low} to {high}, about {middle}"
        )

    def text(self, number: float) -> str:
        """A value of the figure, as text."""
        if self.share:
            return f"{number:.3%}"
        return f"{number:,.0f}" if abs(number) >= 100 else f"{number:,.4g}"


class Bands(Frozen):
    """The bands of a run."""

    nights: Count = 0
    """Earlier nights of the same spec that it could be compared with."""
    checks: tuple[Band, ...] = ()
    """The figures that have a band."""
    problem: str = ""
    """Why the nights could not be read; empty if they could."""
    outcome: Literal["passed", "warned", "failed"] = "passed"
    """Of the problem; the checks have their own."""

    @property
    def left(self) -> tuple[str, ...]:
        """What is not as usual, or could not be judged, for people."""
        problem = [f"bands could not be judged: {self.problem}"] if self.problem else []
        return (*problem, *(check.sentence for check in self.checks if check.outcome != "passed"))

    @property
    def sentences(self) -> tuple[str, ...]:
        """How many figures are as usual, and each that is not, for people."""
        if not self.checks and not self.problem:
            return (f"no bands yet: {self.nights} earlier nights of this spec are known",)
        outcomes = [check.outcome for check in self.checks]
        word = "FAILED" if "failed" in {self.outcome, *outcomes} else "WARNING"
        held = f"{outcomes.count('passed')} of {len(outcomes)} figures within their bands"
        return (held, *(f"{word}: {sentence}" for sentence in self.left))


class Finality(Document):
    """What a publication tells about finality."""

    part: str
    share: float | None = None
    """Of its rows that have come by now, as a rule: the median of final days; None where they are too few."""
    final_on: dt.date | None = None
    """When the day of the run will be final."""
    days: Count = 0
    """How many final days this is known by."""
    final: tuple[FinalDay, ...] = ()
    """The days that are final by this run."""
    after: dict[str, Count] = Field(default_factory=dict)
    """Rows that came, or changed, in days after these were final."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is known, for people."""
        sentences = []
        if self.share is not None:
            of = f"by {self.days} final days"
            sentences.append(f"as a rule, {self.share:.1%} of the rows of {self.part} have come, {of}")
        if self.final_on is not None:
            sentences.append(f"{self.part} is final on {self.final_on}")
        sentences += [f"{day.part} is final, {counted(day.delay, 'day')} after it" for day in self.final]
        sentences += [f"{rows:,} rows of {part} came after it was final" for part, rows in self.after.items()]
        return tuple(sentences)
