"""The base of all documents: frozen, strict, versioned JSON both ways."""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from skewless.errors import DocumentError, SkewlessError, nearest


class Frozen(BaseModel):
    """An immutable value; a field it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Document(Frozen):
    """A value that crosses rooms as a file of the run directory.

    ``version`` is written into each file. A reader refuses, by name, a version it does
    not know: guessing at the meaning of a number is how rows get counted twice.
    """

    VERSION: ClassVar[int] = 1

    version: int = 1

    def to_json(self) -> str:
        """The same value gives the same bytes: keys sorted, no needless white space."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "document") -> Self:
        """Read a document back.

        Raises:
            DocumentError: the text is no JSON object, of another version, or breaks the schema.
        """
        try:
            raw = json.loads(text)
        except ValueError as err:
            raise DocumentError(where, "a JSON document", f"text that does not parse ({err})") from None
        if not isinstance(raw, dict):
            raise DocumentError(where, "a JSON object", f"a {type(raw).__name__}")
        version = raw.get("version", cls.VERSION)
        if version != cls.VERSION:
            raise DocumentError(
                where,
                f"{cls.__name__} version {cls.VERSION}",
                f"version {version!r}",
                "read it with the release of Skewless that wrote it",
            )
        try:
            return cls.model_validate_json(text if isinstance(text, bytes) else text.encode())
        except ValidationError as err:
            raise sentence_of(err, cls, where, DocumentError) from None

    def digest(self) -> str:
        """SHA-256 of the canonical JSON, in hex."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def sentence_of(
    err: ValidationError, model: type[BaseModel], where: str, kind: type[SkewlessError]
) -> SkewlessError:
    """Turn the first fault pydantic found into our one sentence; a typo names the nearest field."""
    faults = sorted(err.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
    fault = faults[0]  # a misspelt field explains the missing one beside it
    path = [part for part in fault["loc"] if not str(part).startswith("function-")]
    spot = f"{where}, field {'.'.join(str(part) for part in path)}" if path else where
    more = len(faults) - 1
    also = f" (and {more} more)" if more else ""
    if fault["type"] == "extra_forbidden":
        hint = nearest(str(path[-1]), _fields_at(model, path[:-1]))
        return kind(spot, "a known field", f"the unknown field {str(path[-1])!r}{also}", hint)
    if fault["type"] == "missing":
        return kind(spot, "this field", f"nothing{also}", "add it")
    message = str(fault["msg"]).removeprefix("Value error, ")
    return kind(spot, _required(message), f"{_shortened(fault.get('input'))}{also}")


def _required(message: str) -> str:
    lowered = message[:1].lower() + message[1:]
    for opening in ("input should be ", "should be "):
        if lowered.startswith(opening):
            return lowered.removeprefix(opening)
    return lowered


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _fields_at(model: type[BaseModel], path: list[Any]) -> list[str]:
    """The field names of the model that ``path`` leads to, as far as the path can be followed."""
    current: Any = model
    for part in path:
        field = current.model_fields.get(str(part)) if hasattr(current, "model_fields") else None
        if field is None:
            break
        current = next(
            (arg for arg in (field.annotation, *getattr(field.annotation, "__args__", ())) if hasattr(arg, "model_fields")),
            current,
        )
    return list(getattr(current, "model_fields", {}))
