"""Over how many parts a result is, and what becomes of the states that are kept of each."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from skewless.document import Frozen, shortened, unmet
from skewless.spec.input import PathText

_LONGEST, _MOST = 1000, 16
#: With a list of lengths: the column of the result that says which one a row is of.
WINDOW_COLUMN = "window"


def _is_number(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= _LONGEST


def _as_length(given: Any) -> Any:
    """Say once what a length may be: of a value that is of none of several types pydantic tells several times."""
    if isinstance(given, list | tuple):
        if not (1 <= len(given) <= _MOST and all(map(_is_number, given)) and list(given) == sorted(set(given))):
            raise unmet(f"at most {_MOST} numbers of parts, 1 to {_LONGEST:,}, ascending, each once", shortened(given))
    elif not _is_number(given) and given != "all":
        raise unmet(f"a number of parts, 1 to {_LONGEST:,}, a list of such numbers, or all", shortened(given))
    return given


_Parts = Annotated[int, Field(ge=1, le=_LONGEST)]
#: A number of parts, all of them, or several numbers at once.
Length = Annotated[
    _Parts | Literal["all"] | Annotated[tuple[_Parts, ...], Field(min_length=1, max_length=_MOST)],
    BeforeValidator(_as_length),
]


def as_window(given: Any) -> Any:
    """A window as it is written: a length alone is short for a mapping with nothing else."""
    return given if given is None or isinstance(given, dict | Window) else {"length": _as_length(given)}


class Window(Frozen):
    """The parts that a result covers. Their states are kept, so that a later run reads only what has changed.

    `window: 28` is short for `window: {length: 28}`, and `window: 1` covers the run's own part alone.
    """

    length: Length = Field(
        description="The result covers so many parts, days or hours, the run's own the last, or all up to that one. Of "
        "a list, ascending, it has a row for each key and length, and the length in the column `window`, an integer.",
        examples=[28, "all", [1, 7, 28]],
    )
    late: Literal["recompute", "ignore", "fail"] = Field(
        default="recompute",
        description="What changed in an older part that has states is computed anew, is left out and counted, or fails "
        "the run.",
        examples=["ignore"],
    )
    missing: Literal["allow", "fail"] = Field(
        default="allow",
        description="Whether a part without files is left out of the result, or fails the run.",
        examples=["fail"],
    )
    verify: int | None = Field(
        default=None, ge=1, le=1_000_000,
        description="About so many keys, other ones for each part, are computed from all rows and compared before "
        "anything is published; it costs a read of the whole window.",
        examples=[1000],
    )  # fmt: skip
    keep: int | None = Field(
        default=None, ge=1, le=10_000,
        description="States of so many parts are kept, at least those of the longest length; by default seven more "
        "than that, or with all those of all parts.",
        examples=[60],
    )  # fmt: skip
    states: PathText | None = Field(
        default=None, min_length=1,
        description="Where states are kept: a folder or a URL; by default beside the folder of the output.",
        examples=["/lake/states"],
    )  # fmt: skip

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        needed = self.lengths[-1]
        if self.keep is not None and needed is None:
            raise unmet("no keep with length all, which needs the states of all parts", str(self.keep))
        if self.keep is not None and needed is not None and self.keep < needed:
            raise unmet(f"keep of at least the longest length, {needed}", str(self.keep))
        if self.verify is not None and self.late == "ignore":
            raise unmet("late: recompute or fail with verify, which reads all rows", "late: ignore")
        return self

    @property
    def several(self) -> tuple[int, ...] | None:
        """The lengths of a list, for each of which the result has rows; None if one length stands alone."""
        return self.length if isinstance(self.length, tuple) else None

    @property
    def lengths(self) -> tuple[int | None, ...]:
        """All lengths, ascending, and None for all parts."""
        return self.several or (None if self.length == "all" else self.length,)  # type: ignore[return-value]

    @property
    def kept_parts(self) -> int | None:
        """Of how many parts states are kept: None for all."""
        longest = self.lengths[-1]
        return longest and (self.keep or longest + 7)
