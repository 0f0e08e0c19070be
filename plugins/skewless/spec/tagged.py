"""Sections of a spec of which one field, the tag, says which others they may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self, cast

from pydantic import ConfigDict, SerializerFunctionWrapHandler, model_serializer, model_validator

from skewless.document import Frozen, unmet


def _tell_editors(schema: dict[str, Any], model: type[Tagged]) -> None:
    """For each tag the fields beside it; and in the words of each field, the tags that it belongs to."""
    fields, by_default = schema["properties"], model.model_fields[model.TAG].default
    for tag in model.FIELDS_OF:
        one = {"properties": {model.TAG: {"const": tag}}, "required": [model.TAG][tag == by_default :]}
        names = [name for name in fields if model.takes(tag, name)]
        schema.setdefault("allOf", []).append({"if": one, "then": {"propertyNames": {"enum": names}}})
    for name, field in fields.items():
        if name in model.told_apart():
            field["description"] = f"{', '.join(model.takers(name))}: {field['description']}"


class Tagged(Frozen):
    """A value of which one field says which others it may have.

    Attributes:
        TAG: that field.
        WORD: what it is called in messages.
        FIELDS_OF: for each tag, the fields that not all tags have.
    """

    TAG: ClassVar[str]
    WORD: ClassVar[str]
    FIELDS_OF: ClassVar[Mapping[str, tuple[str, ...]]]

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
