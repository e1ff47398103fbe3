"""One golden file a source: all that a scrape shows for made-up devices whose counters stand still.

The devices are folders of files, recordings and simulated switches; the daemon is the real one. See golden.py for how
to write the files anew.
"""

import asyncio
import os
import shutil
import subprocess
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from prometheus_client import parser as text_parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from exporter.daemon.sources import SOURCES
from exporter.mqtt.connection import ConnectionStatus
from exporter.mqtt.dedup import Deduplicator
from exporter.mqtt.retained_state import RetainedState
from exporter.nccl.batch import Batch, Operation, Stream
from exporter.simulator.onyx import (
    OnyxPort,
    OnyxSimulator,
    OnyxSwitch,
    OnyxTraffic,
)
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.snmp.ber import (
    COUNTER32,
    COUNTER64,
    GAUGE32,
    INTEGER,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    TIME_TICKS,
    Typed,
)
from exporter.sources.optics import options as optics_options
from tests.helpers.checked_host import CheckedHost
from tests.helpers.fabric_simulation import Clock, small
from tests.helpers.fake_namespaces import FakeNamespaces, port_with_functions, virtual_function
from tests.helpers.fake_nic_reader import KERNEL, hardware
from tests.helpers.golden import (
    OPENMETRICS,
    compare,
    is_fixed,
    scraped,
)
from tests.helpers.paths import FIXTURES
from tests.linux.lldp.test_frames import HOST, networkd_file
from tests.linux.lldp.test_peer_settings import LEAF_FRAME
from tests.sources.lldp.test_source import FakeLinkReader
from tests.sources.pods.test_source import COUNTERS, function_answer, request_for

SYSTEM, IF, IFX = (1, 3, 6, 1, 2, 1, 1), (1, 3, 6, 1, 2, 1, 2, 2, 1), (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
CISCO_PFC = (1, 3, 6, 1, 4, 1, 9, 9, 813, 1, 2, 1)
PORTS = ("Ethernet1/1", "Ethernet1/2")
"""Of the switch that speaks SNMP: the first is up, the second down."""


def configured(tmp_path, **sources):
    """Write a configuration in which all sources of the host are off but those given."""
    lines = ["host: gpu-001", "sources:"]
    lines += [f"  {one.name}: {sources.get(one.name, '{enabled: false}')}" for one in SOURCES if not one.section]
    path = tmp_path / "config.yml"
    path.write_text("\n".join([*lines, sources.get("switches", ""), ""]))
    return path


def agent_rows():
    """Give a switch with two ports: counters beyond 2^53 and at the top of 64 bits, and a name with a quote in it."""
    rows = {
        (*SYSTEM, 1, 0): Typed(OCTET_STRING, b"Example switch, version 1.2"),
        (*SYSTEM, 2, 0): Typed(OBJECT_IDENTIFIER, (2, 999, 7)),
        (*SYSTEM, 3, 0): Typed(TIME_TICKS, 123456),
        (*SYSTEM, 5, 0): Typed(OCTET_STRING, b"leaf-01"),
    }
    for index, name in enumerate(PORTS, start=1):
        texts = {(*IF, 2): name.encode(), (*IFX, 1): name.encode(), (*IFX, 18): f'to "gpu-00{index}"'.encode()}
        states = {(*IF, 3): 6, (*IF, 7): 1, (*IF, 8): index}
        wide = {(*IFX, place): 2**53 + place * index for place in range(6, 14)}
        narrow = {(*IF, place): place * index for place in (13, 14, 19, 20)}
        rows |= {(*oid, index): Typed(OCTET_STRING, value) for oid, value in texts.items()}
        rows |= {(*oid, index): Typed(INTEGER, value) for oid, value in states.items()}
        rows |= {(*oid, index): Typed(COUNTER64, value) for oid, value in wide.items()}
        rows |= {(*oid, index): Typed(COUNTER32, value) for oid, value in narrow.items()}
        rows[(*IF, 4, index)] = Typed(INTEGER, 9216)
        rows[(*IFX, 15, index)] = Typed(GAUGE32, 400_000 if index == 1 else 0)
    rows[(*IFX, 10, 1)] = Typed(COUNTER64, 2**64 - 1)
    rows |= {(*CISCO_PFC, column, 1, 3): Typed(COUNTER32, 100 * column) for column in (2, 3)}
    return rows


def onyx():
    traffic = OnyxTraffic(packets=11, bytes=2**53 + 1, error_packets=3, discard_packets=None, pause_packets=4)
    ports = {"Eth1/1": OnyxPort(speed="400G", description="gpu-003", receive=traffic, ecn_marked_packets=5)}
    return OnyxSwitch(password="one", ports=ports)


@asynccontextmanager
async def rdma(tmp_path):
    config = configured(tmp_path, rdma="{interval: 300ms}")
    async with scraped(config, sysfs=FIXTURES / "sysfs", procfs=tmp_path) as scraper:
        yield scraper


@asynccontextmanager
async def bursts(tmp_path):
    config = configured(tmp_path, bursts="{interval: 300ms, tick: 100ms}")
    async with scraped(config, sysfs=FIXTURES / "sysfs", procfs=tmp_path) as scraper:
        yield scraper


@asynccontextmanager
async def nic(tmp_path):
    config = configured(tmp_path, nic="{interval: 300ms}")
    replay = FIXTURES / "nic-replay"
    async with scraped(config, sysfs=FIXTURES / "sysfs", procfs=tmp_path, nic_replay=replay) as scraper:
        yield scraper


@asynccontextmanager
async def pci(tmp_path):
    config = configured(tmp_path, pci="{interval: 300ms, keep: ['*']}")
    async with scraped(config, sysfs=FIXTURES / "sysfs-pci", procfs=tmp_path) as scraper:
        yield scraper


@asynccontextmanager
async def hostcheck(tmp_path):
    """Give a host with a fault in each family of checks."""
    host = CheckedHost(tmp_path / "host")
    host.write_sys(f"{host.function('0000:18:00.0')}/current_link_width", "8")
    host.gids("mlx5_2", [("fe80::1", "IB/RoCE v1"), ("fe80::1", "RoCE v2"), ("::", ""), ("::", "")])
    host.record("rail3", pause={"receive": True, "transmit": True})
    host.process(4242, memlock="8388608", RANK="0", WORLD_SIZE="8", NCCL_IB_DISABLE="1")
    config = configured(tmp_path, hostcheck="{interval: 300ms}")
    async with scraped(config, sysfs=host.sysfs, procfs=host.procfs, nic_replay=host.recordings) as scraper:
        yield scraper


@asynccontextmanager
async def optics(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optics_options, "MIN_INTERVAL_SECONDS", 0.1)  # three reads in less than three minutes
        config = configured(tmp_path, optics="{enabled: true, interval: 300ms}")
        replay = FIXTURES / "optics"
        async with scraped(config, sysfs=tmp_path, procfs=tmp_path, nic_replay=replay) as scraper:
            yield scraper


@asynccontextmanager
async def switch(tmp_path):
    async with AsyncExitStack() as stack:
        agent = await stack.enter_async_context(SnmpAgent(agent_rows(), community="one"))
        host, port = await agent.start()
        simulator = await stack.enter_async_context(OnyxSimulator(onyx()))
        switches = (
            "switches:\n  defaults: {interval: 300ms}\n  targets:\n"
            f'    - {{name: first, address: "{host}:{port}", snmp: {{community: one}}}}\n'
            f'    - {{name: second, address: "{simulator.url}", onyx: {{username: monitor, password: one}}}}\n'
        )
        config = configured(tmp_path, switches=switches)
        yield await stack.enter_async_context(scraped(config, sysfs=tmp_path, procfs=tmp_path))


@asynccontextmanager
async def nccl(tmp_path):
    folder = tmp_path / "nccl" / "job"
    folder.mkdir(parents=True)
    config = configured(tmp_path, nccl=f'{{interval: 300ms, socket: false, inspector: ["{folder.parent}"]}}')
    async with scraped(config, sysfs=tmp_path, procfs=tmp_path) as scraper:
        await scraper.settled()  # what is in the files before the first read is history
        for name, pid in (("v4.0", 4711), ("v4.3", 88)):
            shutil.copy(FIXTURES / "inspector" / f"{name}.log", folder / f"gpu-001-pid{pid}.log")
        yield scraper


@asynccontextmanager
async def nccl_facts(tmp_path):
    """Give a log that tells first how the job is connected, and a text file of 20.5 seconds ago."""
    logs, texts = tmp_path / "logs" / "llama", tmp_path / "texts" / "llama"
    logs.mkdir(parents=True)
    texts.mkdir(parents=True)
    shutil.copy(FIXTURES / "nccl-facts" / "roce.log", logs)
    written = texts / "nccl_inspector_metrics_GPU-1.prom"
    shutil.copy(FIXTURES / "nccl-formats" / written.name, written)
    os.utime(written, (1_700_000_000, 1_700_000_000))
    options = f'{{interval: 300ms, logs: ["{logs.parent}"], textfiles: ["{texts.parent}"], ras: {{enabled: true}}}}'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("exporter.sources.nccl_facts.source.time", lambda: 1_700_000_020.5)
        async with scraped(configured(tmp_path, nccl_facts=options), sysfs=tmp_path, procfs=tmp_path) as scraper:
            await scraper.settled()
            with (logs / "roce.log").open("ab") as log:
                log.write((FIXTURES / "nccl-facts" / "trouble.log").read_bytes())
            yield scraper


@asynccontextmanager
async def lldp(tmp_path):
    folder = tmp_path / "lldp"
    folder.mkdir()
    for index, frame in ((2, LEAF_FRAME), (3, HOST)):
        (folder / str(index)).write_bytes(networkd_file(frame))
    config = configured(tmp_path, lldp=f'{{interval: 300ms, folder: "{folder}"}}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("exporter.sources.lldp.source.nic_reader", lambda _host: FakeLinkReader)
        async with scraped(config, sysfs=tmp_path, procfs=tmp_path) as scraper:
            yield scraper


@asynccontextmanager
async def pods(tmp_path):
    """Have a pod with a macvlan device, and one with a virtual function whose traffic its port counts."""
    port, function = "0000:17:00.0", "0000:17:00.2"
    namespaces = FakeNamespaces()
    namespaces.host.add(hardware("ens1f0np0", 2, port))
    port_with_functions(tmp_path, port, rdma="mlx5_0")
    virtual_function(tmp_path, function, port, 1, rdma="mlx5_2")
    namespaces.function_answers[request_for(2)] = function_answer((1, "0a0000000001", COUNTERS))
    state = {"carrier": True, "operstate": "up", "stats": KERNEL}
    namespaces.add("cni-1").add("net1", 3, mac="0a:00:00:00:00:02", **state)
    namespaces.add("cni-2").cards.add(hardware("net1", 4, function, mac="0a:00:00:00:00:01", stats=KERNEL))
    config = configured(tmp_path, pods="{enabled: true, interval: 300ms, results: [], logs: ''}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("exporter.sources.pods.source.kernel_access", lambda _options, _host: namespaces.access())
        async with scraped(config, sysfs=tmp_path, procfs=tmp_path) as scraper:
            yield scraper


class Alone:
    """A subnet lock that is always free."""

    def __init__(self, _name, _folder):
        pass

    def acquire(self, _subnet):
        return ""

    def release(self):
        pass


def fabric(clock):
    """Give a fabric with a faster link, a narrower one, a silent host, and counters with something in them."""
    made = small(clock)
    made.prefix = 0xFE80 << 48
    gpu_2, gpu_3, gpu_4, leaf_1, leaf_2, spine = made.nodes[1:]
    for node, number, host in ((leaf_1, 2, gpu_2), (leaf_2, 1, gpu_3)):
        xdr = host is gpu_2
        ports = made.link(node, number, host, 1, lanes=4 if xdr else 2, generation="XDR" if xdr else "HDR")
        for port in ports:
            port.supported_generations = (
                (*port.supported_generations, "NDR", "XDR") if xdr else port.supported_generations
            )
    gpu_4.stop_responding()
    leaf_1.mask_2 = 1 << 1
    leaf_1.ports[3].counts = {"transmit_words": 2**53 + 1, "receive_packets": 5, "symbol_errors": 2**40}
    spine.ports[1].counts = {"symbol_errors": 65535, "link_down": 3, "receive_errors": 9, "local_physical": 9}
    spine.mask |= 1 << 14  # of Reed and Solomon
    spine.ports[1].fec = (7, 1, 0)
    spine.description = b'spine "one"'
    return made


@asynccontextmanager
async def ibfabric(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        simulated = fabric(Clock().install(patch))
        patch.setattr("exporter.sources.ibfabric.source.UmadPortOpener", lambda: simulated)
        patch.setattr("exporter.sources.ibfabric.source.SubnetLock", Alone)
        config = configured(tmp_path, ibfabric="{enabled: true, interval: 300ms, timeout: 10ms, retries: 0}")
        async with scraped(config, sysfs=tmp_path, procfs=tmp_path) as scraper:
            yield scraper


class FourBatches:
    """A subscriber that receives one batch from each of four hosts."""

    def __init__(self, _options, _slots, supervisor):  # as of a Subscriber
        self.status, self.subscribed = ConnectionStatus(connected=True, connects=2), True
        self.deduplicator, self.retained = Deduplicator(), RetainedState()
        self.accepted, self.dropped, self.refused = 0, 0, {"malformed": 1}

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def batches(self):
        for rank in range(4):
            host = f"gpu-{rank}"
            stream = Stream("llm", "0xa1", "AllReduce", rank, 4, 4, None if rank == 3 else rank, host, 4711)
            operations = [Operation(number, 4 << 20, 900.0 - 100 * rank, True) for number in range(3)]
            batch = Batch("llm", host, [(stream, operations)], sent=1.0, dropped=rank, epoch=f"{rank:016x}", tick=1)
            self.accepted += 1
            yield self.deduplicator.filter_new(batch)
        await asyncio.Event().wait()


@asynccontextmanager
async def collector(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("exporter.mqtt.subscriber.Subscriber", FourBatches)
        patch.setattr("exporter.daemon.relay.Relay.start", nothing)
        patch.setattr("exporter.daemon.relay.Relay.status", lambda _self: None)
        sections = "mqtt: {broker: 127.0.0.1}\ncollector: {slots: 00-ff, interval: 300ms}"
        async with scraped(configured(tmp_path, switches=sections), sysfs=tmp_path, procfs=tmp_path) as scraper:
            yield scraper


async def nothing(_self):
    """Connect to no broker."""


SCRAPES = {
    "rdma": rdma,
    "bursts": bursts,
    "nic": nic,
    "pci": pci,
    "pods": pods,
    "optics": optics,
    "lldp": lldp,
    "hostcheck": hostcheck,
    "switch": switch,
    "nccl": nccl,
    "nccl_facts": nccl_facts,
    "ibfabric": ibfabric,
    "collector": collector,
}


@pytest.fixture(params=[definition.name for definition in SOURCES])
async def scrape(request, tmp_path):
    """Give the name of each source in turn, and what scrapes a daemon that reads it."""
    async with SCRAPES[request.param](tmp_path) as scraper:
        yield request.param, scraper


def values(families):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
        if is_fixed(sample.name)
    }


async def test_a_scrape_is_that_of_the_golden_file_and_the_same_in_both_formats(scrape):
    name, scraper = scrape
    text = await scraper.settled()
    compare(name, text)
    by_text = values(text_parser.text_string_to_metric_families(text))
    by_openmetrics = values(openmetrics_parser.text_string_to_metric_families(await scraper.text(OPENMETRICS)))
    assert by_text == by_openmetrics


@pytest.mark.parametrize("name", SCRAPES)
def test_promtool_has_nothing_to_say_of_a_golden_file(name, program):
    text = (FIXTURES / "golden" / f"{name}.txt").read_text().replace(" VARIES", " 1")
    done = subprocess.run(
        [program("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
