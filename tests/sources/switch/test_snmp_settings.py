"""The configuration of ports by SNMP: ifMtu, which is read with the names."""

import pytest

from exporter.snmp.ber import INTEGER, Typed
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.readers.snmp import reader as switch_snmp
from exporter.sources.switch.readers.snmp.reader import SnmpReader
from tests.sources.switch.test_snmp import IF, TYPE, port, served, system

MTU = (*IF, 4)


@pytest.fixture
def clock(stopped_clock):
    return stopped_clock(switch_snmp)


async def mtus(reader):
    """Poll once; return the MTU of each port that has one."""
    reading = await reader.read()
    assert reading.failures == []
    columns = [(part.keys, part.columns["mtu_bytes"].values) for part in reading.parts if "mtu_bytes" in part.columns]
    return {port: mtu for keys, values in columns for (port,), mtu in zip(keys, values, strict=True)}


async def test_mtus_of_ports_are_read_with_the_names(clock):
    rows = system() | port(1, "swp1") | port(2, "swp2") | port(3, "swp3") | port(4, "swp4") | port(5, "lo")
    rows |= {(*MTU, index): Typed(INTEGER, mtu) for index, mtu in ((1, 9216), (2, 1500), (3, 0), (5, 65536))}
    rows[*TYPE, 5] = Typed(INTEGER, 24)
    async with served(rows) as agent:
        snmp = Snmp(community="public", timeout=20.0)
        reader = SnmpReader(Target(name="leaf", address=agent.address, snmp=snmp), snmp, 60.0)
        try:
            assert await mtus(reader) == {"swp1": 9216, "swp2": 1500}
            agent.set_many({(*MTU, 1): Typed(INTEGER, 9000)})
            assert await mtus(reader) == {"swp1": 9216, "swp2": 1500}
            clock.now += switch_snmp.INVENTORY_SECONDS
            assert await mtus(reader) == {"swp1": 9000, "swp2": 1500}
        finally:
            await reader.close()


@pytest.mark.parametrize("mtu", [-1, 0, 65535, 2147483647])
async def test_an_agent_without_mtus_has_no_such_column(mtu):
    async with served(system() | port(1, "swp1") | {(*MTU, 1): Typed(INTEGER, mtu)}) as agent:
        snmp = Snmp(community="public", timeout=20.0)
        reader = SnmpReader(Target(name="leaf", address=agent.address, snmp=snmp), snmp, 60.0)
        try:
            assert await mtus(reader) == {}
        finally:
            await reader.close()
