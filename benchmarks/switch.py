"""One poll of a switch by SNMP v2c, 64 ports, 20 columns, 2,176 variables, beside snmp_exporter's scrape of them."""

import asyncio
import multiprocessing
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

from measure import Figure, Scraper, cpu_seconds, free_port, peer, running

from exporter.meaning import rates
from exporter.outputs.text import Renderer
from exporter.poller import Poller
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.snmp.ber import COUNTER32, COUNTER64, GAUGE32, INTEGER, OCTET_STRING, TIME_TICKS, Oid, Typed
from exporter.sources.switch import Snmp, SwitchSource, Target
from exporter.sources.switch_snmp import IF, IFX, CounterColumn, SnmpReader

PORTS, PRIORITIES, POLLS = 64, 8, 30

PFC = (1, 3, 111, 2, 802, 1, 1, 21, 1, 1, 1, 1)
"""Two columns by interface and priority, made up for the comparison."""

IF_COLUMNS, IFX_COLUMNS = (2, 7, 8, 13, 14, 19, 20), (1, 6, 7, 8, 9, 10, 11, 12, 13, 15, 18)


def rows() -> dict[Oid, Typed]:
    """Make the rows of the switch, and the system group."""
    draw = random.Random(1)
    made: dict[Oid, Typed] = {
        (1, 3, 6, 1, 2, 1, 1, 3, 0): Typed(TIME_TICKS, 123_456),
        (1, 3, 6, 1, 2, 1, 1, 5, 0): Typed(OCTET_STRING, b"leaf-01"),
    }
    for port in range(1, PORTS + 1):
        made |= {(*IF, 2, port): Typed(OCTET_STRING, b"Ethernet1/%d" % port)}
        made |= {(*IF, column, port): Typed(INTEGER, 1) for column in (7, 8)}
        made |= {(*IF, column, port): Typed(COUNTER32, draw.randrange(2**20)) for column in (13, 14, 19, 20)}
        made |= {(*IFX, 1, port): Typed(OCTET_STRING, b"Eth1/%d" % port)}
        made |= {(*IFX, column, port): Typed(COUNTER64, draw.randrange(2**52)) for column in range(6, 14)}
        made |= {
            (*IFX, 15, port): Typed(GAUGE32, 400_000),
            (*IFX, 18, port): Typed(OCTET_STRING, b"to spine %d" % port),
        }
        for priority in range(PRIORITIES):
            made |= {(*PFC, way, port, priority): Typed(COUNTER32, draw.randrange(2**31)) for way in (1, 2)}
    return made


def _serve(port: int, ready: Event) -> None:
    async def serve() -> None:
        async with SnmpAgent(rows(), community=b"public", max_reply=1400) as agent:
            await agent.start("127.0.0.1", port)
            ready.set()
            await asyncio.Event().wait()

    asyncio.run(serve())


@contextmanager
def agent() -> Iterator[int]:
    """Run the agent in a process of its own; give its port."""
    port = free_port()
    ready = multiprocessing.Event()
    process = multiprocessing.Process(target=_serve, args=(port, ready), daemon=True)
    process.start()
    ready.wait(10)
    try:
        yield port
    finally:
        process.terminate()
        process.join(10)


def _peer_module() -> str:
    """Write the peer's configuration: the same columns, labelled by the interface's name."""
    lines = ["bench:", "  version: 2", "  max_repetitions: 40", "  walk:"]
    columns: list[tuple[str, Oid, int]] = [("ift", IF, number) for number in IF_COLUMNS]
    columns += [("ifx", IFX, number) for number in IFX_COLUMNS]
    columns += [("pfc", PFC, number) for number in (1, 2)]
    lines += [f"  - {'.'.join(map(str, (*table, number)))}" for _, table, number in columns]
    lines.append("  metrics:")
    for name, table, number in columns:
        text = (name, number) in {("ift", 2), ("ifx", 1), ("ifx", 18)}
        level = (name, number) in {("ift", 7), ("ift", 8), ("ifx", 15)}
        kind = "DisplayString" if text else "gauge" if level else "counter"
        lines += [f"  - name: {name}{number}", f"    oid: {'.'.join(map(str, (*table, number)))}", f"    type: {kind}"]
        lines += ["    help: x", "    indexes:", "    - {labelname: ifIndex, type: gauge}"]
        if name == "pfc":
            lines.append("    - {labelname: priority, type: gauge}")
        lines += ["    lookups:", "    - labels: [ifIndex]", "      labelname: ifName"]
        lines += [f"      oid: {'.'.join(map(str, (*IFX, 1)))}", "      type: DisplayString"]
    return "\n".join(lines) + "\n"


async def _our_polls(port: int) -> float:
    """Poll, apply the rates and print, all columns read each time; give the CPU seconds of one such poll."""
    target = Target(name="leaf-01", address=f"127.0.0.1:{port}", snmp=Snmp(community="public"))
    pfc = [
        CounterColumn((*PFC, 1), "transmit_pfc_frames_total", 32),
        CounterColumn((*PFC, 2), "receive_pfc_frames_total", 32),
    ]
    reader = SnmpReader(target, Snmp(community="public"), 10.0, pfc=pfc)
    poller = Poller(SwitchSource(target, 10.0, reader), [rates.step])
    renderer = Renderer(openmetrics=True)
    await poller.poll()
    began, series = time.process_time(), 0
    for _ in range(POLLS):
        reader.forget_inventory()  # names and aliases are read too, as the peer does at each scrape
        await poller.poll()
        series = sum(piece.count(b"\n") for piece in renderer.render(poller.fresh_tables()))
    used = (time.process_time() - began) / POLLS
    if poller.status.up is not True or series < 2_000:
        raise RuntimeError(f"polls failed: {poller.status.reason or series}")
    await reader.close()
    return used


def run() -> list[Figure]:
    """Measure both against the same agent."""
    program = peer("prometheus-snmp-exporter")
    if program is None:
        return []
    with agent() as port, tempfile.TemporaryDirectory() as place:
        config = Path(place) / "snmp.yml"
        config.write_text(_peer_module())
        listen = free_port()
        with running([program, f"--config.file={config}", f"--web.listen-address=127.0.0.1:{listen}"]) as process:
            scraper = Scraper(listen, f"/snmp?target=127.0.0.1:{port}&module=bench")
            scraper.wait()
            before = cpu_seconds(process.pid)
            for _ in range(POLLS):
                scraper.scrape()
            theirs = (cpu_seconds(process.pid) - before) / POLLS
        ours = asyncio.run(_our_polls(port))
    name = "poll of a switch, 2,176 variables read, rated and printed"
    return [Figure(name, "ms CPU", ours * 1e3, "snmp_exporter", theirs * 1e3, 0.5)]
