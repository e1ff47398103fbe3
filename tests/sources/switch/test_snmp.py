"""Switches by SNMP: metrics of IF-MIB, and faulty agents, which affect only their own columns."""

import asyncio
import contextlib
import os
import socket
import time
from pathlib import Path

import pytest

from exporter.core.definition import Context
from exporter.core.poller import Poller
from exporter.core.source import Host, SourceError
from exporter.core.table import escape_label
from exporter.meaning.ports import rates
from exporter.simulator.ports import HOST
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.snmp_v3 import Engine
from exporter.simulator.switches import DemoLeaf, fill_agent, update_agent
from exporter.simulator.traffic import Training
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
from exporter.snmp.security import Authentication, User
from exporter.sources.switch import source as switch
from exporter.sources.switch.metrics import FAMILIES
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.readers.snmp import reader as switch_snmp
from exporter.sources.switch.readers.snmp.reader import SnmpReader
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.source import SwitchSource
from exporter.sources.switch.targets import SwitchOptions, TargetOptions
from tests.helpers.snmp_agents import reboot, remove_below

LONG = 60.0
SYSTEM = (1, 3, 6, 1, 2, 1, 1)
IF = (1, 3, 6, 1, 2, 1, 2, 2, 1)
IFX = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)

# Column of IF-MIB (RFC 2863): its type, and the ending of the metric.
COUNTERS = {
    (*IFX, 6): (COUNTER64, "receive_bytes_total"),  # ifHCInOctets
    (*IFX, 7): (COUNTER64, "receive_unicast_packets_total"),  # ifHCInUcastPkts
    (*IFX, 8): (COUNTER64, "receive_multicast_packets_total"),  # ifHCInMulticastPkts
    (*IFX, 9): (COUNTER64, "receive_broadcast_packets_total"),  # ifHCInBroadcastPkts
    (*IFX, 10): (COUNTER64, "transmit_bytes_total"),  # ifHCOutOctets
    (*IFX, 11): (COUNTER64, "transmit_unicast_packets_total"),  # ifHCOutUcastPkts
    (*IFX, 12): (COUNTER64, "transmit_multicast_packets_total"),  # ifHCOutMulticastPkts
    (*IFX, 13): (COUNTER64, "transmit_broadcast_packets_total"),  # ifHCOutBroadcastPkts
    (*IF, 13): (COUNTER32, "receive_discards_total"),  # ifInDiscards
    (*IF, 14): (COUNTER32, "receive_errors_total"),  # ifInErrors
    (*IF, 19): (COUNTER32, "transmit_discards_total"),  # ifOutDiscards
    (*IF, 20): (COUNTER32, "transmit_errors_total"),  # ifOutErrors
}
IN_OCTETS, IN_UNICAST, IN_ERRORS = (*IFX, 6), (*IFX, 7), (*IF, 14)
NAME, ALIAS, HIGH_SPEED, DESCR, TYPE, ADMIN, OPER = (
    (*IFX, 1),
    (*IFX, 18),
    (*IFX, 15),
    (*IF, 2),
    (*IF, 3),
    (*IF, 7),
    (*IF, 8),
)
UPTIME, SYSNAME = (*SYSTEM, 3, 0), (*SYSTEM, 5, 0)


def text(value):
    return Typed(OCTET_STRING, value if isinstance(value, bytes) else value.encode())


def port(index, name, *, oper=1, speed=400_000, alias=""):
    """Return all rows of a port: its counters are the index, the place of the column, and a thousand times both."""
    rows = {
        (*NAME, index): text(name),
        (*DESCR, index): text(f"port {index}"),
        (*TYPE, index): Typed(INTEGER, 6),
        (*ALIAS, index): text(alias),
        (*ADMIN, index): Typed(INTEGER, 1),
        (*OPER, index): Typed(INTEGER, oper),
        (*HIGH_SPEED, index): Typed(GAUGE32, speed),
    }
    return rows | {
        (*oid, index): Typed(kind, index * 1000 + place) for place, (oid, (kind, _)) in enumerate(COUNTERS.items())
    }


def system(name="leaf-a", uptime=100_000):
    return {
        (*SYSTEM, 1, 0): text("A switch of tests"),
        (*SYSTEM, 2, 0): Typed(OBJECT_IDENTIFIER, (2, 999, 7)),
        UPTIME: Typed(TIME_TICKS, uptime),
        SYSNAME: text(name),
    }


@pytest.fixture
def clock(stopped_clock):
    return stopped_clock(switch_snmp)


@contextlib.asynccontextmanager
async def served(rows, **options):
    """Serve rows; the agent knows its own address."""
    async with SnmpAgent(rows, **options) as agent:
        agent.address = "{}:{}".format(*await agent.start())
        yield agent


@contextlib.asynccontextmanager
async def reader_of(agent, name="target-1", *, interval=LONG, snmp=None, registry=None, **options):
    snmp = snmp or Snmp(community="public", timeout=20.0, retries=1)
    target = Target(name=name, address=agent.address, snmp=snmp, **options)
    source = SwitchSource(target, interval, [SnmpReader(target, snmp, interval)], registry or SwitchRegistry())
    try:
        yield source
    finally:
        await source.close()


class Meaning:
    """Passes readings through the rates, and returns rows by label; families of metrics separately."""

    def __init__(self):
        self.states = {}
        self.families = {}

    def __call__(self, reading):
        found = {}
        for table in reading.tables:
            if table.schema is FAMILIES:
                states = table.columns["family_info"].values
                self.families = {key[1]: state[0] for key, state in zip(table.rows.keys, states, strict=True)}
                continue
            key = (table.schema, table.part)
            self.states[key], tables = rates.step(self.states.get(key), table)
            for one in tables:
                for place, key in enumerate(one.rows.keys):
                    row = found.setdefault(key, {})
                    for ending, column in one.columns.items():
                        value = column.values[place]
                        if column.metric.extra and value is not None:
                            value = dict(zip(column.metric.extra, value, strict=True))
                        if value is not None:
                            row[ending] = value
        return found


async def read(reader):
    return Meaning()(await reader.read())


def reasons(reading):
    return sorted((failure.device, failure.reason) for failure in reading.failures)


# What comes out.


async def test_every_column_becomes_its_metric():
    async with served(system() | port(7, "Ethernet1/7", alias="gpu-001 eth2")) as agent, reader_of(agent) as reader:
        reading = await reader.read()
    assert reading.failures == []
    found = Meaning()(reading)
    row = found["leaf-a", "Ethernet1/7"]
    assert row.pop("info") == {
        "target": "target-1",
        "ifindex": "7",
        "alias": "gpu-001 eth2",
        "if_type": "6",
        "kind": "physical",
    }
    expected = {ending: 7000 + place for place, (_, ending) in enumerate(COUNTERS.values())}
    expected |= {
        "receive_packets_total": 7001 + 7002 + 7003,
        "transmit_packets_total": 7005 + 7006 + 7007,
        "link_up": 1,
        "admin_up": 1,
        "link_speed_bytes_per_second": 50e9,
        "resets_total": 0,
    }
    assert row == expected
    device = found[("leaf-a",)]
    assert {name: value for name, value in device["device_info"].items() if value} == {
        "target": "target-1",
        "profile": "generic",
        "description": "A switch of tests",
        "object_id": "2.999.7",
    }
    assert device["uptime_seconds"] == 1000.0


@pytest.mark.parametrize(
    ("oper", "speed", "up", "exported"),
    [
        (1, 0, 1, None),
        (1, 2**32 - 1, 1, None),
        (2, 400_000, 0, None),
        (1, 10, 1, 1.25e6),
        (7, 100, 0, None),
        (4, 100, None, None),
    ],
)
async def test_only_links_that_are_up_have_a_speed(oper, speed, up, exported):
    async with served(system() | port(1, "e1", oper=oper, speed=speed)) as agent, reader_of(agent) as reader:
        row = (await read(reader))["leaf-a", "e1"]
    assert row.get("link_up") == up
    assert row.get("link_speed_bytes_per_second") == exported
    assert row["admin_up"] == 1


@pytest.mark.parametrize(
    ("ticks", "exported"),
    [
        ((0, 0, 9_950), (0, 0, 99.5)),
        ((0, 0, 0), (None, None, None)),  # arista_eos_7280r: the agent does not have it
        ((99_000, 99_000, 99_000), (None, None, None)),  # Cumulus: the time at which its agent read the ports
        ((99_000, 99_000, 5), (None, None, None)),
        ((5, 5, 7, 9), (0.05, 0.05, 0.07, 0.09)),
    ],
)
async def test_a_link_has_the_uptime_at_which_it_changed_last(ticks, exported):
    rows = system()
    for number, one in enumerate(ticks, start=1):
        rows |= port(number, f"e{number}") | {(*IF, 9, number): Typed(TIME_TICKS, one)}
    async with served(rows) as agent, reader_of(agent) as reader:
        found = await read(reader)
    changed = [found["leaf-a", f"e{number}"].get("link_changed_uptime_seconds") for number, _ in enumerate(ticks, 1)]
    assert tuple(changed) == exported


@pytest.mark.parametrize("column", [(*IFX, 7), (*IFX, 8), (*IFX, 9)])
async def test_packets_are_absent_where_a_cast_is_missing(column):
    rows = system() | port(1, "e1") | port(2, "e2")
    del rows[*column, 2]
    async with served(rows) as agent, reader_of(agent) as reader:
        found = await read(reader)
        assert found["leaf-a", "e1"]["receive_packets_total"] == 3000 + 1 + 2 + 3
        assert "receive_packets_total" not in found["leaf-a", "e2"]
        assert found["leaf-a", "e2"]["transmit_packets_total"] == 6000 + 5 + 6 + 7
        remove_below(agent, column)
        assert "receive_packets_total" not in (await read(reader))["leaf-a", "e1"]


async def test_counters_above_the_precision_of_a_float():
    rows = system() | port(1, "e1") | {(*IN_OCTETS, 1): Typed(COUNTER64, 2**64 - 2)}
    async with served(rows) as agent, reader_of(agent) as reader:
        assert (await read(reader))["leaf-a", "e1"]["receive_bytes_total"] == 2**64 - 2


@pytest.mark.parametrize("value", [Typed(INTEGER, -5), text("many")])
async def test_invalid_counters_are_absent(value):
    rows = system() | port(1, "e1") | port(2, "e2") | {(*IN_OCTETS, 1): value}
    async with served(rows) as agent, reader_of(agent) as reader:
        found = await read(reader)
    assert "receive_bytes_total" not in found["leaf-a", "e1"]
    assert found["leaf-a", "e1"]["transmit_bytes_total"] == 1004
    assert found["leaf-a", "e2"]["receive_bytes_total"] == 2000


async def test_pfc_frames_by_priority():
    """CISCO-PFC-EXT-MIB: requests were sent, indications received; index of the interface, then the priority."""
    pfc = (1, 3, 6, 1, 4, 1, 9, 9, 813, 1, 2, 1)
    rows = system() | port(1, "e1") | port(2, "unwanted")
    for column, base in ((2, 100), (3, 200)):
        rows |= {(*pfc, column, 1, number): Typed(COUNTER64, base + number) for number in range(8)}
        rows |= {(*pfc, column, 2, 3): Typed(COUNTER64, 1), (*pfc, column, 77, 3): Typed(COUNTER64, 1)}
        rows |= {(*pfc, column, 1, 3, 9): Typed(COUNTER64, 999), (*pfc, column, 1): Typed(COUNTER64, 999)}
    del rows[*pfc, 2, 1, 5]
    async with served(rows) as agent, reader_of(agent, exclude=("u*",)) as reader:
        found = await read(reader)
        priorities = {key[1:]: row for key, row in found.items() if len(key) == 3}
        assert priorities.keys() == {("e1", str(number)) for number in range(8)}
        assert priorities["e1", "5"] == {"receive_pfc_frames_total": 205}
        assert priorities["e1", "3"] == {"transmit_pfc_frames_total": 103, "receive_pfc_frames_total": 203}


# Names.


async def test_ports_with_the_same_name_have_different_labels():
    rows = system() | port(1, "e1") | port(2, "e1") | port(3, "e1#1") | port(4, "")
    async with served(rows) as agent, reader_of(agent) as reader:
        found = await read(reader)
    ports = {key[1]: row["receive_bytes_total"] for key, row in found.items() if len(key) == 2}
    assert ports == {"e1#1": 3000, "e1#1#": 1000, "e1#2": 2000, "port 4": 4000}


async def test_a_port_without_a_name_has_its_index_as_label():
    rows = system() | port(1, "e1") | port(4, "") | {(*DESCR, 4): text("")}
    async with served(rows) as agent, reader_of(agent) as reader:
        assert (await read(reader))["leaf-a", "4"]["receive_bytes_total"] == 4000


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"Gr\xe4fin", r"Gr\\xe4fin"),
        ("Gräfin".encode(), "Gräfin"),
        (b"a\0b\0", r"a\\x00b"),
        ("Gräfin".encode()[:3], r"Gr\\xc3"),
        (b'" \\ \n }', r"\" \\ \n }"),
        (b"\xff" * 3, r"\\xff\\xff\\xff"),
        (b"  \t", ""),
    ],
)
async def test_any_bytes_in_an_alias_survive(raw, shown):
    async with served(system() | port(1, "e1", alias=raw)) as agent, reader_of(agent) as reader:
        row = (await read(reader))["leaf-a", "e1"]
    assert escape_label(row["info"]["alias"]) == shown
    assert row["receive_bytes_total"] == 1000


@pytest.mark.parametrize(
    ("options", "ports"),
    [
        ({}, {"e1", "e2", "mgmt0"}),
        ({"include": ("e*",)}, {"e1", "e2"}),
        ({"exclude": ("e1", "m*")}, {"e2"}),
        ({"include": ("mgmt0",), "exclude": ("mgmt?",)}, set()),
    ],
)
async def test_only_selected_ports_are_exported(options, ports, clock):
    rows = system() | port(1, "e1") | port(2, "e2") | port(3, "mgmt0")
    async with served(rows) as agent, reader_of(agent, **options) as reader:
        found = await read(reader)
        assert {key[1] for key in found if len(key) == 2} == ports
        asked = agent.requests
        await read(reader)
        polled = agent.requests - asked
        await read(reader)
        assert agent.requests - asked == 2 * polled, "ports that are not wanted are no reason for an inventory"


async def test_a_switch_without_a_name_has_the_label_of_its_target():
    rows = system() | port(1, "e1")
    del rows[SYSNAME]
    async with served(rows) as agent, reader_of(agent) as reader:
        assert (await read(reader)).keys() == {("target-1", "e1"), ("target-1",)}


async def test_two_switches_with_one_name_have_different_labels_and_the_name_is_released():
    registry = SwitchRegistry()
    async with served(system() | port(1, "e1")) as agent:
        async with (
            reader_of(agent, "target-2", registry=registry) as second,
            reader_of(agent, "target-1", registry=registry) as first,
        ):
            assert (await read(first)).keys() == {("leaf-a", "e1"), ("leaf-a",)}
            assert (await read(second)).keys() == {("target-2", "e1"), ("target-2",)}
            assert (await read(first)).keys() == {("leaf-a", "e1"), ("leaf-a",)}
        async with reader_of(agent, "target-3", registry=registry) as third:
            assert (await read(third)).keys() == {("leaf-a", "e1"), ("leaf-a",)}


async def test_a_switch_does_not_use_the_name_of_another_target(clock):
    options = SwitchOptions(
        targets=tuple(
            TargetOptions(name=name, address="127.0.0.1:1", snmp=Snmp(community="x")) for name in ("target-1", "leaf-a")
        )
    )
    context = Context(Host("", Path(), Path()))
    switch.DEFINITION.apply(options, context)
    registry = context.shared.get(SwitchRegistry)
    async with served(system() | port(1, "e1")) as agent:
        async with reader_of(agent, "target-1", registry=registry) as swapped:
            assert (await read(swapped)).keys() == {("target-1", "e1"), ("target-1",)}
        async with reader_of(agent, "leaf-a", registry=registry) as named:
            assert (await read(named)).keys() == {("leaf-a", "e1"), ("leaf-a",)}


async def test_a_renamed_switch_releases_its_name(clock):
    async with served(system() | port(1, "e1")) as agent, reader_of(agent, "target-1") as first:
        await read(first)
        agent.set(SYSNAME, text("leaf-b"))
        clock.now += switch_snmp.INVENTORY_SECONDS
        assert ("leaf-b", "e1") in await read(first)
        agent.set(SYSNAME, text("leaf-a"))
        async with reader_of(agent, "target-2") as second:
            assert ("leaf-a", "e1") in await read(second)


async def test_a_name_is_kept_when_it_cannot_be_read(clock):
    async with served(system() | port(1, "e1")) as agent, reader_of(agent) as reader:
        await read(reader)
        agent.faults.gen_err.add(SYSNAME)
        clock.now += switch_snmp.INVENTORY_SECONDS
        reading = await reader.read()
    assert ("leaf-a", "e1") in Meaning()(reading)
    assert reasons(reading) == [("system", "error_status")]


# What is read how often.


async def count(agent, reader):
    before = agent.requests
    await read(reader)
    return agent.requests - before


async def test_the_inventory_is_cached(clock):
    async with served(system() | port(1, "e1") | port(2, "e2")) as agent, reader_of(agent) as reader:
        first = await count(agent, reader)
        polls = [await count(agent, reader) for _ in range(3)]
        assert polls == [polls[0]] * 3
        assert polls[0] < first
        clock.now += switch_snmp.INVENTORY_SECONDS
        agent.set((*ALIAS, 1), text("new"))
        assert await count(agent, reader) > polls[0]
        assert await count(agent, reader) == polls[0]
        assert (await read(reader))["leaf-a", "e1"]["info"]["alias"] == "new"


async def test_the_inventory_is_read_again_after_a_restart(clock):
    async with served(system(uptime=500_000) | port(1, "e1") | port(2, "e2")) as agent, reader_of(agent) as reader:
        await read(reader)
        agent.set_many({UPTIME: Typed(TIME_TICKS, 3), (*NAME, 1): text("e2"), (*NAME, 2): text("e1")})
        found = await read(reader)
    assert (found["leaf-a", "e1"]["info"]["ifindex"], found["leaf-a", "e1"]["receive_bytes_total"]) == ("2", 2000)


async def test_an_interface_that_appears_is_exported_from_the_next_poll_but_one(clock):
    async with served(system() | port(1, "e1")) as agent, reader_of(agent) as reader:
        await read(reader)
        agent.set_many(port(2, "e2"))
        assert ("leaf-a", "e2") not in await read(reader)
        assert (await read(reader))["leaf-a", "e2"]["receive_bytes_total"] == 2000


async def test_an_interface_without_a_name_does_not_cause_an_inventory_at_each_poll(clock):
    stranger = {oid: value for oid, value in port(9, "x").items() if oid[:-1] not in {NAME, DESCR}}
    async with served(system() | port(1, "e1")) as agent, reader_of(agent) as reader:
        await read(reader)
        agent.set_many(stranger)
        await read(reader)
        anew = await count(agent, reader)
        polls = [await count(agent, reader) for _ in range(3)]
    assert polls == [polls[0]] * 3
    assert polls[0] < anew


async def test_an_empty_column_is_not_walked_until_the_next_inventory(clock):
    async with served(system() | port(1, "e1")) as agent, reader_of(agent) as reader:
        remove_below(agent, IN_ERRORS)
        assert "receive_errors_total" not in (await read(reader))["leaf-a", "e1"]
        agent.set((*IN_ERRORS, 1), Typed(COUNTER32, 9))
        assert "receive_errors_total" not in (await read(reader))["leaf-a", "e1"]
        clock.now += switch_snmp.INVENTORY_SECONDS
        assert (await read(reader))["leaf-a", "e1"]["receive_errors_total"] == 9


async def test_names_that_cannot_be_read_once_do_not_change_the_labels(clock):
    rows = system() | port(1, "e1", alias="spine")
    async with served(rows) as agent, reader_of(agent) as reader:
        await read(reader)
        agent.faults.gen_err |= {NAME, ALIAS}
        clock.now += switch_snmp.INVENTORY_SECONDS
        reading = await reader.read()
    assert Meaning()(reading)["leaf-a", "e1"]["info"]["alias"] == "spine"
    assert {(".".join(map(str, column)), "error_status") for column in (NAME, ALIAS)} <= set(reasons(reading))


# Restarts and wraps.


async def step(meaning, reader, clock, agent, seconds=15, **rows):
    clock.now += seconds
    return meaning(await reader.read())["leaf-a", "e1"]


async def test_a_restart_has_no_rate_and_is_counted(clock):
    async with served(system(uptime=10**8) | port(1, "e1")) as agent, reader_of(agent) as reader:
        meaning = Meaning()
        meaning(await reader.read())
        # The bytes went on past where they were, as after a long outage: only the uptime tells.
        agent.set_many({UPTIME: Typed(TIME_TICKS, 6000), (*IN_OCTETS, 1): Typed(COUNTER64, 5_000_000)})
        row = await step(meaning, reader, clock, agent)
        assert "receive_bytes_per_second" not in row
        assert (row["receive_bytes_total"], row["resets_total"]) == (5_000_000, 1)
        agent.set_many({UPTIME: Typed(TIME_TICKS, 7500), (*IN_OCTETS, 1): Typed(COUNTER64, 5_015_000)})
        row = await step(meaning, reader, clock, agent)
        assert (row["receive_bytes_per_second"], row["resets_total"]) == (1000.0, 1)


async def test_a_wrap_of_sysuptime_is_not_a_restart(clock):
    async with served(system(uptime=2**32 - 500) | port(1, "e1")) as agent, reader_of(agent) as reader:
        meaning = Meaning()
        meaning(await reader.read())
        agent.set_many({UPTIME: Typed(TIME_TICKS, 1000), (*IN_OCTETS, 1): Typed(COUNTER64, 16_000)})
        row = await step(meaning, reader, clock, agent)
    assert (row["receive_bytes_per_second"], row["resets_total"]) == (1000.0, 0)


async def test_counters_of_errors_wrap_at_32_bits(clock):
    rows = system() | port(1, "e1") | {(*IN_ERRORS, 1): Typed(COUNTER32, 2**32 - 3)}
    async with served(rows) as agent, reader_of(agent) as reader:
        meaning = Meaning()
        meaning(await reader.read())
        agent.set_many({(*IN_ERRORS, 1): Typed(COUNTER32, 4), (*IN_OCTETS, 1): Typed(COUNTER64, 9000)})
        row = await step(meaning, reader, clock, agent)
    assert (row["receive_errors_total"], row["resets_total"]) == (2**32 + 4, 0)


async def test_a_missing_uptime_is_absent_and_not_a_restart(clock):
    async with served(system() | port(1, "e1")) as agent, reader_of(agent) as reader:
        meaning = Meaning()
        meaning(await reader.read())
        agent.remove(UPTIME)
        agent.set((*IN_OCTETS, 1), Typed(COUNTER64, 2500))
        clock.now += 15
        found = meaning(await reader.read())
    assert "uptime_seconds" not in found[("leaf-a",)]
    assert found["leaf-a", "e1"]["receive_bytes_per_second"] == 100.0


async def test_tables_contain_what_the_simulated_switch_carried(clock):
    """Bytes and errors on the model's books against those exported, while counters of 32 bits wrap."""
    training = Training((), seed=3)
    leaf = training.leaves[0]
    wrapping = leaf.hosts[0][0]
    wrapping.counters.add("receive_errors", 2**32 - 2)
    async with served({}) as agent:
        fill_agent(agent, DemoLeaf(leaf, training))
        async with reader_of(agent) as reader:
            meaning = Meaning()
            first = meaning(await reader.read())
            begun = {one.name: one.wire_bytes("transmit") for one in leaf.ports}
            for _ in range(4):
                training.advance(5.0)
                wrapping.counters.add("receive_errors", 3)
                update_agent(agent, DemoLeaf(leaf, training))
                clock.now += 5.0
                found = meaning(await reader.read())
    assert len([key for key in found if len(key) == 2]) == len(leaf.ports) + 1
    assert leaf.hosts[0][0].alias.startswith(HOST)
    for one in leaf.ports:
        row, key = found[leaf.name, one.name], "transmit_bytes_total"
        assert row[key] == one.wire_bytes("transmit")
        assert row[key] - first[leaf.name, one.name][key] == one.wire_bytes("transmit") - begun[one.name]
        assert row["receive_bytes_total"] == one.wire_bytes("receive")
        assert row["transmit_packets_total"] == one.packets("transmit")
        assert row["receive_errors_total"] == one.counters["receive_errors"]
        assert row["resets_total"] == 0
    assert found[leaf.name, wrapping.name]["receive_errors_total"] == 2**32 + 10


# What agents do wrong.


async def test_instances_after_the_end_of_a_column_are_read_by_get(clock):
    """SONiC ends a column at the first port of which it has nothing; GET finds the ports behind it."""
    rows = system() | port(1, "e1") | port(2, "e2") | port(3, "e3")
    del rows[*IN_OCTETS, 2]
    async with served(rows) as agent, reader_of(agent) as reader:
        agent.faults.truncate[IN_OCTETS] = 1
        for _ in range(2):
            reading = await reader.read()
            found = Meaning()(reading)
            octets = [found["leaf-a", name].get("receive_bytes_total") for name in ("e1", "e2", "e3")]
            assert octets == [1000, None, 3000]
            assert found["leaf-a", "e2"]["transmit_bytes_total"] == 2004
            assert reasons(reading) == [("e2", "rows_missing")]
        polls = [await count(agent, reader) for _ in range(3)]
        agent.faults.truncate.clear()
        agent.set((*IN_OCTETS, 2), Typed(COUNTER64, 77))
        whole = [await count(agent, reader) for _ in range(2)]
        assert (await read(reader))["leaf-a", "e2"]["receive_bytes_total"] == 77
    assert polls == [whole[0] + 1] * 3, "one GET for all that is missing, and none for what was not there"


async def test_missing_rows_by_priority_are_read_by_get():
    pfc = (1, 3, 6, 1, 4, 1, 9, 9, 813, 1, 2, 1)
    rows = system() | port(1, "e1") | port(2, "e2")
    for column, one in ((column, one) for column in (2, 3) for one in (1, 2)):
        rows |= {(*pfc, column, one, number): Typed(COUNTER64, 10 * one + number) for number in range(8)}
    async with served(rows) as agent, reader_of(agent) as reader:
        agent.faults.truncate[(*pfc, 3)] = 8
        found = await read(reader)
    assert [found["leaf-a", "e2", str(number)]["receive_pfc_frames_total"] for number in range(8)] == [*range(20, 28)]


async def test_instances_whose_get_fails_are_read_again_and_affect_nothing_else(clock):
    async with served(system() | port(1, "e1") | port(2, "e2")) as agent, reader_of(agent) as reader:
        agent.faults.truncate[IN_OCTETS] = 1
        agent.faults.gen_err.add((*IN_OCTETS, 2))
        reading = await reader.read()
        assert Meaning()(reading)["leaf-a", "e2"]["transmit_bytes_total"] == 2004
        assert ("counters", "error_status") in reasons(reading)
        agent.faults.gen_err.clear()
        assert (await read(reader))["leaf-a", "e2"]["receive_bytes_total"] == 2000


async def test_a_column_that_fails_does_not_report_missing_rows():
    async with served(system() | port(1, "e1") | port(2, "e2")) as agent, reader_of(agent) as reader:
        agent.faults.unsorted.add(IN_OCTETS)
        reading = await reader.read()
    assert reasons(reading) == [("1.3.6.1.2.1.31.1.1.1.6", "oid_not_increasing")]
    found = Meaning()(reading)
    assert [found["leaf-a", name].get("receive_bytes_total") for name in ("e1", "e2")] == [None, 2000]


async def test_absent_instances_are_not_read_again_until_the_next_inventory(clock):
    rows = system() | port(1, "e1") | port(2, "e2")
    async with served(rows) as agent, reader_of(agent) as reader:
        await read(reader)
        whole = await count(agent, reader)
    del rows[*IN_OCTETS, 2]
    async with served(rows) as agent, reader_of(agent) as reader:
        await read(reader)
        assert await count(agent, reader) == whole
        clock.now += switch_snmp.INVENTORY_SECONDS
        anew = await count(agent, reader)
        clock.now += switch_snmp.INVENTORY_SECONDS
        agent.set((*IN_OCTETS, 2), Typed(COUNTER64, 1))
        assert await count(agent, reader) == anew - 1


async def test_a_port_that_is_down_or_missing_from_the_walk_is_not_a_failure():
    rows = system() | port(1, "e1") | port(2, "e2", oper=2) | {(*TYPE, 3): Typed(INTEGER, 53)}
    for column in (IN_OCTETS, (*IFX, 10)):
        del rows[*column, 2]
    rows |= {(*OPER, 3): Typed(INTEGER, 1), (*NAME, 3): text("vlan3")}
    async with served(rows) as agent, reader_of(agent) as reader:
        assert reasons(await reader.read()) == []


@pytest.mark.parametrize("indexed", [True, False])
async def test_a_column_with_an_error_affects_only_itself_and_is_a_failure(indexed):
    async with served(system() | port(1, "e1")) as agent, reader_of(agent) as reader:
        agent.faults.gen_err.add(IN_UNICAST)
        agent.faults.gen_err_without_index = not indexed
        for _ in range(2):
            reading = await reader.read()
            row = Meaning()(reading)["leaf-a", "e1"]
            assert "receive_unicast_packets_total" not in row
            assert "receive_packets_total" not in row
            assert row["receive_multicast_packets_total"] == 1002
            assert reasons(reading) == [("1.3.6.1.2.1.31.1.1.1.7", "error_status")]
            assert "genErr" in reading.failures[0].detail


async def test_a_looping_column_ends_the_walk():
    async with served(system() | port(1, "e1") | port(2, "e2")) as agent, reader_of(agent) as reader:
        agent.faults.loop.add(IN_OCTETS)
        reading = await reader.read()
        assert agent.requests < 30
    found = Meaning()(reading)
    assert [found["leaf-a", name]["receive_bytes_total"] for name in ("e1", "e2")] == [1000, 2000]
    assert reasons(reading) == [("1.3.6.1.2.1.31.1.1.1.6", "oid_not_increasing")]


@pytest.mark.parametrize("rows", [{}, system()], ids=["nothing", "no interfaces"])
async def test_an_agent_without_rows_is_a_failure(rows):
    async with served(rows) as agent, reader_of(agent) as reader:
        with pytest.raises(SourceError, match="check its SNMP view") as caught:
            await reader.read()
        assert agent.address in str(caught.value)
    assert caught.value.reason == "empty"


async def test_an_agent_that_loses_its_interfaces_is_a_failure(clock):
    async with served(system() | port(1, "e1")) as agent, reader_of(agent) as reader:
        await read(reader)
        for table in (IF, IFX):
            remove_below(agent, table)
        with pytest.raises(SourceError, match="returns no counters") as caught:
            await reader.read()
    assert caught.value.reason == "empty"


QUICK = Snmp(community="public", timeout=0.02, retries=1)


@pytest.mark.parametrize("community", ["public", "other"], ids=["silent", "wrong community"])
async def test_an_unresponsive_agent_is_a_timeout_with_a_remedy(community):
    async with served(system() | port(1, "e1"), community=community) as agent:
        agent.faults.silent = community == "public"
        async with reader_of(agent, snmp=QUICK) as reader:
            with pytest.raises(SourceError) as caught:
                await reader.read()
    assert caught.value.reason == "timeout"
    assert agent.address in str(caught.value)
    assert "check the address, the community and the switch's access list" in str(caught.value)
    assert "public" not in str(caught.value)


async def test_the_timeout_comes_before_the_pollers_own():
    """A timeout longer than the interval: the error still has address and remedy."""
    snmp = Snmp(community="public", timeout=20.0)
    async with served(system()) as agent, reader_of(agent, snmp=snmp, interval=0.2) as reader:
        agent.faults.silent = True
        poller = Poller(reader)
        with pytest.MonkeyPatch.context() as patch:
            lines = []
            patch.setattr("exporter.core.poller.logger.warning", lambda text, *values: lines.append(text % values))
            await poller.poll()
    assert poller.status.failures == {("", "timeout"): 1}
    assert agent.address in lines[0]
    assert "check the address" in lines[0]


async def test_a_closed_port_is_unreachable():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    target = Target(name="t", address=address, snmp=QUICK)
    reader = SnmpReader(target, QUICK, LONG)
    with pytest.raises(SourceError, match="the port is closed") as caught:
        await reader.read()
    await reader.close()
    assert caught.value.reason == "unreachable"


async def test_a_changed_community_is_read_again_from_its_file(tmp_path):
    file = tmp_path / "community"
    file.write_text("public\n")
    snmp = Snmp(community_file=str(file), timeout=0.5, retries=0)
    async with served(system() | port(1, "e1")) as agent, reader_of(agent, snmp=snmp) as reader:
        await read(reader)
        agent._community = b"rotated"
        file.write_text("rotated")
        with pytest.raises(SourceError):
            await reader.read()
        reader._readers[0]._options = Snmp(community_file=str(file), timeout=20.0)
        assert (await read(reader))["leaf-a", "e1"]["receive_bytes_total"] == 1000


async def test_a_community_is_read_again_after_a_cancelled_poll(tmp_path):
    file = tmp_path / "community"
    file.write_text("old")
    snmp = Snmp(community_file=str(file), timeout=20.0)
    async with served(system() | port(1, "e1")) as agent, reader_of(agent, snmp=snmp) as reader:
        waiting = asyncio.create_task(reader.read())
        async with asyncio.timeout(LONG):
            while not agent.requests:  # noqa: ASYNC110  # the agent has no event
                await asyncio.sleep(0.001)
        waiting.cancel()  # as its poller does when the interval is over
        with pytest.raises(asyncio.CancelledError):
            await waiting
        file.write_text("public")
        assert ("leaf-a", "e1") in await read(reader)


async def test_a_community_that_cannot_be_read_names_its_file(tmp_path):
    snmp = Snmp(community_file=str(tmp_path / "none"))
    async with served(system()) as agent, reader_of(agent, snmp=snmp) as reader:
        with pytest.raises(SourceError, match="none: the secret cannot be read: No such file") as caught:
            await reader.read()
        assert agent.requests == 0
    assert caught.value.reason == "credentials"


# Versions, profiles and paces.


async def test_version_1_requests_no_64_bit_counters():
    snmp = Snmp(version="1", community="public", timeout=20.0)
    async with served(system() | port(1, "e1") | port(2, "e2")) as agent, reader_of(agent, snmp=snmp) as reader:
        reading = await reader.read()
        meaning = Meaning()
        found = meaning(reading)
    assert reading.failures == []
    assert "traffic" not in meaning.families
    assert found["leaf-a", "e2"]["receive_errors_total"] == 2009
    assert not [ending for ending in found["leaf-a", "e2"] if "bytes_total" in ending or "packets_total" in ending]


async def test_an_increase_of_snmpengineboots_is_a_restart(clock):
    """As after a restart of the agent that was long enough ago for its uptime to have passed the old one."""
    user = User("watch", Authentication.SHA256, b"signed for the test")
    engine = Engine([user])
    snmp = Snmp(version="3", user="watch", auth="sha256", auth_password="signed for the test", timeout=20.0)
    async with served(system() | port(1, "e1"), engine=engine) as agent, reader_of(agent, snmp=snmp) as reader:
        meaning = Meaning()
        assert meaning(await reader.read())["leaf-a", "e1"]["resets_total"] == 0
        reboot(engine)
        agent.set_many({UPTIME: Typed(TIME_TICKS, 200_000), (*IN_OCTETS, 1): Typed(COUNTER64, 9000)})
        clock.now += 15
        await reader.read()  # the engine says so in the reply to the first question, and the poll is the next one
        clock.now += 15
        row = meaning(await reader.read())["leaf-a", "e1"]
    assert row["resets_total"] == 1


async def test_snmpengineboots_that_go_backwards_cost_one_poll_and_are_a_restart(clock):
    """As after the loss of the agent's saved state (RFC 3414, 2.2.2); its uptime has passed the old one.

    Signed messages with earlier boots are replays until the engine is discovered again (RFC 3414, 3.2.7 b).
    """
    user = User("watch", Authentication.SHA256, b"signed for the test")
    engine = Engine([user], boots=57)
    snmp = Snmp(version="3", user="watch", auth="sha256", auth_password="signed for the test", timeout=2.0, retries=0)
    async with served(system() | port(1, "e1"), engine=engine) as agent, reader_of(agent, snmp=snmp) as reader:
        meaning = Meaning()
        assert meaning(await reader.read())["leaf-a", "e1"]["resets_total"] == 0
        reboot(engine, 1)
        agent.set_many({UPTIME: Typed(TIME_TICKS, 200_000), (*IN_OCTETS, 1): Typed(COUNTER64, 9000)})
        clock.now += 15
        with pytest.raises(SourceError) as caught:
            await reader.read()
        assert caught.value.reason == "timeout"
        clock.now += 15
        row = meaning(await reader.read())["leaf-a", "e1"]
        assert (row["receive_bytes_total"], row["resets_total"]) == (9000, 1)
        assert "receive_bytes_per_second" not in row
        clock.now += 15
        agent.set((*IN_OCTETS, 1), Typed(COUNTER64, 24_000))
        row = meaning(await reader.read())["leaf-a", "e1"]
    assert (row["receive_bytes_per_second"], row["resets_total"]) == (1000.0, 1)


async def test_a_series_continues_when_its_ifindex_changes(clock):
    async with served(system(uptime=500_000) | port(1313, "Bundle-Ether10")) as agent, reader_of(agent) as reader:
        await read(reader)
        remove_below(agent, IF)
        remove_below(agent, IFX)
        agent.set_many({UPTIME: Typed(TIME_TICKS, 3)} | port(29, "Bundle-Ether10"))
        row = (await read(reader))["leaf-a", "Bundle-Ether10"]
    assert (row["info"]["ifindex"], row["receive_bytes_total"]) == ("29", 29_000)


async def test_tables_with_different_indexes_are_not_joined():
    """The one names a port 1, the other 1000001: each row has what its own table says."""
    rows = system()
    for oid, value in port(1, "e1").items():
        rows[(*oid[:-1], 1_000_001) if oid[:-2] == IFX[:-1] or oid[: len(IFX)] == IFX else oid] = value
    async with served(rows) as agent, reader_of(agent) as reader:
        found = await read(reader)
    assert found["leaf-a", "e1"]["receive_bytes_total"] == 1000
    assert "receive_errors_total" not in found["leaf-a", "e1"]
    assert found["leaf-a", "port 1"]["receive_errors_total"] == 1009
    assert "receive_bytes_total" not in found["leaf-a", "port 1"]


@pytest.mark.parametrize(("speed", "exported"), [(1_000_000_000, 125e6), (2**32 - 1, None), (0, None)])
async def test_ifspeed_is_used_without_ifhighspeed(speed, exported):
    rows = {oid: value for oid, value in (system() | port(1, "e1")).items() if oid[:-1] != HIGH_SPEED}
    rows[*IF, 5, 1] = Typed(GAUGE32, speed)
    async with served(rows) as agent, reader_of(agent) as reader:
        await read(reader)
        row = (await read(reader))["leaf-a", "e1"]
    assert row.get("link_speed_bytes_per_second") == exported


async def test_rows_of_another_type_or_outside_the_table_affect_only_themselves():
    """A row of text among counters, an index that no interface has: as agents were seen to send them."""
    totals = (1, 3, 111, 2, 802, 1, 1, 21, 1, 1, 1)
    rows = system() | port(1, "e1") | port(2, "e2") | {(*IN_UNICAST, 1): text("")}
    rows |= {(*totals, column, index): Typed(COUNTER32, 7) for column in (2, 3) for index in (1, 2)}
    rows[*totals, 3, 999_001] = text("")
    async with served(rows) as agent, reader_of(agent) as reader:
        reading = await reader.read()
        found = Meaning()(reading)
    assert reading.failures == []
    assert "receive_unicast_packets_total" not in found["leaf-a", "e1"]
    assert found["leaf-a", "e2"]["receive_pfc_all_priorities_frames_total"] == 7
    assert {key[1] for key in found if len(key) == 2} == {"e1", "e2"}


async def test_pfc_totals_are_dropped_if_there_are_pfc_frames_by_priority():
    totals, each = (1, 3, 111, 2, 802, 1, 1, 21, 1, 1, 1), (1, 3, 6, 1, 4, 1, 9, 9, 813, 1, 2, 1)
    rows = system() | port(1, "e1")
    rows |= {(*totals, column, 1): Typed(COUNTER32, 7) for column in (2, 3)}
    rows |= {(*each, column, 1, 3): Typed(COUNTER64, 5) for column in (2, 3)}
    async with served(rows) as agent, reader_of(agent) as reader:
        for _ in range(2):
            found = await read(reader)
            assert found["leaf-a", "e1", "3"]["transmit_pfc_frames_total"] == 5
            assert not [ending for ending in found["leaf-a", "e1"] if "all_priorities" in ending]


async def test_the_interval_of_a_profile_is_kept(clock):
    """Onyx refreshes its counters once a minute: where no interval is set, what was read last is given meanwhile."""
    rows = system() | port(1, "e1") | {(*SYSTEM, 2, 0): Typed(OBJECT_IDENTIFIER, (1, 3, 6, 1, 4, 1, 33049, 1))}
    async with served(rows) as agent, reader_of(agent, interval=15.0) as reader:
        agent.faults.gen_err.add(IN_ERRORS)
        first = await reader.read()
        assert first.failures
        asked = agent.requests
        for _ in range(3):
            clock.now += 15
            again = await reader.read()
            assert again.failures == []
            assert [table.time for table in again.tables[:1]] == [first.tables[0].time]
        assert agent.requests == asked
        clock.now += 15
        agent.set((*IN_OCTETS, 1), Typed(COUNTER64, 9000))
        assert (await reader.read()).tables[0].time == first.tables[0].time + 60
        asked = agent.requests
        reader.poll_now("e1")
        await reader.read()
        assert agent.requests > asked


async def test_a_configured_interval_overrides_that_of_the_profile(clock):
    rows = system() | port(1, "e1") | {(*SYSTEM, 2, 0): Typed(OBJECT_IDENTIFIER, (1, 3, 6, 1, 4, 1, 33049, 1))}
    async with served(rows) as agent:
        snmp = Snmp(community="public", timeout=20.0)
        target = Target(name="t", address=agent.address, snmp=snmp, interval=15.0)
        reader = SnmpReader(target, snmp, 15.0)
        await reader.read()
        asked = agent.requests
        clock.now += 15
        await reader.read()
        await reader.close()
        assert agent.requests > asked


async def test_cached_counters_have_the_time_of_their_refresh(clock):
    rows = system() | port(1, "e1") | port(2, "e2")
    async with served(rows) as agent, reader_of(agent) as reader:
        times, unchanged = [], []
        for poll in range(6):
            clock.now += 10
            if poll % 3 == 0:  # it refreshes every 30 s
                for index in (1, 2):
                    agent.set((*IN_OCTETS, index), Typed(COUNTER64, 10**9 * index * (poll + 1)))
            reading = await reader.read()
            times.append(reading.tables[0].time)
            unchanged.append(Meaning()(reading)[("leaf-a",)]["unchanged_polls_total"])
    assert times == [5010.0, 5010.0, 5010.0, 5040.0, 5040.0, 5040.0]
    assert unchanged == [0, 1, 2, 2, 3, 4]


async def test_families_of_a_switch():
    rows = system() | port(1, "e1")
    async with served(rows) as agent, reader_of(agent) as reader:
        meaning = Meaning()
        meaning(await reader.read())
    expected = {"traffic": "counted", "errors": "counted", "pause": "unsupported", "pfc": "unsupported"}
    assert meaning.families == expected | {"lldp": "unsupported"}


async def test_a_family_whose_walk_fails_is_failed():
    each = (1, 3, 6, 1, 4, 1, 9, 9, 813, 1, 2, 1)
    rows = system() | port(1, "e1") | {(*each, column, 1, 3): Typed(COUNTER64, 5) for column in (2, 3)}
    async with served(rows) as agent, reader_of(agent) as reader:
        agent.faults.gen_err |= {(*each, 2), (*each, 3)}
        meaning = Meaning()
        meaning(await reader.read())
    assert meaning.families["pfc"] == "failed"


async def test_an_unknown_profile_is_an_error():
    async with served(system() | port(1, "e1")) as agent, reader_of(agent, profile="onix") as reader:
        with pytest.raises(SourceError, match=r"target-1: there is no profile 'onix'; known are arista") as caught:
            await reader.read()
    assert caught.value.reason == "configuration"


# Another's agent.


@pytest.fixture
def snmpd(program, tmp_path):
    """Run net-snmp's agent on loopback with the interfaces of this machine."""
    import subprocess  # noqa: PLC0415  # here alone

    binary = program("snmpd")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (tmp_path / "snmpd.conf").write_text("rocommunity public 127.0.0.1\nsysName real-agent\n")
    command = [binary, "-f", "-Lo", "-C", "-c", str(tmp_path / "snmpd.conf"), "-I", "-smux", f"udp:{address}"]
    env = os.environ | {"SNMP_PERSISTENT_DIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env) as process:
        yield address
        process.kill()


def loopback_bytes():
    return int(Path("/sys/class/net/lo/statistics/rx_bytes").read_text())


async def test_snmpd_shows_the_interfaces_of_this_host(snmpd):
    snmp = Snmp(community="public", timeout=1.0, retries=5)
    target = Target(name="t", address=snmpd, snmp=snmp, include=("lo",))
    reader = SwitchSource(target, LONG, [SnmpReader(target, snmp, LONG)], SwitchRegistry())
    end = time.monotonic() + LONG
    while True:
        try:
            found = await read(reader)
            break
        except SourceError:  # it does not listen yet
            assert time.monotonic() < end
            await asyncio.sleep(0.1)
    await reader.close()
    assert found.keys() == {("real-agent", "lo"), ("real-agent",)}
    row = found["real-agent", "lo"]
    assert (row["link_up"], row["admin_up"], row["info"]["if_type"], row["info"]["ifindex"]) == (1, 1, "24", "1")
    assert row["receive_bytes_total"] == row["transmit_bytes_total"]
    # The agent keeps what it read for some seconds, and asking it is traffic of its own.
    assert 0 < row["receive_bytes_total"] <= loopback_bytes()
    assert 0 <= found[("real-agent",)]["uptime_seconds"] < LONG


# --- kinds of rows

CONNECTOR, STACK = (*IFX, 17), (1, 3, 6, 1, 2, 1, 31, 1, 2, 1, 3)
ATTACHED = (1, 2, 840, 10006, 300, 43, 1, 2, 1, 1, 13)  # IEEE8023-LAG-MIB dot3adAggPortAttachedAggID


def kinds_of(rows):
    return {key[1]: row["info"]["kind"] for key, row in rows.items() if "info" in row}


async def test_rows_of_iftype_6_have_the_kind_that_other_tables_show():
    """Names that a user chose: two ports are in a bundle, one by LACP and one by ifStackTable; one has no connector."""
    names = ["Ethernet1", "Ethernet2", "Ethernet3", "to-spine", "storage", "inner", "tenant"]
    rows = system()
    for index, name in enumerate(names, 1):
        rows |= port(index, name) | {(*CONNECTOR, index): Typed(INTEGER, 2 if name == "inner" else 1)}
    rows |= {(*ATTACHED, 1): Typed(INTEGER, 4), (*ATTACHED, 2): Typed(INTEGER, 0), (*ATTACHED, 3): Typed(INTEGER, 3)}
    layers = [(5, 2), (5, 3), (7, 5), (0, 4), (4, 0), (1, 0)]  # 0 is above the highest, and below the lowest
    rows |= {(*STACK, *pair): Typed(INTEGER, 1) for pair in layers} | {(*STACK, 6, 1): Typed(INTEGER, 2)}
    async with served(rows) as agent, reader_of(agent) as reader:
        found = kinds_of(await read(reader))
    assert found == dict.fromkeys(names[:3], "physical") | {
        "to-spine": "aggregate",
        "storage": "aggregate",
        "inner": "virtual",  # the row above Ethernet1 is not active
        "tenant": "sub-interface",
    }


async def test_a_bundle_that_is_gone_changes_the_kind(clock):
    rows = system() | port(1, "Ethernet1") | port(2, "to-spine") | {(*ATTACHED, 1): Typed(INTEGER, 2)}
    async with served(rows) as agent, reader_of(agent) as reader:
        first = kinds_of(await read(reader))
        remove_below(agent, ATTACHED)
        clock.now += switch_snmp.INVENTORY_SECONDS + 1
        second = kinds_of(await read(reader))
    assert first == {"Ethernet1": "physical", "to-spine": "aggregate"}
    assert second == {"Ethernet1": "physical", "to-spine": "physical"}


async def test_a_virtual_row_without_counters_is_no_failure():
    """Rows of ifType 6 that are no ports, such as Linux bridges, may have no counters."""
    bare = {oid: value for oid, value in port(2, "bridge").items() if oid[:-1] not in COUNTERS}
    async with served(system() | port(1, "swp1") | bare) as agent, reader_of(agent) as reader:
        reading = await reader.read()
    assert reading.failures == []


async def test_cumulus_with_the_sysobjectid_of_net_snmp():
    """Where snmpd.conf sets nothing: net-snmp sends its own sysObjectID, and the kernel as sysDescr."""
    rows = system() | {
        (*SYSTEM, 1, 0): text("Linux leaf01 4.19.0-cl-1-amd64 #1 SMP Cumulus 4.19.149-1+cl4.3u1 (2021-01-28) x86_64"),
        (*SYSTEM, 2, 0): Typed(OBJECT_IDENTIFIER, (1, 3, 6, 1, 4, 1, 8072, 3, 2, 10)),
    }
    names = ["swp1", "swp2s3", "eth0", "bond1", "upstream1", "mgmt", "peerlink.4094"]
    for index, name in enumerate(names, 1):
        rows |= port(index, name)
    async with served(rows) as agent, reader_of(agent) as reader:
        found = await read(reader)
    assert found["leaf-a",]["device_info"]["profile"] == "cumulus"
    assert kinds_of({key: row for key, row in found.items() if len(key) == 2}) == {
        "swp1": "physical",
        "swp2s3": "physical",
        "eth0": "management",
        "bond1": "aggregate",
        "upstream1": "virtual",
        "mgmt": "virtual",
        "peerlink.4094": "sub-interface",
    }
