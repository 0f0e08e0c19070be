"""Reads ``docker-compose.yml``: only as much of the format as our own file uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from skewless.errors import SkewlessError


class ClusterError(SkewlessError):
    """The cluster cannot be described, started or reached."""


_VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Za-z_]\w*)(?:(?P<form>:-|:\?)(?P<rest>[^}]*))?\})")


@dataclass(frozen=True)
class Mount:
    """Something of the host in a container: ``source`` is a named volume, or a path that begins with ``.`` or ``/``."""

    source: str
    target: str

    @property
    def named(self) -> bool:
        """Whether it is a named volume."""
        return not self.source.startswith((".", "/"))


@dataclass(frozen=True)
class Service:
    """One service, with its variables filled in.

    Attributes:
        name: also its host name.
        image: our own, PostgreSQL's or MinIO's.
        command: program and arguments.
        environment: what the file adds to the image's own.
        health: the program and arguments of its health check; empty if it has none.
        after: the services that it waits for, each with compose's condition.
        ports: those it listens on inside its container, each with the one published on the host, or None.
        mounts: its volumes.
        stop_signal: the name of the signal that asks it to stop.
        once: whether it ends when its work is done.
    """

    name: str
    image: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    health: tuple[str, ...]
    after: Mapping[str, str]
    ports: Mapping[int, int | None]
    mounts: tuple[Mount, ...]
    stop_signal: str
    once: bool


def read_composition(path: Path, variables: Mapping[str, str]) -> dict[str, Service]:
    """The services of a compose file, each after those that it waits for.

    Args:
        path: the compose file.
        variables: what ``${NAME}`` stands for.

    Raises:
        ClusterError: a required variable is missing, or services wait for each other.
    """
    text = path.read_text(encoding="utf-8")
    # Filled in after parsing, as compose does: a value must not become structure.
    services: dict[str, Any] = _filled(yaml.safe_load(text)["services"], variables)
    return _in_order({name: _service(name, fields) for name, fields in services.items()})


def fill_in(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``${NAME}``, ``${NAME:-default}`` and ``${NAME:?message}``; ``$$`` is a dollar.

    Raises:
        ClusterError: with the message of the file, if a required variable has no value.
    """

    def value(found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        given = variables.get(found["name"], "")
        if given or found["form"] is None:
            return given
        if found["form"] == ":?":
            raise ClusterError("compose file", f"a value for {found['name']}", "none", found["rest"])
        return str(found["rest"])

    return _VARIABLE.sub(value, text)


def _filled(node: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(node, str):
        return fill_in(node, variables)
    if isinstance(node, dict):
        return {key: _filled(value, variables) for key, value in node.items()}
    if isinstance(node, list):
        return [_filled(value, variables) for value in node]
    return node


def _service(name: str, fields: Mapping[str, Any]) -> Service:
    conditions = {other: str(how["condition"]) for other, how in fields.get("depends_on", {}).items()}
    test = [str(word) for word in fields.get("healthcheck", {}).get("test", ())]
    return Service(
        name=name,
        image=fields["image"],
        command=tuple(str(word) for word in fields["command"]),
        environment={key: str(value) for key, value in fields.get("environment", {}).items()},
        health=tuple(test[1:]),  # the first word is CMD
        after=conditions,
        ports=_ports(fields),
        mounts=tuple(Mount(*str(volume).split(":")[:2]) for volume in fields.get("volumes", ())),
        stop_signal=str(fields.get("stop_signal", "SIGTERM")),
        once=fields.get("restart") == "no",
    )


def _ports(fields: Mapping[str, Any]) -> dict[int, int | None]:
    ports: dict[int, int | None] = {int(port): None for port in fields.get("expose", ())}
    for published in fields.get("ports", ()):
        _host, outside, inside = str(published).split(":")
        ports[int(inside)] = int(outside)
    return ports


def _in_order(services: Mapping[str, Service]) -> dict[str, Service]:
    ordered: dict[str, Service] = {}
    while len(ordered) < len(services):
        ready = [name for name, one in services.items() if name not in ordered and one.after.keys() <= ordered.keys()]
        if not ready:
            waiting = ", ".join(sorted(services.keys() - ordered.keys()))
            raise ClusterError("compose file", "services that can start one after another", f"a circle among {waiting}")
        ordered |= {name: services[name] for name in ready}
    return ordered
