"""YAML as far as a spec needs it: plain values, no key given twice, no aliases, no tags, and not without end."""

from __future__ import annotations

from typing import Any

import yaml

#: Characters of a text: a spec is read by people, and each DAG file is parsed every few seconds.
LONGEST_TEXT = 1 << 18
#: A plain scalar (without quotes) that is no text has fewer characters: no number needs as many.
_LONGEST_NUMBER = 400
_TEXT = "tag:yaml.org,2002:str"


class _PlainLoader(yaml.SafeLoader):
    """YAML without keys that are given twice, of which PyYAML keeps the last, without aliases and without tags.

    A spec has no use for aliases, and a few lines of them can stand for gigabytes, or for themselves; nor for tags,
    which name what a value is made by.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            node_mark = self.get_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, "an alias (*name)", node_mark)
        event = self.peek_event()  # type: ignore[no-untyped-call]
        tag = getattr(event, "tag", None)
        if tag is not None and tag != "!":
            raise yaml.constructor.ConstructorError(None, None, f"the tag {tag[:80]!r}", event.start_mark)
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.ScalarNode):
            node.value = _whole(node)
        if isinstance(node, yaml.ScalarNode) and node.tag != _TEXT and len(node.value) > _LONGEST_NUMBER:
            problem = f"a number or date of {len(node.value):,} characters"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        written: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in written:
                    problem = f"the key {key.value[:80]!r} given twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
                written.add(key.value)
        return super().construct_mapping(node, deep)


def _whole(node: yaml.ScalarNode) -> str:
    """The text of a scalar; one character that JSON's escapes give as two halves is one again."""
    text: str = node.value
    if text.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in text):
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise yaml.constructor.ConstructorError(None, None, "half of a character", node.start_mark) from None


def read_yaml(text: str) -> Any:
    """The value that a YAML text stands for.

    Raises:
        yaml.YAMLError: it is no YAML, has a key twice, an alias, or a tag.
        ValueError: a value that cannot be, like a 30th of February, or a text that is too long.
        RecursionError: it is nested without end.
    """
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"more than {LONGEST_TEXT:,} characters")
    return yaml.load(text, _PlainLoader)  # noqa: S506 - a SafeLoader that is stricter still
