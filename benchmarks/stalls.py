"""The longest stall of the event loop while a switch returns as much as it can: the size of answers is its choice.

Switches run in a process of their own. By SNMP, one has 20,081 interfaces, one has names of 60 kB of blanks, one has
other interfaces at each poll. By HTTP, each way of reading gets 16 MiB of `[],` for any request, and eAPI gets more
ports than are read. Each is polled three times; rates and the printing of what is exported are part of it.
"""

import asyncio
import json
import logging
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from types import MappingProxyType
from typing import Any

from measure import Limit

from exporter.config.units import Duration
from exporter.core.poller import Poller
from exporter.meaning.ports import rates
from exporter.outputs.text import Renderer
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.snmp_rows import Rows
from exporter.snmp.ber import COUNTER64, GAUGE32, INTEGER, OCTET_STRING, TIME_TICKS, Oid, Typed
from exporter.sources.switch.options import Eapi, Nvue, Nxapi, Onyx, Restconf, Snmp, Target
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.source import make_source
from exporter.sources.switch.targets import builtin_profiles

PORTS, NAMES, NAME_BYTES, REPLY_BYTES, POLLS = 20_081, 200, 60_000, 16 * 2**20, 2
BAR = 250.0
"""Milliseconds that no stall may exceed."""

IF, IFX = (1, 3, 6, 1, 2, 1, 2, 2, 1), (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
COUNTERS = (6, 7, 8, 9, 10, 11, 12, 13)

LISTS = "lists"
"""The reply of lists; any other is JSON."""


def interfaces(count: int, name: bytes = b"Ethernet%d", first: int = 1) -> dict[Oid, Typed]:
    """Make the rows of so many interfaces."""
    made: dict[Oid, Typed] = {(1, 3, 6, 1, 2, 1, 1, 3, 0): Typed(TIME_TICKS, 1000)}
    for port in range(first, first + count):
        text = name % port if b"%d" in name else name
        row: dict[Oid, Typed] = {
            (*IF, 2, port): Typed(OCTET_STRING, text),
            (*IF, 3, port): Typed(INTEGER, 6),
            (*IF, 7, port): Typed(INTEGER, 1),
            (*IF, 8, port): Typed(INTEGER, 1),
            (*IFX, 1, port): Typed(OCTET_STRING, text),
            (*IFX, 15, port): Typed(GAUGE32, 100_000),
        }
        made |= row | {(*IFX, column, port): Typed(COUNTER64, port * column) for column in COUNTERS}
    return made


def ports_by_eapi(count: int) -> str:
    """Make the reply of eAPI to its commands, with so many ports in `show interfaces`."""
    counters = {"inOctets": 1, "outOctets": 2, "inUcastPkts": 3, "outUcastPkts": 4, "inDiscards": 0, "outDiscards": 0}
    entry = {
        "interfaceStatus": "connected",
        "lineProtocolStatus": "up",
        "bandwidth": 10**11,
        "interfaceCounters": counters,
    }
    return json.dumps({"interfaces": {f"Ethernet{port}": entry for port in range(count)}})


def _serve_snmp(rows: Sequence[dict[Oid, Typed]], ready: Connection) -> None:
    """Serve one agent, with the next of these rows every two seconds."""

    async def serve() -> None:
        made = Rows(rows[0])
        agent = SnmpAgent(made, max_reply=65_000)
        ready.send((await agent.start())[1])
        for following in (*rows[1:], {}):
            await asyncio.sleep(2 if following else 600)
            made.remove(*list(made.span((1, 3, 6, 1, 2, 1))))
            made.set_many(following)

    asyncio.run(serve())


async def _head(reader: asyncio.StreamReader) -> bytes:
    """Read the head of a request; empty at the end of the connection, and once the client discards the reply."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


def _serve_http(result: str, ready: Connection) -> None:
    """Serve one reply to any request."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            size = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"), 0)
            request = await reader.readexactly(size)
            body = b"[" + b"[]," * (REPLY_BYTES // 3 - 4) + b"[]]"
            if result != LISTS:
                commands = json.loads(request)["params"]["cmds"]
                body = json.dumps({"result": [json.loads(result) for _ in commands]}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nSet-Cookie: session=1\r\n\r\n" % len(body) + body)
            with suppress(ConnectionError):
                await writer.drain()

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def _served(serve: Callable[[Any, Connection], None], what: object) -> Iterator[int]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(what, theirs), daemon=True)
    process.start()
    try:
        if not ours.poll(60):
            raise RuntimeError("the switch does not start within 60 s")
        yield ours.recv()
    finally:
        process.terminate()
        process.join(10)


async def _longest_stall(target: Target) -> tuple[float, int]:
    """Poll a switch, and print what is exported; return the longest stall in seconds, and the bytes printed last."""
    registry = SwitchRegistry()
    source = make_source(target, registry, builtin_profiles, 90.0)
    poller = Poller(source, [rates.step])
    printed = 0

    async def work() -> None:
        nonlocal printed
        for _ in range(POLLS):
            await poller.poll()
            printed = 0
            for piece in Renderer(openmetrics=True).render(poller.fresh_tables()):
                printed += len(piece)
                await asyncio.sleep(0)  # as the web server does
            source.poll_now()

    stall, task = 0.0, asyncio.create_task(work())
    while not task.done():
        due = time.monotonic() + 0.005
        await asyncio.sleep(0.005)
        stall = max(stall, time.monotonic() - due)
    await task
    print(f"({target.name}: {poller.status.reason or 'read'}, {poller.status.duration:.1f} s, {printed} bytes)")
    await source.close()
    return stall, printed


def _limit(name: str, target: Target) -> Limit:
    stall, _ = asyncio.run(_longest_stall(target))
    return Limit(f"{name}: longest stall of the loop", "ms", stall * 1e3, BAR)


def _by_snmp() -> Iterator[Limit]:
    options = Snmp(community="public", timeout=Duration(5.0))
    for name, rows in (
        ("SNMP, 20,081 interfaces", [interfaces(PORTS)]),
        ("SNMP, names of 60 kB of blanks", [interfaces(NAMES, b"1" + b" " * NAME_BYTES + b"x")]),
        ("SNMP, 1,000 other interfaces every 2 s", [interfaces(1000, first=1 + 1000 * turn) for turn in range(8)]),
    ):
        with _served(_serve_snmp, rows) as port:
            yield _limit(name, Target(name="snmp", address=f"127.0.0.1:{port}", snmp=options))


TARGETS: Mapping[str, Callable[[str], Target]] = MappingProxyType(
    {
        "eapi": lambda address: Target(name="eapi", address=address, eapi=Eapi(username="a", password="b")),
        "nxapi": lambda address: Target(name="nxapi", address=address, nxapi=Nxapi(username="a", password="b")),
        "restconf": lambda address: Target(
            name="restconf", address=address, restconf=Restconf(username="a", password="b")
        ),
        "nvue": lambda address: Target(name="nvue", address=address, nvue=Nvue(username="a", password="b")),
        "onyx": lambda address: Target(name="onyx", address=address, onyx=Onyx(username="a", password="b")),
    }
)


def _by_http() -> Iterator[Limit]:
    with _served(_serve_http, "{}") as port:  # the first use of the library imports parts of it
        asyncio.run(_longest_stall(TARGETS["eapi"](f"http://127.0.0.1:{port}")))
    for name, target in TARGETS.items():
        with _served(_serve_http, LISTS) as port:
            yield _limit(f"{name}, 16 MiB of lists", target(f"http://127.0.0.1:{port}"))
    with _served(_serve_http, ports_by_eapi(5000)) as port:
        yield _limit("eapi, 5,000 ports", TARGETS["eapi"](f"http://127.0.0.1:{port}"))


def run() -> list[Limit]:
    """Measure the stalls by SNMP, then by HTTP."""
    logging.disable(logging.WARNING)  # what is left out is reported by each poll
    return [*_by_snmp(), *_by_http()]
