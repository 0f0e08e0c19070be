"""Reading a job spec: YAML as far as a spec needs it, with overrides ``path.to.field=value`` from a command.

A spec has plain values, each key once, no aliases, no tags, and a limit to its length. What may be chosen for one run
is a closed list of fields, none of which names code, SQL or a path. They are held to the spec's own model, once where
they are given and once more in the job: there is no second list of limits.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from pydantic import JsonValue, ValidationError

from skewless.document import one_line, sentence_of, shortened
from skewless.errors import SpecError, nearest
from skewless.spec.spec import JobSpec

#: Fields of a spec are not nested deeper.
_DEEPEST = 16
#: Fields that may be written as one value, with the field below them that it is of.
_SHORT = {"window": "length", "policy": "name"}


#: In the folder of a spec: fields that all specs there share.
DEFAULTS = "_defaults.yaml"


def spec_files(folder: Path) -> list[Path]:
    """The specs of a folder: each ``*.yaml`` and ``*.yml``, unless its name begins with an underscore or a dot."""
    return sorted(path for path in folder.glob("*.y*ml") if path.name[0] not in "_.")


def load_spec(path: str | Path, overrides: tuple[str, ...] = ()) -> JobSpec:
    """Read a spec file and apply ``path.to.field=value`` overrides, the value read as YAML.

    Below the spec are the fields of ``_defaults.yaml`` in its folder, if there is one: mappings are merged field by
    field, any other value of the spec stands in place of the default, and a policy of another name has nothing of it.

    Raises:
        SpecError: one of the files cannot be read, or has an unknown field or a wrong value.
    """
    folder = Path(path).parent
    return parse_spec(_text_of(path), f"spec {path}", overrides, load_defaults(folder), folder)


def require_own(spec: JobSpec, path: Path, seen: dict[str, Path], names: Iterable[str]) -> None:
    """Refuse a spec with a name of an earlier one of its folder, or that publishes where that does, over its days."""
    places = [("output.path", spec.output.path)] if spec.shadow is None else []
    for field, value in [*(("name", name) for name in names), *places]:
        if (first := seen.setdefault(f"{field} {value}", path)) != path:
            came = f"{value!r}, which {first.name} has"
            raise SpecError(f"spec {path}, field {field}", "one that no other spec has", came, "choose another")


def load_defaults(folder: Path) -> dict[str, Any]:
    """The fields that all specs of a folder share.

    Raises:
        SpecError: their file cannot be read, names a job, or has an unknown field or a wrong value.
    """
    path = folder / DEFAULTS
    try:
        if not path.is_file():
            return {}
    except ValueError:  # a path with NUL
        return {}
    where = f"defaults {path}"
    fields = mapping_of(_text_of(path), where)
    if "name" in fields:
        raise SpecError.saying(f"{where}, field name", "each spec has a name of its own", "remove it")
    try:
        JobSpec.model_validate(fields)
    except ValidationError as err:
        if any(fault["type"] != "missing" for fault in err.errors()):
            raise sentence_of(err, JobSpec, where, SpecError, partial=True) from None
    return fields


def parse_spec(
    text: str, where: str = "spec", overrides: tuple[str, ...] = (), defaults: Mapping[str, Any] = MappingProxyType({}),
    folder: Path = Path(),
) -> JobSpec:  # fmt: skip
    """Like ``load_spec``, from the text itself, and with the fields of a folder's defaults as they were read."""
    raw = _merged(defaults, mapping_of(text, where))
    for override in overrides:
        _apply_override(raw, override)
    raw = _with_suite(raw, folder, where)
    try:
        return JobSpec.model_validate(raw)
    except ValidationError as err:
        raise sentence_of(err, JobSpec, where, SpecError) from None


def _with_suite(raw: dict[str, Any], folder: Path, where: str) -> dict[str, Any]:
    """A spec with the expectations of the suite that it names, before its own."""
    quality = raw.get("quality")
    if not isinstance(quality, dict):
        return raw
    suite, own = quality.get("suite"), quality.get("expectations") or []
    if not isinstance(suite, str) or not isinstance(own, list):
        return raw
    path = folder / suite
    try:
        listed = json.loads(_text_of(path))["expectations"]
    except (ValueError, TypeError, KeyError, RecursionError):
        listed = None
    if not isinstance(listed, list):
        required = "a suite of Great Expectations 1.x: a JSON object with a list of expectations"
        raise SpecError(f"{where}, field quality.suite", required, f"another text in {path}", "export the suite again")
    return {**raw, "quality": {**quality, "suite": None, "expectations": [*listed, *own]}}


def _text_of(path: str | Path) -> str:
    try:
        with Path(path).open(encoding="utf-8") as opened:
            return opened.read(LONGEST_TEXT + 1)
    except (OSError, ValueError) as err:  # a ValueError is text that is no UTF-8, or a path with NUL
        reason = getattr(err, "strerror", None) or "it is no text in UTF-8"
        raise SpecError.saying(f"spec {path}", f"the file cannot be read ({reason})", "check the path") from None


def mapping_of(text: str, where: str) -> dict[str, Any]:
    """The mapping that a YAML text is; anything else is a ``SpecError``."""
    try:
        raw = read_yaml(text)
    except YamlFault as fault:
        at = f"{where}, line {fault.line}" if fault.line else where
        raise SpecError.saying(at, fault.fact, fault.hint) from None
    if not isinstance(raw, dict):
        raise SpecError(where, "a YAML mapping", "nothing" if raw is None else f"a {type(raw).__name__}")
    return raw


def _merged(below: Any, above: Any, field: str = "") -> Any:
    if field in _SHORT and below is not None and above is not None:
        below, above = (one if isinstance(one, dict) else {_SHORT[field]: one} for one in (below, above))
        if field == "policy" and below.get("name") != above.get("name", below.get("name")):
            return above
    if not isinstance(below, Mapping) or not isinstance(above, dict):
        return above
    return {**below, **{name: _merged(below.get(name), value, name) for name, value in above.items()}}


def _apply_override(raw: dict[str, Any], override: str) -> None:
    dotted, equals, text = override.partition("=")
    where = f"override {shortened(override)}"
    if not equals or not all(dotted.split(".")) or dotted.count(".") > _DEEPEST:
        raise SpecError(where, "path.to.field=value", "something else", "write for example routing.policy=static")
    try:
        value = read_yaml(text)
    except YamlFault as fault:
        raise SpecError.saying(where, fault.fact, fault.hint or "quote the value") from None
    *parents, last = dotted.split(".")
    target: Any = raw
    for part in parents:
        target = _step(target, part, where)
    if isinstance(target, list):
        target[_index(target, last, where)] = value
    else:
        target[last] = value


def _step(target: Any, part: str, where: str) -> Any:
    below = target[_index(target, part, where)] if isinstance(target, list) else target.setdefault(part, {})
    if part in _SHORT and not isinstance(below, dict) and below is not None:
        below = target[part] = {_SHORT[part]: below}
    if not isinstance(below, dict | list):
        raise SpecError.saying(where, f"{shortened(part)} has no fields of its own; its value is {shortened(below)}")
    return below


def _index(target: list[Any], part: str, where: str) -> int:
    known = [str(number) for number in range(len(target))]
    if part not in known:
        raise SpecError(
            where, f"a position below {len(target)}", shortened(part), nearest(part[:80], known) if known else ""
        )
    return int(part)


#: Characters of a text: people read specs, and Airflow parses each DAG file every few seconds.
LONGEST_TEXT = 1 << 18
#: A plain scalar (without quotes) that is not text has fewer characters: no number needs as many.
_LONGEST_NUMBER = 400
_TEXT = "tag:yaml.org,2002:str"


class YamlFault(ValueError):  # noqa: N818  # whoever knows which file it is raises the error
    """Why a text is not the YAML of a spec, as a sentence; what to do; and the line, from 1, if one is known."""

    def __init__(self, fact: str, hint: str = "", line: int | None = None) -> None:
        super().__init__(fact)
        self.fact, self.hint, self.line = fact, hint, line


def read_yaml(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        YamlFault: it is not YAML, has a key twice, an alias or a tag, a value that cannot exist (the 30th of
            February), or is too long or nested too deeply.
    """
    if len(text) > LONGEST_TEXT:
        raise YamlFault(f"it has more than {LONGEST_TEXT:,} characters")
    try:
        return yaml.load(text, _Plain)  # noqa: S506  # a SafeLoader that is stricter still
    except yaml.YAMLError as err:
        raise _in_words(err) from None
    except RecursionError:
        raise YamlFault("it is nested too deeply") from None
    except YamlFault:
        raise
    except ValueError as err:  # PyYAML's own, of dates and numbers
        raise YamlFault(f"a value cannot be read ({one_line(str(err), 200)})", "quote it if it is text") from None


class _Plain(yaml.SafeLoader):
    """A loader that refuses keys given twice (PyYAML keeps the last one), aliases and tags.

    A spec has no use for aliases, and a few lines of them can stand for gigabytes or for themselves. Nor has it for
    tags, which name the type that a value is made of.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.get_event().start_mark  # type: ignore[no-untyped-call]
            raise YamlFault("an alias (*name) is not allowed", "repeat the value", mark.line + 1)
        event = self.peek_event()  # type: ignore[no-untyped-call]
        tag = getattr(event, "tag", None)
        if tag is not None and tag != "!":
            raise YamlFault(f"the tag {tag[:80]!r} is not allowed", "remove it", event.start_mark.line + 1)
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.ScalarNode):
            node.value = _whole(node)
            if node.tag != _TEXT and len(node.value) > _LONGEST_NUMBER:
                fact = f"a number or a date cannot have {len(node.value):,} characters"
                raise YamlFault(fact, "quote it if it is text", node.start_mark.line + 1)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        written: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in written:
                    fact = f"the key {key.value[:80]!r} is given twice"
                    raise YamlFault(fact, "keep one of the two", key.start_mark.line + 1)
                written.add(key.value)
        return super().construct_mapping(node, deep)


def _whole(node: yaml.ScalarNode) -> str:
    """The text of a scalar; a character that JSON's escapes give as two halves becomes one again."""
    text: str = node.value
    if text.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in text):
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise YamlFault("an escape is half of a character", "write both halves", node.start_mark.line + 1) from None


#: What PyYAML finds wrong, as a sentence with a hint. Its own words tell how it parses, not what the author wrote.
_SENTENCES = (
    (r"found character '\\t'.*", "a tab is not allowed in YAML", "indent with spaces"),
    (r"found character (?P<sign>'.+') that.*", "a value cannot begin with {sign}", "quote it"),
    (r"mapping values are not allowed here", "a ':' is not allowed here", "quote the value, or check the indentation"),
    (r"expected the node content, but found (?P<sign>'.+')", "a value is missing before {sign}", ""),
    (r"expected (?P<signs>.+), but got .*", "{signs} is missing", "close the list or the mapping, or quote a {date}"),
    (r"expected alphabetic or numeric.*", "a value cannot begin with '*' or '&'", "quote it"),
    (r"expected <block end>, but found .*", "the indentation does not fit the lines before", ""),
    (r"found unexpected end of stream", "a quoted text does not end", "close the quotes"),
    (r"could not find expected ':'", "a ':' is missing", "write 'field: value'"),
    (r"but found another document", "a second document begins here", "remove the '---'"),
)


def _in_words(err: yaml.YAMLError) -> YamlFault:
    problem = one_line(str(getattr(err, "problem", None) or getattr(err, "reason", None) or "bad syntax"), 200)
    mark = getattr(err, "problem_mark", None)
    line = mark.line + 1 if mark else None
    for pattern, fact, hint in _SENTENCES:
        if found := re.fullmatch(pattern, problem):
            return YamlFault(fact.format(**found.groupdict()), hint, line)
    return YamlFault(f"this is not valid YAML ({problem})", "", line)


#: Short name -> field of the spec.
OPTIONS: dict[str, tuple[str, ...]] = {
    "accept": ("quality", "accept"),
    "policy": ("routing", "policy", "name"),
    "reducers": ("routing", "reducers"),
    "budget": ("routing", "budget"),
    "late": ("window", "late"),
    "missing": ("window", "missing"),
}


def option_values(spec: JobSpec) -> dict[str, Any]:
    """What the spec itself says for each option that it can have, as JSON values."""
    raw = spec.model_dump(mode="json")
    left_out = {name for name, path in OPTIONS.items() if raw[path[0]] is None}
    left_out |= set() if spec.quality.quarantines else {"accept"}
    return {name: _at(raw, path) for name, path in OPTIONS.items() if name not in left_out}


def option_schema(name: str) -> dict[str, Any]:
    """The JSON schema of an option as the spec's model has it, without references."""
    schema = _spec_schema()
    found: dict[str, Any] = schema
    for part in OPTIONS[name]:  # a field refers to the model of its section, perhaps beside a short form
        reference = next((one["$ref"] for one in (found, *found.get("anyOf", ())) if "$ref" in one), None)
        model = found if reference is None else schema["$defs"][reference.rpartition("/")[2]]
        found = model["properties"][part]
    return dict(_flat(found))


def with_options(spec: JobSpec, given: Mapping[str, JsonValue], where: str) -> JobSpec:
    """The spec with the options given for one run, by their short names; a ``SpecError`` if it may not have them."""
    unknown = next((name for name in given if name not in OPTIONS), None)
    if unknown is not None:
        raise SpecError(where, "known options", shortened(unknown), nearest(unknown[:80], OPTIONS))
    raw, has = spec.model_dump(mode="json"), option_values(spec)
    for name, value in given.items():
        *parents, last = OPTIONS[name]
        if name not in has:
            raise SpecError(where, f"{name} only of a job with a {parents[0]}", "one without")
        section = _at(raw, tuple(parents))
        if name == "policy" and value != has[name]:
            section.clear()  # what else it has is of the other policy
        section[last] = value
    try:
        return JobSpec.model_validate(raw)
    except ValidationError as err:
        raise sentence_of(err, JobSpec, where, SpecError) from None


def parse_options(text: str, where: str) -> dict[str, JsonValue]:
    """Options that were written as one JSON object; anything else is a ``SpecError``."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise SpecError(where, "a JSON object of options", repr(text[:120]))
    return given


def refuse_more_waves(spec: JobSpec, most: int | None, where: str) -> None:
    """Refuse, by a ``SpecError``, more waves than whoever runs the stages has stages for."""
    if most is not None and len(spec.routing.waves) > most:
        raise SpecError(
            f"{where}, field routing.waves", f"at most {most} waves, as the DAG has stages for so many",
            f"{len(spec.routing.waves)}", "change the spec, and let Airflow parse the DAG again",
        )  # fmt: skip


@cache
def _spec_schema() -> dict[str, Any]:
    """Of the whole spec: it takes a tenth of a second to make, and DAG files are parsed often."""
    return JobSpec.model_json_schema()


def _at(raw: dict[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = raw
    for part in path:
        found = found[part]
    return found


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    choices = schema.get("anyOf")
    if choices is None:
        return schema
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    some = {} if {"type": "null"} not in choices else choices[0]
    return {**rest, **some, "type": [choice["type"] for choice in choices]}
