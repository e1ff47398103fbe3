"""Ports that are up and whose bytes the switch does not count, by every protocol."""

import json

import pytest
import redis

from exporter.core.table import Column
from exporter.sources.switch.merge import PartialTable, SwitchDevice, SwitchReading
from exporter.sources.switch.metrics import PORTS
from exporter.sources.switch.options import Redis, Target
from exporter.sources.switch.port_kinds import port_info
from exporter.sources.switch.readers.sonic_db.reader import RedisReader
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.source import SwitchSource
from exporter.sources.switch.uncounted import POLLS, REASON
from tests.helpers.redis_server import fill, running_redis

TARGET = Target(name="leaf", address="192.0.2.1", redis=Redis(address="192.0.2.1:6379"))
NAMES = ("Ethernet0", "Ethernet4", "Ethernet8", "Ethernet12")


class PortReader:
    """A reader of ports; `columns` are those of the next poll, by ending."""

    def __init__(self, columns, *, protocol="redis", names=NAMES, types=("6",) * 4):
        self.columns, self.protocol, self.names, self.types, self.time = columns, protocol, names, types, 0.0

    async def read(self):
        self.time += 15.0
        infos = [port_info("leaf", name, "", "", one) for name, one in zip(self.names, self.types, strict=True)]
        columns = {
            ending: Column(PORTS.metrics[ending], values) for ending, values in {**self.columns, "info": infos}.items()
        }
        keys = [(name,) for name in self.names]
        return SwitchReading(SwitchDevice(name="leaf"), [PartialTable(PORTS, keys, columns, self.time)])

    def invalidate_neighbours(self, port):
        """Do nothing: there are none."""

    async def close(self):
        """Nothing is open."""


def of(*readers):
    return SwitchSource(TARGET, 15.0, readers, SwitchRegistry())


async def uncounted(source):
    return [one.device for one in (await source.read()).failures if one.reason == REASON]


def counts(receive, transmit=None, ups=(1,) * 4):
    given = {"link_up": ups, "receive_bytes_total": receive, "transmit_bytes_total": transmit or receive}
    return {ending: values for ending, values in given.items() if values is not None}


@pytest.mark.parametrize(
    ("columns", "ports"),
    [
        (counts(None), sorted(NAMES)),
        (counts([1, 2, None, 4]), ["Ethernet8"]),
        (counts([1, 2, 3, 4], [1, None, 3, 4]), ["Ethernet4"]),
        (counts([1, 2, 3, 4]), []),
        (counts([0, 0, 0, 0]), []),  # a count of 0 is a count
        (counts(None, ups=(0, None, 0, 1)), ["Ethernet12"]),
    ],
)
async def test_ports_that_are_up_without_byte_counts_are_failures_after_some_polls(columns, ports):
    source = of(PortReader(columns))
    assert [await uncounted(source) for _ in range(POLLS - 1)] == [[]] * (POLLS - 1)
    assert [await uncounted(source) for _ in range(2)] == [ports] * 2


async def test_the_polls_are_running_ones():
    reader = PortReader(counts(None))
    source = of(reader)
    for _ in range(4):
        reader.columns = counts(None)
        assert [await uncounted(source) for _ in range(POLLS - 1)] == [[]] * (POLLS - 1)
        reader.columns = counts([1, 2, 3, 4])
        assert await uncounted(source) == []


async def test_bytes_that_another_protocol_counts_are_counts():
    names = PortReader({"link_up": (1,) * 4}, protocol="onyx")
    source = of(names, PortReader(counts([1, 2, 3, None]), protocol="snmp"))
    assert [await uncounted(source) for _ in range(POLLS)][-1] == ["Ethernet12"]


async def test_what_is_no_physical_port_needs_no_count():
    names, types = ("Vlan10", "mgmt0", "PortChannel1", "Ethernet0"), ("6", "6", "6", "6")
    source = of(PortReader(counts(None), names=names, types=types))
    assert [await uncounted(source) for _ in range(POLLS)][-1] == ["Ethernet0"]


# A recording of SONiC: the group PORT is enabled, and one of two ports has no entry in COUNTERS_DB.
APPLICATION = {
    f"PORT_TABLE:{name}": {"oper_status": "up", "admin_status": "up", "speed": "400000"}
    for name in ("Ethernet0", "Ethernet8")
}
COUNTERS = {
    "COUNTERS_PORT_NAME_MAP": {"Ethernet0": "oid:0x1000000000001", "Ethernet8": "oid:0x1000000000002"},
    "COUNTERS:oid:0x1000000000001": {"SAI_PORT_STAT_IF_IN_OCTETS": "1000", "SAI_PORT_STAT_IF_OUT_OCTETS": "1000"},
}
CONFIGURATION = {"FLEX_COUNTER_TABLE|PORT": {"FLEX_COUNTER_STATUS": "enable"}}


@pytest.mark.parametrize(("counted", "ports"), [(["Ethernet0"], ["Ethernet8"]), ([], ["Ethernet0", "Ethernet8"])])
async def test_sonic_without_counters(program, tmp_path, counted, ports):
    counters = COUNTERS if counted else {"COUNTERS_PORT_NAME_MAP": COUNTERS["COUNTERS_PORT_NAME_MAP"]}
    assert json.dumps(counters).count("IN_OCTETS") == len(counted)
    with running_redis(program("redis-server"), tmp_path) as path:
        for number, hashes in ((0, APPLICATION), (2, counters), (4, CONFIGURATION)):
            client = redis.Redis(unix_socket_path=path, db=number)
            fill(client, hashes)
            client.close()
        given = Redis(address=path, timeout=20.0)
        target = Target(name="leaf", address="192.0.2.1", redis=given)
        source = SwitchSource(target, 60.0, [RedisReader(target, given, 60.0)], SwitchRegistry())
        try:
            found = [await uncounted(source) for _ in range(POLLS)]
        finally:
            await source.close()
    assert found == [[]] * (POLLS - 1) + [ports]
