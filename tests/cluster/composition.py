"""Reads ``docker-compose.yml``, as much of the format as our own file uses, and lays its services out on this machine.

A container has its own network and file system, a process does not. So host names become that of this machine, ports
become free ones, and the folders of image and volumes become folders of the checkout and of the state directory.
Commands and environment stay the same otherwise.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from skewless.errors import SkewlessError

#: The folders of the image: that of the checkout, and the one that it may write to.
IMAGE_CHECKOUT = "/opt/skewless"
IMAGE_STATE = "/var/lib/skewless"
LOOPBACK = "127.0.0.1"
_VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Za-z_]\w*)(?:(?P<form>:-|:\?)(?P<rest>[^}]*))?\})")


class ClusterError(SkewlessError):
    """The cluster cannot be described, started or reached."""


@dataclass(frozen=True)
class Mount:
    """Something of the host in a container: ``source`` is a named volume, or a path that begins with ``.`` or ``/``."""

    source: str
    target: str

    @property
    def named(self) -> bool:
        return not self.source.startswith((".", "/"))


@dataclass(frozen=True)
class Service:
    """One service, with its variables filled in; on this machine, with local folders and ports in its words.

    Attributes:
        environment: what the file adds to the image's own.
        health: the program and arguments of its health check; empty if it has none.
        after: the services that it waits for, each with compose's condition.
        ports: those it listens on inside its container, each with the one published on the host, or None.
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
    """The services of a compose file, each after those that it waits for; ``${NAME}`` stands for a variable."""
    text = path.read_text(encoding="utf-8")
    # Filled in after parsing, as compose does: a value must not become structure.
    services: dict[str, Any] = _filled(yaml.safe_load(text)["services"], variables)
    return _in_order({name: _service(name, fields) for name, fields in services.items()})


def fill_in(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``${NAME}``, ``${NAME:-default}`` and ``${NAME:?message}``; ``$$`` is a dollar."""

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


@dataclass(frozen=True)
class Topology:
    """The services on this machine, each after those that it waits for; and by port of a container the port here."""

    programs: Mapping[str, Service]
    ports: Mapping[int, int]


def lay_out(
    services: Mapping[str, Service], checkout: Path, state: Path, choose_port: Callable[[int | None], int]
) -> Topology:
    """Give every service its folders and ports on this machine; all that the services write is below ``state``.

    ``choose_port`` returns a free port; its argument is the published one, which it should take if that is free."""
    ports = _chosen_ports(services, choose_port)
    folders = _folders(services, checkout, state)
    fit = _Fitting(frozenset(services), ports, folders)
    programs = {}
    for name, one in services.items():
        programs[name] = replace(
            one,
            command=(one.command[0], *fit.words(one.command[1:])),
            environment={key: fit.setting(key, value) for key, value in one.environment.items()},
            health=(*one.health[:1], *fit.words(one.health[1:])),
        )
    return Topology(programs, ports)


@dataclass(frozen=True)
class _Fitting:
    """Replaces hosts, ports and folders of containers, longest first, by those of this machine."""

    hosts: frozenset[str]
    ports: Mapping[int, int]
    folders: Mapping[str, str]

    def words(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The arguments of a command; a word is a host name only after ``--host`` or ``-h``."""
        before = ("", *words)
        return tuple(
            LOOPBACK if option in {"--host", "-h"} else self.value(word)
            for option, word in zip(before, words, strict=False)
        )

    def setting(self, key: str, value: str) -> str:
        return LOOPBACK if key.endswith("HOSTNAME") and value in self.hosts else self.value(value)

    def value(self, value: str) -> str:
        """Any other value."""
        if value.isdecimal():
            return str(self.ports.get(int(value), value))
        own = self.hosts | {"0.0.0.0"}  # which all interfaces of a container are
        names = "|".join(map(re.escape, sorted(own)))
        pattern = re.compile(
            rf"(?<![\w-])(?P<host>{names}|localhost):(?P<port>\d+)(?!\d)|(?<=port=)(?P<bare>\d+)(?!\d)"
        )

        def address(found: re.Match[str]) -> str:
            if found["bare"]:
                return str(self.ports.get(int(found["bare"]), found["bare"]))
            port = self.ports.get(int(found["port"]), found["port"])
            return f"{LOOPBACK if found['host'] in own else found['host']}:{port}"

        folders = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, self.folders))})(?![\w.-])")
        return folders.sub(lambda found: self.folders[found[0]], pattern.sub(address, value))


def _chosen_ports(services: Mapping[str, Service], choose: Callable[[int | None], int]) -> dict[int, int]:
    chosen: dict[int, int] = {}
    for one in services.values():
        for inside, outside in one.ports.items():
            if inside in chosen:
                raise ClusterError(
                    f"compose file, service {one.name}", "a port number of its own", f"{inside}, which another has"
                )
            here = choose(outside)
            while here in chosen.values():  # chosen already, though nothing listens on it yet
                here = choose(None)
            chosen[inside] = here
    # Services name themselves by the published port in the addresses that people use.
    return {
        **{outside: chosen[inside] for one in services.values() for inside, outside in one.ports.items() if outside},
        **chosen,
    }


def _folders(services: Mapping[str, Service], checkout: Path, state: Path) -> dict[str, str]:
    folders = {IMAGE_CHECKOUT: str(checkout), IMAGE_STATE: str(state)}
    for one in services.values():
        for mount in one.mounts:
            here = state / mount.source if mount.named else checkout / mount.source
            folders[mount.target] = str(here.resolve())
    return dict(sorted(folders.items(), key=lambda item: -len(item[0])))
