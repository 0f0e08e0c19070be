"""A proxy before an S3 server that does to requests what networks and servers do: a thread, on a port of loopback."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

#: What happens to a request: nothing; its answer is lost, though it was served; that is cut in the middle; the request
#: itself is lost; it is answered late; or it is answered by an error.
Fault = Literal["none", "lose answer", "cut answer", "lose request", "late", "500", "503", "409"]
#: By the number of the request, from 0, and its first line.
Faults = Callable[[int, str], Fault]

_LATE_SECONDS = 0.5
_ERRORS = {
    "500": "500 Internal Server Error\nInternalError",
    "503": "503 Slow Down\nSlowDown",
    "409": "409 Conflict\nConditionalRequestConflict",
}


@dataclass
class BrokenWire:
    port: int
    faults: Faults
    late_seconds: float = _LATE_SECONDS
    seen: list[tuple[str, Fault]] = field(default_factory=list)


def once_each(fault: Fault) -> Faults:
    """One fault for the first of all requests that are alike; 409 is an answer to a PUT only."""
    hit = set[str]()

    def faults(_number: int, request: str) -> Fault:
        if request in hit or (fault == "409" and not request.startswith("PUT")):
            return "none"
        hit.add(request)
        return fault

    return faults


@contextlib.contextmanager
def broken_wire(server_port: int, faults: Faults, *, late_seconds: float = _LATE_SECONDS) -> Iterator[BrokenWire]:
    """Start a proxy to a server on this machine; it ends with the block."""
    wire, listening = BrokenWire(0, faults, late_seconds), threading.Event()
    ending: list[Callable[[], object]] = []

    async def serve() -> None:
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        ending.append(lambda: loop.call_soon_threadsafe(over.set))
        server = await asyncio.start_server(
            lambda reader, writer: _serve(wire, server_port, reader, writer), "127.0.0.1", 0
        )
        wire.port = server.sockets[0].getsockname()[1]
        listening.set()
        await over.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert listening.wait(10)
    try:
        yield wire
    finally:
        ending[0]()
        thread.join(10)


async def _serve(
    wire: BrokenWire, server_port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """One request on one connection; the next one comes on another."""
    # Cancelled, if it is still waiting when the wire ends.
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
        head = await reader.readuntil(b"\r\n\r\n")
        request = head.partition(b"\r\n")[0].decode()
        fault = wire.faults(len(wire.seen), request)
        wire.seen.append((request, fault))
        if b"\r\nexpect: 100-continue" in head.lower():
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await _body(reader, head)
        if fault in _ERRORS:
            status, code = _ERRORS[fault].split("\n")
            said = f"<Error><Code>{code}</Code><Message>as asked</Message></Error>".encode()
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Length: {len(said)}\r\nConnection: close\r\n\r\n".encode() + said
            )
        elif fault != "lose request":
            answer = await _asked(server_port, head, body)
            if fault == "late":
                await asyncio.sleep(wire.late_seconds)
            if fault != "lose answer":
                writer.write(answer[: len(answer) // 2] if fault == "cut answer" else answer)
        await writer.drain()
    with contextlib.suppress(asyncio.CancelledError):
        await _closed(writer)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _asked(port: int, head: bytes, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [line for line in head.split(b"\r\n") if line and not line.lower().startswith((b"connection:", b"expect:"))]
    writer.write(b"\r\n".join([*lines, b"Connection: close", b"", b""]) + body)
    await writer.drain()
    answer = await reader.read(-1)
    await _closed(writer)
    top, _, rest = answer.partition(b"\r\n\r\n")
    kept = [line for line in top.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*kept, b"Connection: close", b"", b""]) + rest


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """The body of a request, as it was sent: of a length, or in chunks."""
    lines = (line.partition(b":") for line in head.split(b"\r\n"))
    fields = {name.lower(): value.strip() for name, _, value in lines}
    if fields.get(b"transfer-encoding") != b"chunked":
        return await reader.readexactly(int(fields.get(b"content-length", 0)))
    body = b""
    while True:
        size = await reader.readuntil(b"\r\n")
        body += size
        if int(size, 16) == 0:
            break
        body += await reader.readexactly(int(size, 16) + 2)
    while not body.endswith(b"\r\n\r\n"):  # what comes behind the last chunk
        body += await reader.readuntil(b"\r\n")
    return body
