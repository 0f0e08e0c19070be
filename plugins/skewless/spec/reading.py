"""Reading a job spec: a YAML file, with overrides ``path.to.field=value`` from a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from skewless.document import sentence_of, shortened
from skewless.errors import SpecError, nearest
from skewless.spec.plain_yaml import LONGEST_TEXT, YamlFault, read_yaml
from skewless.spec.spec import JobSpec

#: Fields of a spec are not nested deeper.
_DEEPEST = 16
#: Fields that may be written as one value, with the field below them that it is of.
_SHORT = {"window": "length", "policy": "name"}


def load_spec(path: str | Path, overrides: tuple[str, ...] = ()) -> JobSpec:
    """Read a spec file and apply ``path.to.field=value`` overrides, the value read as YAML.

    Raises:
        SpecError: the file is missing, is not a YAML mapping, or breaks the schema.
    """
    where = f"spec {path}"
    try:
        with Path(path).open(encoding="utf-8") as opened:
            text = opened.read(LONGEST_TEXT + 1)
    except (OSError, ValueError) as err:  # a ValueError is text that is no UTF-8, or a path with NUL
        reason = getattr(err, "strerror", None) or type(err).__name__
        raise SpecError.saying(where, f"the file cannot be read ({reason})", "check the path") from None
    return parse_spec(text, where, overrides)


def parse_spec(text: str, where: str = "spec", overrides: tuple[str, ...] = ()) -> JobSpec:
    """Like ``load_spec``, from the text itself."""
    try:
        raw = read_yaml(text)
    except YamlFault as fault:
        at = f"{where}, line {fault.line}" if fault.line else where
        raise SpecError.saying(at, fault.fact, fault.hint) from None
    if not isinstance(raw, dict):
        raise SpecError(where, "a YAML mapping", "nothing" if raw is None else f"a {type(raw).__name__}")
    for override in overrides:
        _apply_override(raw, override)
    try:
        return JobSpec.model_validate(raw)
    except ValidationError as err:
        raise sentence_of(err, JobSpec, where, SpecError) from None


def _apply_override(raw: dict[str, Any], override: str) -> None:
    """Set one dotted field in the raw mapping; numbers step into lists."""
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
