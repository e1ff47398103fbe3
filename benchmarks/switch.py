"""Switches of 64 ports by SNMP: one poll beside snmp_exporter's scrape of it, and up to 200 of them in one process.

Each switch has 34 variables a port, 2,176 in all: names and aliases, states, the counters of IF-MIB, and the frames of
priority flow control by priority as SONiC and Cisco have them. The agents run in a process of their own.
"""

import asyncio
import gc
import multiprocessing
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import gufo.snmp as snmp_peer
from gufo.snmp.aio import SnmpSession
from measure import Figure, Limit, Scraper, cpu_seconds, peer, resident_mebibytes, running

from exporter.core.poller import Poller
from exporter.meaning.ports import rates
from exporter.outputs.text import Renderer
from exporter.simulator.monitoring.listening_ports import free_port
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.snmp_rows import Rows
from exporter.simulator.snmp_v3 import Engine
from exporter.snmp.ber import (
    COUNTER32,
    COUNTER64,
    GAUGE32,
    INTEGER,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    TIME_TICKS,
    Oid,
    Typed,
)
from exporter.snmp.client import SnmpClient
from exporter.snmp.security import Authentication, Privacy, User
from exporter.sources.switch import source as switches
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.source import SwitchSource

PORTS, PRIORITIES, POLLS = 64, 8, 30
VARIABLES = PORTS * 34

FLEETS = (50, 100, 200)
INTERVAL, SECONDS = 15.0, 60.0
"""Seconds between polls of a switch, and that a fleet is watched for."""

SYSTEM, IF, IFX = (1, 3, 6, 1, 2, 1, 1), (1, 3, 6, 1, 2, 1, 2, 2, 1), (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
PFC = (1, 3, 6, 1, 4, 1, 9, 9, 813, 1, 2, 1)

ERRORS, TRAFFIC = (13, 14, 19, 20), (6, 7, 8, 9, 10, 11, 12, 13)
INVENTORY: Sequence[tuple[str, Oid, int]] = (("ift", IF, 2), ("ifx", IFX, 1), ("ifx", IFX, 18))
COUNTERS: Sequence[tuple[str, Oid, int]] = (
    *(("ift", IF, column) for column in (7, 8, *ERRORS)),
    *(("ifx", IFX, column) for column in (*TRAFFIC, 15)),
    *(("pfc", PFC, column) for column in (2, 3)),
)
"""Columns by the peer's name of their table: those that are read seldom, and those of each poll; 1,984 variables."""


USER = User("bench", Authentication.SHA256, b"signed for the bench", Privacy.AES, b"private at the bench")


def static_rows() -> dict[Oid, Typed]:
    """Make the system group, names and states."""
    made: dict[Oid, Typed] = {
        (*SYSTEM, 1, 0): Typed(OCTET_STRING, b"SONiC Software Version: SONiC.202405.1 - HwSku: Simulated-64x400"),
        (*SYSTEM, 2, 0): Typed(OBJECT_IDENTIFIER, (1, 3, 6, 1, 4, 1, 8072, 3, 2, 10)),
        (*SYSTEM, 5, 0): Typed(OCTET_STRING, b"leaf-01"),
    }
    for port in range(1, PORTS + 1):
        made |= {
            (*IF, 2, port): Typed(OCTET_STRING, b"Ethernet1/%d" % port),
            (*IF, 7, port): Typed(INTEGER, 1),
            (*IF, 8, port): Typed(INTEGER, 1),
            (*IFX, 1, port): Typed(OCTET_STRING, b"Eth1/%d" % port),
            (*IFX, 15, port): Typed(GAUGE32, 400_000),
            (*IFX, 18, port): Typed(OCTET_STRING, b"to spine %d" % port),
        }
    return made


def counter_rows(seconds: int) -> dict[Oid, Typed]:
    """Make the counters as they are after so many seconds: all of them move."""
    draw = random.Random(1)
    made: dict[Oid, Typed] = {(*SYSTEM, 3, 0): Typed(TIME_TICKS, 123_456 + 100 * seconds)}
    for port in range(1, PORTS + 1):
        for column in ERRORS:
            made[*IF, column, port] = Typed(COUNTER32, draw.randrange(2**20) + seconds)
        for column in TRAFFIC:
            made[*IFX, column, port] = Typed(COUNTER64, draw.randrange(2**52) + seconds * draw.randrange(2**24))
        for way in (2, 3):
            for priority in range(PRIORITIES):
                made[*PFC, way, port, priority] = Typed(COUNTER64, draw.randrange(2**31) + seconds * 100)
    return made


def _serve(count: int, ready: Connection) -> None:
    """Serve so many switches, all with the same rows, until killed; send their ports."""

    async def serve() -> None:
        rows = Rows(static_rows() | counter_rows(0))
        agents = [SnmpAgent(rows, max_reply=1400, engine=Engine([USER])) for _ in range(count)]
        ready.send([(await agent.start())[1] for agent in agents])
        began = time.monotonic()
        while True:
            await asyncio.sleep(5)
            rows.set_many(counter_rows(int(time.monotonic() - began)))

    asyncio.run(serve())


@contextmanager
def agents(count: int) -> Iterator[tuple[list[int], int]]:
    """Run agents in a process of their own; return their ports, and the process's number."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_serve, args=(count, theirs), daemon=True)
    process.start()
    try:
        if not ours.poll(30):
            raise RuntimeError("the agents do not start within 30 s")
        yield ours.recv(), process.pid or 0
    finally:
        process.terminate()
        process.join(10)


def _peer_module(columns: Sequence[tuple[str, Oid, int]]) -> str:
    """Write the peer's configuration: these columns, labelled by the interface's name."""
    lines = ["bench:", "  version: 2", "  max_repetitions: 40", "  walk:"]
    walked = dict.fromkeys([*columns, ("ifx", IFX, 1)])  # the name is looked up for each row, so it is walked
    lines += [f"  - {'.'.join(map(str, (*table, number)))}" for _, table, number in walked]
    lines.append("  metrics:")
    for name, table, number in columns:
        text = (name, table, number) in INVENTORY
        level = (name, number) in {("ift", 7), ("ift", 8), ("ifx", 15)}
        kind = "DisplayString" if text else "gauge" if level else "counter"
        lines += [f"  - name: {name}{number}", f"    oid: {'.'.join(map(str, (*table, number)))}", f"    type: {kind}"]
        lines += ["    help: x", "    indexes:", "    - {labelname: ifIndex, type: gauge}"]
        if name == "pfc":
            lines.append("    - {labelname: priority, type: gauge}")
        lines += ["    lookups:", "    - labels: [ifIndex]", "      labelname: ifName"]
        lines += [f"      oid: {'.'.join(map(str, (*IFX, 1)))}", "      type: DisplayString"]
    return "\n".join(lines) + "\n"


def _source(number: int, port: int, registry: SwitchRegistry, interval: float) -> SwitchSource:
    snmp = Snmp(community="public")
    # Neighbours are read once a minute and have no rows here: left out, so that both do the same.
    target = Target(name=f"leaf-{number:03d}", address=f"127.0.0.1:{port}", lldp=False, snmp=snmp)
    return SwitchSource(
        target, interval, [switches.make_reader(target, "snmp", interval, shared=registry.shared)], registry
    )


async def _our_polls(port: int, *, everything: bool) -> float:
    """Poll, apply the rates and print; return the CPU seconds of one poll, with the inventory each time or never."""
    source = _source(1, port, SwitchRegistry(), 60.0)
    poller = Poller(source, [rates.step])
    renderer = Renderer(openmetrics=True)
    await poller.poll()
    began, series = time.process_time(), 0
    for _ in range(POLLS):
        if everything:
            source.poll_now("")  # names and aliases are read too, as the peer does at each scrape
        await poller.poll()
        series = sum(piece.count(b"\n") for piece in renderer.render(poller.fresh_tables()))
    used = (time.process_time() - began) / POLLS
    if poller.status.up is not True or series < 2_000:
        raise RuntimeError(f"polls failed: {poller.status.reason or series}")
    await source.close()
    return used


def _their_scrapes(program: str, port: int, columns: Sequence[tuple[str, Oid, int]]) -> float:
    """Return the CPU seconds of one scrape of these columns."""
    with tempfile.TemporaryDirectory() as place:
        config = Path(place) / "snmp.yml"
        config.write_text(_peer_module(columns))
        listen = free_port()
        with running([program, f"--config.file={config}", f"--web.listen-address=127.0.0.1:{listen}"]) as process:
            scraper = Scraper(listen, f"/snmp?target=127.0.0.1:{port}&module=bench")
            scraper.wait()
            before = cpu_seconds(process.pid)
            for _ in range(POLLS):
                scraper.scrape()
            return (cpu_seconds(process.pid) - before) / POLLS


def _one() -> list[Figure]:
    """Measure a poll of one switch beside the peer's scrape of it."""
    program = peer("prometheus-snmp-exporter")
    if program is None:
        return []
    figures = []
    with agents(1) as ((port,), _):
        for name, columns, everything, bar in (
            ("poll of a switch after the first, 1,984 variables read, rated and printed", COUNTERS, False, 0.35),
            ("poll of a switch, 2,176 variables read, rated and printed", [*INVENTORY, *COUNTERS], True, 0.5),
        ):
            theirs = _their_scrapes(program, port, columns)
            ours = asyncio.run(_our_polls(port, everything=everything))
            figures.append(Figure(name, "ms CPU", ours * 1e3, "snmp_exporter", theirs * 1e3, bar))
    return figures


async def _our_walks(port: int) -> float:
    """Walk all columns with a user of v3, signed and encrypted; return the CPU seconds of one walk."""
    columns = [(*table, number) for _, table, number in (*INVENTORY, *COUNTERS)]
    async with SnmpClient(f"127.0.0.1:{port}", USER, deadline=60.0) as client:
        await client.walk(columns)
        began = time.process_time()
        for _ in range(POLLS):
            result = await client.walk(columns)
            if sum(len(column.rows) for column in result.columns.values()) != VARIABLES:
                raise RuntimeError(f"the walk is not whole: {result.problems[:1]}")
        return (time.process_time() - began) / POLLS


async def _their_walks(port: int) -> float:
    """Do the same with gufo_snmp, which walks one column after another."""
    auth, priv = (snmp_peer.Sha256Key(USER.authentication_password), snmp_peer.Aes128Key(USER.privacy_password))
    user = snmp_peer.User(USER.name, auth_key=auth, priv_key=priv)
    names = [".".join(map(str, (*table, number))) for _, table, number in (*INVENTORY, *COUNTERS)]
    async with SnmpSession("127.0.0.1", port=port, user=user, max_repetitions=40) as session:
        await session.refresh()
        began = time.process_time()
        for _ in range(POLLS):
            seen = 0
            for name in names:
                async for _ in session.getbulk(name):
                    seen += 1
            if seen != VARIABLES:
                raise RuntimeError(f"gufo_snmp walks {seen} variables")
        return (time.process_time() - began) / POLLS


def _private() -> list[Figure]:
    """Measure a walk by v3, SHA-256 and AES-128, beside a library whose codec and cryptography are compiled."""
    with agents(1) as ((port,), _):
        ours, theirs = asyncio.run(_our_walks(port)), asyncio.run(_their_walks(port))
    name = "walk of a switch by v3 with SHA-256 and AES-128, 2,176 variables"
    return [Figure(name, "ms CPU", ours * 1e3, "gufo_snmp", theirs * 1e3, 1.25)]


async def _watch(pollers: Sequence[Poller], seconds: float) -> tuple[float, float, int]:
    """Let pollers run; return the share of a core, the longest stall of the loop in seconds, and the overruns."""
    tasks = [asyncio.create_task(poller.run()) for poller in pollers]
    await asyncio.gather(*(poller.first_read.wait() for poller in pollers))
    before = sum(poller.status.overruns for poller in pollers)
    gc.collect()
    used, began, stall = time.process_time(), time.monotonic(), 0.0
    while (due := time.monotonic() + 0.005) < began + seconds:
        await asyncio.sleep(0.005)
        stall = max(stall, time.monotonic() - due)
    share = (time.process_time() - used) / (time.monotonic() - began)
    overruns = sum(poller.status.overruns for poller in pollers) - before
    failed = [poller.status.reason for poller in pollers if poller.status.up is not True]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    if failed:
        raise RuntimeError(f"{len(failed)} switches failed: {failed[0]}")
    return share, stall, overruns


def _fleet(ports: Sequence[int], results: Connection) -> None:
    """Poll all of these switches; send the figures and the MiB that it took."""
    pid = multiprocessing.current_process().pid or 0
    registry = SwitchRegistry()
    empty = resident_mebibytes(pid)
    sources = [_source(number, port, registry, INTERVAL) for number, port in enumerate(ports)]
    pollers = [Poller(source, [rates.step]) for source in sources]
    figures = asyncio.run(_watch(pollers, SECONDS))
    results.send((*figures, resident_mebibytes(pid) - empty))


def _fleets() -> list[Limit]:
    """Measure fleets of switches in one process."""
    limits = []
    spawn = multiprocessing.get_context("spawn")  # an own interpreter, with nothing of ours in its memory
    for count in FLEETS:
        with agents(count) as (ports, server):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_fleet, args=(ports, theirs))
            before = cpu_seconds(server)
            process.start()
            if not ours.poll(SECONDS + 120):
                process.terminate()
                raise RuntimeError(f"{count} switches: no figures")
            share, stall, overruns, memory = ours.recv()
            process.join(10)
            print(f"({count} agents: {(cpu_seconds(server) - before) / SECONDS:.1%} of a core, not ours)")
        name = f"{count} switches, {INTERVAL:g} s"
        limits += [
            Limit(f"{name}: CPU", "% of a core", share * 100, count / 10),
            Limit(f"{name}: resident, each", "MiB", memory / count, 1.0),
            Limit(f"{name}: longest stall of the loop", "ms", stall * 1e3, 50),
            Limit(f"{name}: intervals missed", "", overruns, 0),
        ]
    return limits


def run() -> list[Figure | Limit]:
    """Measure one switch beside the peers, then many."""
    return [*_one(), *_private(), *_fleets()]
