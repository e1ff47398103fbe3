"""Speeds of ports by SNMP: at the first poll, and those that are disproved; and octets of 32 bits."""

import pytest

from exporter.core.definition import SourceSteps
from exporter.core.poller import Poller
from exporter.daemon import pipeline
from exporter.daemon.pipeline import Expectation
from exporter.snmp.ber import COUNTER32, COUNTER64, GAUGE32, INTEGER, Typed
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.readers.snmp import profile
from exporter.sources.switch.readers.snmp import reader as switch_snmp
from exporter.sources.switch.readers.snmp.reader import SnmpReader
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.source import SwitchSource
from tests.sources.switch.test_snmp import (
    HIGH_SPEED,
    IF,
    IFX,
    IN_OCTETS,
    LONG,
    TYPE,
    Meaning,
    count,
    port,
    read,
    reader_of,
    served,
    system,
)


@pytest.fixture
def clock(stopped_clock):
    return stopped_clock(switch_snmp)


def without(rows, *columns):
    """Return rows without some columns."""
    return {oid: value for oid, value in rows.items() if oid[:-1] not in columns}


async def test_a_switch_without_ifhighspeed_has_speeds_at_its_first_poll():
    rows = without(system() | port(1, "e1") | port(2, "e2"), HIGH_SPEED)
    rows |= {(*IF, 5, 1): Typed(GAUGE32, 10**9), (*IF, 5, 2): Typed(GAUGE32, 2**32 - 1)}
    async with served(rows) as agent, reader_of(agent) as reader:
        for _ in range(2):
            found = await read(reader)
            assert found["leaf-a", "e1"]["link_speed_bytes_per_second"] == 1e9 / 8
            assert "link_speed_bytes_per_second" not in found["leaf-a", "e2"], "faster than the range of ifSpeed"


async def test_ifspeed_is_walked_no_longer_where_ifhighspeed_has_all():
    rows = system() | port(1, "e1") | {(*IF, 5, 1): Typed(GAUGE32, 10)}
    async with served(rows) as agent, reader_of(agent) as reader:
        first, second = await count(agent, reader), await count(agent, reader)
        assert second <= first
        rows[*HIGH_SPEED, 1] = Typed(GAUGE32, 100_000)
        assert (await read(reader))["leaf-a", "e1"]["link_speed_bytes_per_second"] == 50e9


@pytest.mark.parametrize("high", [0, 2**32 - 1])
async def test_ifspeed_is_the_speed_where_ifhighspeed_is_none(high):
    """RFC 2863 has ifHighSpeed 0 below half a megabit; agents send 0, or the end of its range, where it is unknown."""
    rows = system() | port(1, "e1") | port(2, "e2")
    rows |= {(*HIGH_SPEED, 1): Typed(GAUGE32, high), (*IF, 5, 1): Typed(GAUGE32, 10**9)}
    rows |= {(*IF, 5, 2): Typed(GAUGE32, 2**32 - 1)}
    async with served(rows) as agent, reader_of(agent) as reader:
        for _ in range(3):
            found = await read(reader)
            speeds = {name: found["leaf-a", name]["link_speed_bytes_per_second"] for name in ("e1", "e2")}
            assert speeds == {"e1": 1e9 / 8, "e2": 50e9}


# What a profile of the user reads.
NARROW_OCTETS = """\
name: narrow
extends: generic
tables:
  octets_32:
    family: traffic
    root: 1.3.6.1.2.1.2.2.1
    columns:
      - {column: 10, metric: receive_bytes_total, width: 32}
      - {column: 16, metric: transmit_bytes_total, width: 32}
"""


@pytest.mark.parametrize("wide", [(), (1,), (1, 2)])
async def test_octets_of_32_bits_are_counts_where_there_are_no_others(tmp_path, wide):
    """A part of the ports of some agents has a row in ifXTable."""
    (tmp_path / "narrow.yml").write_text(NARROW_OCTETS)
    loaded = profile.load([tmp_path / "narrow.yml"])
    rows = system() | port(1, "e1") | port(2, "e2")
    for index in {1, 2} - {*wide}:
        for column in (6, 10):
            del rows[*IFX, column, index]
    for index in (1, 2):
        rows |= {(*IF, 10, index): Typed(COUNTER32, 70 + index), (*IF, 16, index): Typed(COUNTER32, 90 + index)}
    async with served(rows) as agent:
        snmp = Snmp(community="public", timeout=20.0, retries=1)
        target = Target(name="target-1", address=agent.address, snmp=snmp, profile="narrow")
        source = SwitchSource(target, LONG, [SnmpReader(target, snmp, LONG, loaded)], SwitchRegistry())
        try:
            for _ in range(4):
                reading = await source.read()
                assert reading.failures == []
                found = Meaning()(reading)
        finally:
            await source.close()
    octets = {index: found["leaf-a", f"e{index}"]["receive_bytes_total"] for index in (1, 2)}
    assert octets == {index: index * 1000 if index in wide else 70 + index for index in (1, 2)}


STATED = (
    # ifName, ifType, ifSpeed, ifHighSpeed, bytes a second, and what is right after some polls: the speed
    ("Ethernet0", 6, 2**32 - 1, 400_000, 20e9, 50e9),
    ("Ethernet8", 6, 2**32 - 1, 400_000, 40e9, 50e9),
    ("te1", 6, 10, None, 1e9, None),
    ("xe2", 6, 100_000_000, 100_000_000, 1e7, None),
    ("PortChannel1", 161, 2**32 - 1, 40_000, 150e9, None),
    ("bond1", 161, 10_000_000, 10, 20e9, None),
    ("swp1", 6, 10_000_000, 10, 1e8, None),
)


async def test_stated_speeds_of_recordings(clock):
    """Speeds in other units, of one member of a bundle, or configured long ago, while the octets rise by far more."""
    rows = system()
    for index, (name, kind, low, high, *_) in enumerate(STATED, 1):
        rows |= port(index, name) | {(*TYPE, index): Typed(INTEGER, kind), (*IF, 5, index): Typed(GAUGE32, low)}
        if high is None:
            del rows[*HIGH_SPEED, index]
        else:
            rows[*HIGH_SPEED, index] = Typed(GAUGE32, high)
    async with served(rows) as agent, reader_of(agent) as source:
        poller = Poller(source, pipeline.steps(Expectation(), SourceSteps()))
        for poll in range(6):
            for index, (*_, rate, _) in enumerate(STATED, 1):
                agent.set((*IN_OCTETS, index), Typed(COUNTER64, round(rate * 15 * poll)))
            await poller.poll()
            assert poller.status.up, poller.status.detail
            clock.now += 15.0
    (table,) = [one for one in poller.tables if one.schema.labels == ("switch", "port") and "link_up" in one.columns]
    for place, (_, name) in enumerate(table.rows.keys):
        *_, rate, speed = next(one for one in STATED if one[0] == name)
        assert table.values("link_speed_bytes_per_second")[place] == speed, name
        assert table.values("receive_bytes_per_second")[place] == pytest.approx(rate), name
        share = table.values("receive_utilization_ratio")[place]
        assert share == (None if speed is None else pytest.approx(rate / speed)), name
    disproved = {name for name, reason in poller.status.failures if reason == "speed_disproved"}
    assert disproved == {"te1", "PortChannel1", "bond1", "swp1"}
    assert poller.status.failures["xe2", "speed_impossible"] == 6


ATTACHED = (1, 2, 840, 10006, 300, 43, 1, 2, 1, 1, 13)
"""IEEE8023-LAG-MIB dot3adAggPortAttachedAggID: the bundle of each port, by its ifIndex."""


@pytest.mark.parametrize(("members", "is_believed"), [(0, False), (2, True), (4, False)])
async def test_what_a_bundle_can_carry_follows_from_its_members(clock, members, is_believed):
    """600 GB/s are three ports of 1.6 Tb/s: too much for two members, and possible where their number is unknown."""
    rows = system() | port(9, "Port-channel1", speed=400_000)
    for index in range(1, members + 1):
        rows |= port(index, f"e{index}") | {(*ATTACHED, index): Typed(INTEGER, 9)}
    async with served(rows) as agent, reader_of(agent) as source:
        poller = Poller(source, pipeline.steps(Expectation(), SourceSteps()))
        for poll in range(6):
            agent.set((*IN_OCTETS, 9), Typed(COUNTER64, round(600e9 * 15 * poll)))
            await poller.poll()
            assert poller.status.up, poller.status.detail
            clock.now += 15.0
    (table,) = [one for one in poller.tables if one.schema.labels == ("switch", "port") and "link_up" in one.columns]
    row = table.rows.index["leaf-a", "Port-channel1"]
    assert (table.values("link_speed_bytes_per_second")[row] is not None) is is_believed
    assert table.values("receive_bytes_per_second")[row] == (None if is_believed else pytest.approx(600e9))
