"""The base of all documents: frozen, strict, versioned JSON both ways; and of sections that are tagged."""

import gc
import hashlib
import json
import re
import reprlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Annotated, Any, ClassVar, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from skewless.errors import DocumentError, SkewlessError, nearest

#: Stages, and the plans that route them, are numbered with four digits.
LAST_STAGE = 9999
#: No count of rows, keys, bytes or states is larger: up to here JSON readers and doubles agree on whole numbers.
LARGEST_COUNT = 1 << 53

Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
#: The hash of a multiset of rows is the sum of their hashes, modulo this: so that it is the same in whatever order rows
#: come, and those of parts add up. One row that is lost, doubled or altered is missed with probability 1 / 2**32.
HASHES = 1 << 32
#: No figure computed from counts is larger (the rows of a task a hundred times over, say); it fits into 64 bits.
LARGEST_SUM = 1 << 62


@contextmanager
def without_collector() -> Iterator[None]:
    """Collect no garbage: large documents are many small objects that stay, and looking at them takes twice as long."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class Frozen(BaseModel):
    """An immutable value; a field it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def __eq__(self, other: object) -> bool:
        """Compare the fields alone: pydantic also compares cached properties, and an array has no truth value."""
        if type(self) is not type(other):
            return NotImplemented
        return all(self._alike(getattr(self, name), getattr(other, name)) for name in type(self).model_fields)

    def __hash__(self) -> int:
        """The hash of the canonical JSON: fields may be mappings, which cannot be hashed."""
        return hash(self.model_dump_json())

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields changed, without what was cached from the old fields."""
        copied = super().model_copy(update=update, deep=deep)
        for name in set(copied.__dict__) - set(type(self).model_fields):
            del copied.__dict__[name]
        for name in update or ():
            copied.__dict__[name] = self._held_like(self.__dict__.get(name), copied.__dict__[name])
        return copied

    @staticmethod
    def _alike(left: Any, right: Any) -> bool:
        return bool(left == right)

    @staticmethod
    def _held_like(before: Any, now: Any) -> Any:
        del before
        return now

    @without_collector()
    def to_json(self) -> str:
        """The same value gives the same bytes. Mappings keep their order: a spec's is that of the result's columns."""
        return json.dumps(self.model_dump(mode="json"), separators=(",", ":")) + "\n"

    def digest(self) -> str:
        """SHA-256 of the canonical JSON, in hex."""
        return _sha256(self.to_json())


class Document(Frozen):
    """A value that is stored as a file of the run directory.

    ``version`` is written into each file. A reader refuses a version that it does not know: who guesses what a number
    means counts rows twice.
    """

    VERSION: ClassVar[int] = 1

    version: int = 1

    @field_validator("version")
    @classmethod
    def _known_version(cls, version: int) -> int:
        if version != cls.VERSION:
            raise ValueError(f"should be {cls.__name__} version {cls.VERSION}")
        return version

    @classmethod
    @without_collector()
    def from_json(cls, text: str | bytes, where: str = "document") -> Self:
        """Read a document; a ``DocumentError`` if it is no JSON object, of another version, or breaks the schema."""
        try:
            # Documents are large, so the cause of a fault is looked for only after one was found.
            # A lone surrogate is not UTF-8; it is passed on, and pydantic refuses it.
            return cls.model_validate_json(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
        except ValidationError as err:
            raise cls._refused(text, where) or sentence_of(err, cls, where, DocumentError) from None

    @classmethod
    def _refused(cls, text: str | bytes, where: str) -> DocumentError | None:
        """Why the text is not a document of this kind and version at all; None if it is one that breaks the schema."""
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError) as err:
            return DocumentError(where, "a JSON document", f"text that does not parse ({one_line(str(err))})")
        if not isinstance(raw, dict):
            return DocumentError(where, "a JSON object", f"a {type(raw).__name__}")
        version = raw.get("version", cls.VERSION)
        if version != cls.VERSION:
            return DocumentError(
                where,
                f"{cls.__name__} version {cls.VERSION}",
                f"version {shortened(version)}",
                "read it with the release of Skewless that wrote it",
            )
        return None

    def sealed(self) -> str:
        """The JSON as it is stored: with a checksum of itself as the last field."""
        text = self.to_json()
        body = text.removesuffix("}\n")
        return f'{body},"checksum":"{_sha256(text)}"}}\n'

    @classmethod
    def from_sealed(cls, text: bytes, where: str = "document") -> Self:
        """Read a stored document; a ``DocumentError`` also if it was cut or changed since it was written."""
        return cls.from_json(cls._unsealed(text, where), where)

    @classmethod
    def sealed_fields(cls, text: bytes, where: str = "document") -> dict[str, Any]:
        """The fields of a stored document as JSON has them, for callers that need one field of thousands of documents.

        Checks only that the document is whole and of this version. A plan takes a twentieth of the time of
        ``from_sealed``.
        """
        body = cls._unsealed(text, where)
        fields = json.loads(body)
        if not isinstance(fields, dict) or fields.get("version") != cls.VERSION:
            cls.from_json(body, where)
        return dict(fields)

    @classmethod
    def _unsealed(cls, text: bytes, where: str) -> bytes:
        body, seal = text[:-_SEAL_LENGTH] + b"}\n", text[-_SEAL_LENGTH:]
        if seal != f',"checksum":"{_sha256(body)}"}}\n'.encode():
            # Another version is named first: there the checksum may be somewhere else.
            with suppress(ValueError, RecursionError):
                raw = json.loads(text)
                if isinstance(raw, dict) and raw.get("version", cls.VERSION) != cls.VERSION:
                    cls.from_json(text, where)
            raise DocumentError.saying(
                where, "the document was cut or changed since it was written",
                "restore the file from a copy, or begin a new run directory",
            )  # fmt: skip
        return body


class Section(Frozen):
    """A part of a spec."""

    model_config = ConfigDict(serialize_by_alias=True, use_attribute_docstrings=True)


def _tell_editors(schema: dict[str, Any], model: type["Tagged"]) -> None:
    """For each tag the fields beside it; and in the words of each field, the tags that it belongs to."""
    fields, by_default = schema["properties"], model.model_fields[model.TAG].default
    for tag in model.FIELDS_OF:
        one = {"properties": {model.TAG: {"const": tag}}, "required": [model.TAG][tag == by_default :]}
        names = [name for name in fields if model.takes(tag, name)]
        schema.setdefault("allOf", []).append({"if": one, "then": {"propertyNames": {"enum": names}}})
    for name, field in fields.items():
        if name in model.told_apart():
            field["description"] = f"{', '.join(model.takers(name))}: {field['description']}"


class Tagged(Section):
    """A value of which one field says which others it may have."""

    TAG: ClassVar[str]
    WORD: ClassVar[str]
    """What it is called in messages."""
    FIELDS_OF: ClassVar[Mapping[str, tuple[str, ...]]]
    """For each tag, the fields that not all tags have."""

    model_config = ConfigDict(json_schema_extra=_tell_editors)

    @classmethod
    def told_apart(cls) -> set[str]:
        """The fields that not all tags have."""
        return {name for names in cls.FIELDS_OF.values() for name in names}

    @classmethod
    def takers(cls, name: str) -> tuple[str, ...]:
        """The tags that have such a field."""
        return tuple(tag for tag in cls.FIELDS_OF if cls.takes(tag, name))

    @classmethod
    def takes(cls, tag: str, name: str) -> bool:
        """Whether a tag has such a field."""
        return name in cls.FIELDS_OF[tag] or name not in cls.told_apart()

    @model_validator(mode="after")
    def _has_fields_of_its_tag(self) -> Self:
        tag, fields = getattr(self, self.TAG), type(self).model_fields
        for name in (fields[one].alias or one for one in self.model_fields_set):
            if not self.takes(tag, name):
                raise unmet(f"{name} only with {self.WORD} {_any_of(self.takers(name))}", f"{self.WORD} {tag}")
        return self

    @model_serializer(mode="wrap")
    def _fields_of_its_tag(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        tag, written = getattr(self, self.TAG), cast("dict[str, Any]", dump(self))
        return {name: value for name, value in written.items() if self.takes(tag, name)}


def _any_of(names: Iterable[str]) -> str:
    *some, last = names
    return f"{', '.join(some)} or {last}" if some else last


def one_of(*names: Collection[str]) -> AfterValidator:
    """A validator of a text that is a name of tables, which are asked when a value is seen."""

    def known(name: str) -> str:
        all_names = list(chain(*names))
        if name not in all_names:
            raise ValueError(f"should be {_any_of(map(repr, all_names))}")
        return name

    return AfterValidator(known)


def _sha256(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


#: Bytes of a stored document that are its checksum: the field's name, 64 hex digits, and the end of the object.
_SEAL_LENGTH = len(f',"checksum":"{_sha256("")}"}}\n')


def sentence_of(
    err: ValidationError, model: type[BaseModel], where: str, kind: type[SkewlessError], *, partial: bool = False
) -> SkewlessError:
    """The first fault that pydantic found, as our error; for a misspelt field it names the nearest known one.

    Of a value that is ``partial``, missing fields are no faults.
    """
    faults = [fault for fault in err.errors() if not partial or fault["type"] != "missing"]
    # A misspelt field explains the missing one beside it.
    fault = min(faults, key=lambda fault: fault["type"] != "extra_forbidden")
    path, alike = _written(fault), [other for other in faults if _written(other) == _written(fault)]
    path += filter(None, [fault.get("ctx", {}).get("at")])
    spot = f"{where}, field {'.'.join(path)}" if path else where
    also = f" (and {len(faults) - len(alike)} more)" if len(faults) > len(alike) else ""
    if fault["type"] == "extra_forbidden":
        return kind.saying(spot, f"there is no such field{also}", nearest(path[-1], _fields_at(model, path[:-1])))
    if fault["type"] == "missing":
        return kind.saying(spot, f"this field is missing{also}", "add it")
    observed = fault.get("ctx", {}).get("came")
    came = shortened(fault.get("input")) if observed is None else one_line(str(observed), 160)
    required = " or ".join(dict.fromkeys(map(_required, alike)))
    quoted = "quote it, if it is text" if isinstance(fault.get("input"), bool) and "string" in required else ""
    hint = fault.get("ctx", {}).get("hint") or quoted
    field = model.model_fields.get(path[0]) if len(path) == 1 and required == "a mapping" else None
    if field is not None and field.examples:
        hint = f"write for example {path[0]}: {json.dumps(field.examples[0])}"
    return kind(spot, one_line(required, 400), f"{came}{also}", hint)


def _written(fault: ErrorDetails) -> list[str]:
    """The path of a field as a spec has it, without the types that pydantic tries one after the other."""
    of_union = r"\[key\]|str|bool|int|float|(literal|tuple|constrained)\W.*"
    parts = [one_line(str(part)) for part in fault["loc"]]
    return [part for at, part in enumerate(parts) if at < 2 or not re.fullmatch(of_union, part)]


def unmet(required: str, came: str, hint: str = "", at: str = "") -> PydanticCustomError:
    """The error of a validator that says itself what was found, as the whole value is too long to be shown.

    Args:
        at: the field that it is about, of a validator of several.
    """
    return PydanticCustomError("unmet", "{required}", {"required": required, "came": came, "hint": hint, "at": at})


#: What is required, by the types of pydantic's errors: it names the types of Python, and our readers wrote YAML.
_REQUIRED = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "too_short": "a {noun} of at least {min_length} item{s}",
    "too_long": "a {noun} of at most {max_length} item{s}",
    "string_too_short": "a string of at least {min_length} character{s}",
    "string_too_long": "a string of at most {max_length} character{s}",
    "string_pattern_mismatch": "a string that matches '{pattern}'",
    "literal_error": "{expected}",
    "invalid_key": "a mapping with keys that are strings",
    "finite_number": "a finite number",
    **dict.fromkeys(("string_type", "string_unicode"), "a string"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "a boolean"),
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "an integer"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "mapping_type"), "a mapping"),
    **dict.fromkeys(("date_type", "date_parsing", "date_from_datetime_parsing"), "a date like 2026-01-31"),
}


def _required(fault: ErrorDetails) -> str:
    context = fault.get("ctx", {})
    if fault["type"] == "value_error":
        return str(context["error"]).removeprefix("should be ")
    known = _REQUIRED.get(fault["type"])
    if fault["type"] == "unmet":
        return fault["msg"]
    if known is None:
        return fault["msg"][:1].lower() + fault["msg"][1:]
    noun = "mapping" if context.get("field_type") == "Dictionary" else "list"
    s = "" if 1 in {context.get("min_length"), context.get("max_length")} else "s"
    whole = {name: int(value) for name, value in context.items() if isinstance(value, float) and value.is_integer()}
    return known.format(**{**context, **whole}, noun=noun, s=s)


#: A ``repr`` short enough for a sentence, however large or deep the value is.
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 6, 240, 240, 240
_SHORT.maxdict = _SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = _SHORT.maxfrozenset = 24


def shortened(value: object) -> str:
    """The ``repr`` of a value, short enough for a sentence, however large or deep the value is."""
    try:
        text = _SHORT.repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        text = f"a {type(value).__name__} of too many digits"
    return text if len(text) <= 120 else text[:117] + "..."


def one_line(text: str, longest: int = 120) -> str:
    """A text for use in a sentence: without line ends and other control characters, and not too long."""
    text = text[: longest + 1]
    shown = text if text.isprintable() else repr(text)[1:-1]
    return shown if len(shown) <= longest else shown[: longest - 3] + "..."


def _fields_at(model: type[BaseModel], path: list[Any]) -> list[str]:
    """The names that are written for the fields of the model that ``path`` leads to, as far as it can be followed."""

    def written(model: Any) -> dict[str, Any]:
        return {field.alias or name: field for name, field in getattr(model, "model_fields", {}).items()}

    current: Any = model
    for part in path:
        field = written(current).get(str(part))
        if field is None:
            break
        choices = (field.annotation, *getattr(field.annotation, "__args__", ()))
        current = next((choice for choice in choices if hasattr(choice, "model_fields")), current)
    return list(written(current))
