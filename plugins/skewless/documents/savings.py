"""What the routing of a run has saved, in words and figures; made once, after it was published."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from skewless.document import Count, Document

#: The policy that is plain hashing.
PLAIN = "static"


class Savings(Document):
    """A run beside the same run under another policy. What is not known is None.

    Attributes:
        sentence: what was saved, or why that is not known.
        against: the policy beside it; "" where there is none.
        over_bound: the makespans of the stages together, over the best there could be; at least 1.
        against_over_bound: the same under the other policy, by a replay.
        seconds: what the longest tasks of the stages took together, where each task measured its time.
        against_seconds: the same under the other policy.
        against_error: by which part of itself ``against_over_bound`` may be too low or too high.
        whole_keys_over_bound: what the makespan would be at best, over the same, with one task for each key.
    """

    sentence: str = Field(max_length=2_000)
    policy: str = Field(max_length=100)
    against: str = Field(default="", max_length=100)
    over_bound: float | None = None
    against_over_bound: float | None = None
    seconds: float | None = Field(default=None, ge=0)
    against_seconds: float | None = Field(default=None, ge=0)
    slots: Count | None = None
    against_error: float | None = Field(default=None, ge=0)
    whole_keys_over_bound: float | None = None

    @property
    def seconds_saved(self) -> float | None:
        """By how much the longest tasks were shorter than plain hashing would have made them; below 0 if longer."""
        if self.against != PLAIN or self.seconds is None or self.against_seconds is None:
            return None
        return self.against_seconds - self.seconds

    @classmethod
    def unknown(cls, policy: str, reason: str) -> Self:
        """The savings of a run of which they are not known."""
        return cls(sentence=f"What routing has saved is not known: {reason}"[:1_900] + ".", policy=policy)
