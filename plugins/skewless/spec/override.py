"""Overrides of a spec from a command: ``path.to.field=value``."""

from __future__ import annotations

from typing import Any

import yaml

from skewless.document import shortened
from skewless.errors import SpecError, nearest
from skewless.spec.plain_yaml import read_yaml

#: Fields of a spec are not nested deeper.
_DEEPEST = 16


def apply_override(raw: dict[str, Any], override: str) -> None:
    """Set one dotted field in the raw mapping; numbers step into lists."""
    dotted, equals, text = override.partition("=")
    where = f"override {shortened(override)}"
    if not equals or not all(dotted.split(".")) or dotted.count(".") > _DEEPEST:
        raise SpecError(where, "path.to.field=value", "something else", "for example routing.policy=static")
    try:
        value = read_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise SpecError(where, "a YAML value after '='", shortened(text), "quote it") from None
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
    if not isinstance(below, dict | list):
        raise SpecError(where, f"{shortened(part)} to hold further fields", f"the value {shortened(below)}")
    return below


def _index(target: list[Any], part: str, where: str) -> int:
    known = [str(number) for number in range(len(target))]
    if part not in known:
        raise SpecError(
            where, f"a position below {len(target)}", shortened(part), nearest(part[:80], known) if known else ""
        )
    return int(part)
