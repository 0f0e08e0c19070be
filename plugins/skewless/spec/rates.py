"""What a core costs by the hour: a file at the data root, for all jobs below it."""

from __future__ import annotations

from typing import Self

from pydantic import Field, ValidationError

from skewless.document import Frozen, sentence_of
from skewless.errors import SpecError
from skewless.spec.reading import mapping_of

#: The name of the file.
RATES = "costs.yaml"


class Rates(Frozen):
    """The price of a core.

    Attributes:
        core_hour: of one core for an hour.
        currency: in which, by ISO 4217, like EUR.
    """

    core_hour: float = Field(strict=True, gt=0, le=1_000_000)
    currency: str = Field(pattern=r"^[A-Z]{3}$")

    @classmethod
    def parse(cls, text: str, where: str) -> Self:
        """Read the file; a ``SpecError`` if it has an unknown field or a wrong value."""
        try:
            return cls.model_validate(mapping_of(text, where))
        except ValidationError as err:
            raise sentence_of(err, cls, where, SpecError) from None

    def price(self, core_seconds: float) -> float:
        """What so many core-seconds cost."""
        return core_seconds / 3600.0 * self.core_hour
