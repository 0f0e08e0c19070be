"""From services in containers to programs on this machine: the same commands and environment, other places.

A container has its own network and file system, a process does not. So host names become
that of this machine, ports become free ones, and the folders of image and volumes become folders of the checkout and
of the state directory. Nothing else is changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from deploy.cluster.composition import ClusterError, Service

#: The folders of the image: that of the checkout, and the one that it may write to.
IMAGE_CHECKOUT = "/opt/skewless"
IMAGE_STATE = "/var/lib/skewless"
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Program:
    """A service on this machine; the fields are those of ``Service``, with local folders and ports."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    health: tuple[str, ...]
    after: Mapping[str, str]
    stop_signal: str
    once: bool


@dataclass(frozen=True)
class Topology:
    """All programs, each after those that it waits for.

    Attributes:
        programs: by the name of their service.
        ports: by port of a container the port on this machine.
    """

    programs: Mapping[str, Program]
    ports: Mapping[int, int]


def lay_out(
    services: Mapping[str, Service], checkout: Path, state: Path, choose_port: Callable[[int | None], int]
) -> Topology:
    """Give every service its folders and ports on this machine.

    Args:
        services: by name, in starting order.
        checkout: the folder that the image has as ``IMAGE_CHECKOUT``.
        state: the folder for everything that the services write.
        choose_port: returns a free port; its argument is the published one, which it should take if that is free.

    Raises:
        ClusterError: two services use the same port, which is impossible on one machine.
    """
    ports = _chosen_ports(services, choose_port)
    folders = _folders(services, checkout, state)
    programs = {}
    for name, one in services.items():
        fit = _Fitting(frozenset(services), ports, folders)
        programs[name] = Program(
            name=name,
            command=(one.command[0], *fit.words(one.command[1:])),
            environment={key: fit.setting(key, value) for key, value in one.environment.items()},
            health=(*one.health[:1], *fit.words(one.health[1:])),
            after=one.after,
            stop_signal=one.stop_signal,
            once=one.once,
        )
    return Topology(programs, ports)


@dataclass(frozen=True)
class _Fitting:
    """Replaces hosts, ports and folders of containers by those of this machine.

    Attributes:
        hosts: the host names of the services.
        ports: the new one by the old one.
        folders: the new one by the old one, longest first.
    """

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
        """The value of an environment variable."""
        return LOOPBACK if key.endswith("HOSTNAME") and value in self.hosts else self.value(value)

    def value(self, value: str) -> str:
        """Any other value."""
        return self._folders(self._addresses(value))

    def _addresses(self, value: str) -> str:
        if value.isdecimal():
            return str(self.ports.get(int(value), value))
        own = self.hosts | {"0.0.0.0"}  # noqa: S104  # which all interfaces of a container are
        names = "|".join(map(re.escape, sorted(own)))
        pattern = re.compile(
            rf"(?<![\w-])(?P<host>{names}|localhost):(?P<port>\d+)(?!\d)|(?<=port=)(?P<bare>\d+)(?!\d)"
        )

        def address(found: re.Match[str]) -> str:
            if found["bare"]:
                return str(self.ports.get(int(found["bare"]), found["bare"]))
            port = self.ports.get(int(found["port"]), found["port"])
            return f"{LOOPBACK if found['host'] in own else found['host']}:{port}"

        return pattern.sub(address, value)

    def _folders(self, value: str) -> str:
        pattern = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, self.folders))})(?![\w.-])")
        return pattern.sub(lambda found: self.folders[found[0]], value)


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


def with_environment(program: Program, machine: Mapping[str, str]) -> Program:
    """A program with its whole environment: this machine's, overridden by its own."""
    return replace(program, environment={**machine, **program.environment})
