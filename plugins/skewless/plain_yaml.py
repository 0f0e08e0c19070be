"""YAML as far as a spec needs it: plain values, no key given twice, no aliases."""

from __future__ import annotations

from typing import Any

import yaml


class _PlainLoader(yaml.SafeLoader):
    """YAML without keys that are given twice, of which PyYAML keeps the last, and without aliases.

    A spec has no use for aliases, and a few lines of them can stand for gigabytes, or for themselves.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            node_mark = self.get_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, "an alias (*name)", node_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        written = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((key for key in written if written.count(key) > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice!r} given twice", node.start_mark)
        return super().construct_mapping(node, deep)


def read_yaml(text: str) -> Any:
    """The value that a YAML text stands for.

    Raises:
        yaml.YAMLError: it is no YAML, has a key twice, or an alias.
        ValueError: a value that cannot be, like a 30th of February.
        RecursionError: it is nested without end.
    """
    return yaml.load(text, _PlainLoader)  # noqa: S506 - a SafeLoader that is stricter still
