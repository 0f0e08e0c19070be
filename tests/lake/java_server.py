"""Servers of tests whose code is Java's: a JVM, and the process that it belongs to."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway


def java(*classes: str, options: Sequence[str] = ()) -> Any:
    jars = Path(pyspark.__file__).parent / "jars"
    port = launch_gateway(
        classpath=":".join([*classes, f"{jars}/*"]), jarpath=str(next(jars.glob("py4j-*.jar"))),
        javaopts=list(options), die_on_exit=True,
    )  # fmt: skip
    return JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True)).jvm


@contextmanager
def port_of(module: str, folder: Path) -> Iterator[int]:
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", module, str(folder)],
        cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()
