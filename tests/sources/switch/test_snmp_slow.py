"""What is read seldom of a switch by SNMP: neighbours by LLDP, and the sensors of modules."""

import pytest

from exporter.config.units import watts_of_dbm
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.snmp.ber import (
    COUNTER64,
    INTEGER,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    TIME_TICKS,
    Typed,
)
from exporter.sources.switch.merge import Family, Support
from exporter.sources.switch.metrics import LANES, MODULES, PORTS
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.readers.snmp import reader as switch_snmp
from exporter.sources.switch.readers.snmp import sensors
from exporter.sources.switch.readers.snmp.inventory import index_by_name
from exporter.sources.switch.readers.snmp.lldp import capabilities, identity
from exporter.sources.switch.readers.snmp.reader import SnmpReader
from exporter.sources.switch.readers.snmp.sensors import (
    BIAS,
    RECEIVED,
    SENT,
    TEMPERATURE,
    VOLTAGE,
    metric_of,
)
from tests.helpers.snmp_agents import remove_below

SYSTEM, IF, IFX = (1, 3, 6, 1, 2, 1, 1), (1, 3, 6, 1, 2, 1, 2, 2, 1), (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
LLDP, LLDP_V2 = (1, 0, 8802, 1, 1, 2, 1), (1, 3, 111, 2, 802, 1, 1, 13, 1)
LOCAL, REMOTE, ADDRESS = (*LLDP, 3, 7, 1), (*LLDP, 4, 1, 1), (*LLDP, 4, 2, 1)
REMOTE_V2, ADDRESS_V2 = (*LLDP_V2, 4, 1, 1), (*LLDP_V2, 4, 2, 1)
ENTITY, ALIAS = (1, 3, 6, 1, 2, 1, 47, 1, 1, 1, 1), (1, 3, 6, 1, 2, 1, 47, 1, 3, 2, 1, 2)
SENSOR = (1, 3, 6, 1, 2, 1, 99, 1, 1, 1)
MAC = b"\x02\x00\x5e\x00\x53\x01"


def text(value):
    return Typed(OCTET_STRING, value if isinstance(value, bytes) else value.encode())


def number(value):
    return Typed(INTEGER, value)


def switch(*names, first=1):
    """Return a switch with ports of these names, whose indexes count from `first`."""
    rows = {
        (*SYSTEM, 1, 0): text("A switch of tests"),
        (*SYSTEM, 2, 0): Typed(OBJECT_IDENTIFIER, (2, 999, 7)),
        (*SYSTEM, 3, 0): Typed(TIME_TICKS, 100_000),
        (*SYSTEM, 5, 0): text("leaf-a"),
    }
    for index, name in enumerate(names, start=first):
        rows |= {
            (*IFX, 1, index): text(name),
            (*IF, 3, index): number(6),
            (*IF, 8, index): number(1),
            (*IFX, 6, index): Typed(COUNTER64, 1000 * index),
            (*IFX, 10, index): Typed(COUNTER64, 1000 * index),
        }
    return rows


def local(port, identity, description=""):
    return {(*LOCAL, 3, port): text(identity), (*LOCAL, 4, port): text(description)}


def neighbour(*index, table=REMOTE, first=4, chassis=MAC, kind=4, port="Ethernet1/1", name="spine-1"):
    cells = (number(kind), text(chassis), number(5), text(port), text("up"), text(name), text("An OS"))
    rows = {(*table, column, *index): cell for column, cell in enumerate(cells, start=first)}
    return rows | {(*table, first + 8, *index): text(b"\x28\x00")}


class Served:
    """An agent and a reader that polls it."""

    def __init__(self, rows, **options):
        self.agent = SnmpAgent(rows)
        self.options = {"interval": 60.0} | options

    async def __aenter__(self):
        address = "{}:{}".format(*await self.agent.start())
        snmp = Snmp(community="public", timeout=self.options.pop("timeout", 20.0), retries=0)
        target = Target(name="t", address=address, snmp=snmp, **self.options)
        self.reader = SnmpReader(target, snmp, 60.0)
        return self

    async def __aexit__(self, *_):
        await self.reader.close()
        await self.agent.__aexit__()


@pytest.fixture
def clock(stopped_clock):
    return stopped_clock(switch_snmp)


async def neighbours_of(rows, **options):
    async with Served(rows, **options) as served:
        harvest = await served.reader.read()
        return harvest.neighbours, harvest


# --- neighbours


async def test_a_neighbour_with_all_tlvs():
    rows = switch("Ethernet1", "Ethernet2") | local(7, "Ethernet2") | neighbour(0, 7, 3)
    rows |= {(*ADDRESS, 3, 0, 7, 3, 1, 4, 192, 0, 2, 9): number(2)}
    rows |= {(*ADDRESS, 3, 0, 7, 3, 2, 16, 0x20, 1, 0x0D, 0xB8, *[0] * 11, 1): number(2)}
    rows |= {(*ADDRESS, 3, 0, 7, 3, 6, 6, *MAC): number(2), (*ADDRESS, 3, 0, 7, 3, 1, 9, 1): number(2)}
    (one,), harvest = await neighbours_of(rows)
    assert one.port == "Ethernet2"
    assert (one.chassis, one.peer_port, one.name) == ("02:00:5e:00:53:01", "Ethernet1/1", "spine-1")
    assert (one.port_description, one.description) == ("up", "An OS")
    assert one.capabilities == {"bridge", "router"}
    assert one.addresses == ("192.0.2.9", "2001:db8::1", "02:00:5e:00:53:01")
    assert harvest.families[Family.LLDP] is Support.COUNTED


@pytest.mark.parametrize(
    ("own", "port"),
    [
        (local(513, "xe-0/0/0"), "xe-0/0/0"),  # the name, whatever interface has the number
        (
            local(513, "02:00:5e:00:53:aa", "xe-0/0/1"),
            "xe-0/0/1",
        ),  # a MAC address names no interface; the description does
        (local(513, "513"), "xe-0/0/513"),  # as Junos: the number is the interface's
        (local(513, "7", "rail 3"), "xe-0/0/0"),  # by its alias
        (local(513, "3"), None),  # which is no name if it is a number
        (local(513, "512"), None),  # it is that of another interface: unknown
        (local(513, "gone", "gone"), None),
        ({}, "xe-0/0/513"),
    ],
)
async def test_a_local_port_number_is_an_interface_index_only_without_a_name(own, port):
    rows = switch("xe-0/0/0", "xe-0/0/1") | own | neighbour(0, 513, 1)
    rows |= {(*IFX, 1, 513): text("xe-0/0/513"), (*IF, 8, 513): number(1)}
    rows |= {(*IFX, 18, 1): text("rail 3"), (*IFX, 18, 2): text("3")}
    found, _ = await neighbours_of(rows)
    assert [one.port for one in found] == ([] if port is None else [port])


def test_ambiguous_names_match_no_interface_and_names_precede_aliases():
    names = {(1,): b"e1", (2,): b"e2", (3,): b""}
    descriptions = {(1,): b"a", (2,): b"a", (3,): b"b"}
    aliases = {(1,): b"e2", (2,): b"uplink"}
    found = index_by_name(names, descriptions, aliases)
    assert found == {"e1": (1,), "e2": (2,), "b": (3,), "uplink": (2,)}


async def test_all_neighbours_of_a_port_are_kept_and_a_renewed_one_is_not_kept_twice():
    rows = switch("e1") | neighbour(10, 1, 1) | neighbour(10, 1, 2, chassis=b"\x02\x00\x5e\x00\x53\x02", name="host")
    rows |= neighbour(20, 1, 3)  # as the first, under a newer time mark
    found, _ = await neighbours_of(rows)
    assert sorted(one.name for one in found) == ["host", "spine-1"]


async def test_lldp_v2_mib_is_read_if_lldp_mib_is_empty():
    rows = switch("e1", "e2") | neighbour(0, 2, 1, 5, table=REMOTE_V2, first=5)
    rows |= {(*ADDRESS_V2, 3, 0, 2, 1, 5, 1, 4, 192, 0, 2, 9): number(2)}
    (one,), _ = await neighbours_of(rows)
    assert (one.port, one.name, one.peer_port, one.addresses) == ("e2", "spine-1", "Ethernet1/1", ("192.0.2.9",))
    assert one.capabilities == {"bridge", "router"}


async def test_rows_out_of_order_are_all_read():
    rows = switch(*(f"e{port}" for port in range(1, 7)))
    for port in range(1, 7):
        rows |= neighbour(0, port, 1, name=f"peer-{port}")
    async with Served(rows) as served:
        served.agent.faults.unsorted = {(*REMOTE, column) for column in (*range(4, 11), 12)}
        harvest = await served.reader.read()
    assert [one.name for one in harvest.neighbours] == [f"peer-{port}" for port in range(1, 7)]
    assert harvest.failures == []


async def test_a_looping_table_ends_and_its_rows_are_kept():
    rows = switch("e1", "e2") | neighbour(0, 1, 1) | neighbour(0, 2, 1)
    async with Served(rows) as served:
        served.agent.faults.loop = {(*REMOTE, column) for column in (*range(4, 11), 12)}
        harvest = await served.reader.read()
        assert served.agent.requests < 60
    assert [one.port for one in harvest.neighbours] == ["e1", "e2"]
    assert {failure.reason for failure in harvest.failures} == {"oid_not_increasing"}
    assert harvest.families[Family.LLDP] is Support.COUNTED


async def test_an_lldp_column_that_times_out_affects_no_counters():
    rows = switch("e1") | neighbour(0, 1, 1)
    async with Served(rows, timeout=0.05) as served:
        served.agent.faults.silent_on.add((*REMOTE, 9))
        harvest = await served.reader.read()
    assert [part.schema for part in harvest.parts] == [PORTS]
    assert [(one.chassis, one.name) for one in harvest.neighbours] == [("02:00:5e:00:53:01", "")]
    assert ("1.0.8802.1.1.2.1.4.1.1.9", "timeout") in {(one.device, one.reason) for one in harvest.failures}


async def test_neighbours_are_read_once_a_minute_and_cached(clock):
    async with Served(switch("e1") | neighbour(0, 1, 1)) as served:
        first = await served.reader.read()
        served.agent.set((*LOCAL, 3, 1), text("e1"))
        remove_below(served.agent, REMOTE)
        clock.now += switch_snmp.SLOW_SECONDS - 1
        assert (await served.reader.read()).neighbours == first.neighbours
        clock.now += 1
        assert (await served.reader.read()).neighbours == []


async def test_neighbours_are_kept_after_a_failure(clock):
    async with Served(switch("e1") | neighbour(0, 1, 1), timeout=0.05) as served:
        first = await served.reader.read()
        served.agent.faults.silent_on |= {(*REMOTE, column) for column in range(4, 13)}
        served.agent.faults.silent_on |= {(*LOCAL, 3), (*LOCAL, 4), (*ADDRESS, 3), (*LLDP, 3, 1), (*LLDP, 3, 2)}
        clock.now += switch_snmp.SLOW_SECONDS
        harvest = await served.reader.read()
        assert harvest.neighbours == first.neighbours
        assert {one.reason for one in harvest.failures} == {"timeout"}


async def test_a_column_that_fails_once_changes_no_neighbour_and_a_second_failure_does(clock):
    async with Served(switch("e1") | neighbour(0, 1, 1)) as served:
        await served.reader.read()
        served.agent.faults.gen_err.add((*REMOTE, 9))
        names = []
        for _ in range(2):
            clock.now += switch_snmp.SLOW_SECONDS
            names += [one.name for one in (await served.reader.read()).neighbours]
    assert names == ["spine-1", ""]


async def test_neighbours_are_not_read_if_lldp_is_disabled():
    found, harvest = await neighbours_of(switch("e1") | neighbour(0, 1, 1), lldp=False)
    assert found is None
    assert Family.LLDP not in harvest.families


async def test_a_switch_without_lldp_tables_has_unknown_neighbours():
    found, harvest = await neighbours_of(switch("e1"))
    assert found is None
    assert harvest.families[Family.LLDP] is Support.UNSUPPORTED


@pytest.mark.parametrize("own", [LLDP, LLDP_V2])
async def test_the_chassis_id_of_the_switch_itself(own):
    rows = switch("e1") | {(*own, 3, 1, 0): number(4), (*own, 3, 2, 0): text(MAC)}
    found, harvest = await neighbours_of(rows)
    assert harvest.device.chassis == "02:00:5e:00:53:01"
    assert found == [], "it knows LLDP, and nobody is there"


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        (MAC, 4, "02:00:5e:00:53:01"),
        (b"02:00:5E:00:53:01", 4, "02:00:5e:00:53:01"),
        (b"\x01\xc0\x00\x02\x01", 5, "192.0.2.1"),
        (b"\x02" + bytes(15) + b"\x01", 5, "::1"),
        (b"\x01\xc0\x00", 5, "c0:00"),
        (b"serial 7\0\0", 7, "serial 7"),
        (b"\x02\x00\x5e", 4, "\x02\0^"),
        (b"", 4, ""),
        (None, None, ""),
    ],
)
def test_chassis_ids(value, kind, shown):
    assert identity(value, kind, 4, 5) == shown


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"\x28\x00", {"bridge", "router"}),
        (b"\x01", {"station"}),
        (b"\x14\x80", {"wlan", "telephone"}),
        (b"28 00 00", set()),
        (b"", set()),
        (5, set()),
    ],
)
def test_capabilities(value, words):
    assert capabilities(value) == words


# --- modules


def sensor(place, title, kind, scale, precision, value, *, state=1, holder=0):
    cells = (kind, scale, precision, value, state)
    rows = {(*SENSOR, column, place): number(cell) for column, cell in enumerate(cells, start=1)}
    return rows | {(*ENTITY, 7, place): text(title), (*ENTITY, 4, place): number(holder)}


def thing(place, title, holder=0):
    return {(*ENTITY, 2, place): text(title), (*ENTITY, 4, place): number(holder)}


def rows_of(harvest, schema):
    found = {}
    for part in harvest.parts:
        if part.schema is schema:
            for ending, column in part.columns.items():
                for key, value in zip(part.keys, column.values, strict=True):
                    if value is not None:
                        found.setdefault(key, {})[ending] = value
    return found


async def optics_of(rows):
    async with Served(rows, optics=True) as served:
        return await served.reader.read()


async def test_sensors_with_port_and_lane_in_their_names():
    rows = switch("Ethernet1/1", "Ethernet0")
    rows |= sensor(10, "DOM RX Power Sensor for Ethernet0/2", 6, 8, 4, 8912)  # 0.8912 mW
    rows |= sensor(11, "DOM TX Bias Sensor for Ethernet0/2", 5, 8, 3, 65_400)  # 65.4 mA
    rows |= sensor(12, "DOM Temperature Sensor for Ethernet0", 8, 9, 1, 385)
    rows |= sensor(13, "Ethernet1/1 Lane 1 Transceiver Transmit Power Sensor", 14, 9, 1, -30)  # -3 dBm
    rows |= sensor(14, "Ethernet1/1 Lane 1 Transceiver Voltage Sensor", 4, 8, 0, 3281)
    rows |= sensor(15, "Fan 1 speed", 10, 9, 0, 9000)
    harvest = await optics_of(rows)
    assert rows_of(harvest, LANES) == {
        ("Ethernet0", "2"): pytest.approx({RECEIVED: 0.0008912, BIAS: 0.0654}),
        ("Ethernet1/1", "1"): pytest.approx({SENT: 0.000501187}, rel=1e-5),
    }
    assert rows_of(harvest, MODULES) == {
        ("Ethernet0",): pytest.approx({TEMPERATURE: 38.5}),
        ("Ethernet1/1",): pytest.approx({VOLTAGE: 3.281}),
    }
    assert harvest.families[Family.OPTICS] is Support.COUNTED


async def test_lanes_of_containing_entities_are_numbered_from_one():
    rows = (
        switch("Ethernet3") | thing(100, "Lane 0 for Xcvr for Ethernet3") | thing(101, "Lane 1 for Xcvr for Ethernet3")
    )
    rows |= sensor(10, "DOM RX Power Sensor for Ethernet3", 6, 8, 4, 5000, holder=100)
    rows |= sensor(11, "DOM RX Power Sensor for Ethernet3", 6, 8, 4, 6000, holder=101)
    found = rows_of(await optics_of(rows), LANES)
    assert {key: round(row[RECEIVED], 9) for key, row in found.items()} == {
        ("Ethernet3", "1"): 0.0005,
        ("Ethernet3", "2"): 0.0006,
    }


async def test_sensors_contained_in_an_entity_with_an_alias_mapping():
    rows = switch("Ethernet1/36") | thing(5241, "Linecard-1 Port-36") | thing(48, "Transceiver", holder=5241)
    rows |= sensor(10, "Receive Power", 14, 9, 1, 0, holder=48)
    rows |= {(*ALIAS, 5241, 0): Typed(OBJECT_IDENTIFIER, (*IF, 1, 1))}
    found = rows_of(await optics_of(rows), LANES)
    assert found == {("Ethernet1/36", "1"): {RECEIVED: pytest.approx(0.001)}}


async def test_a_containment_loop_ends():
    rows = switch("e1") | sensor(1, "A", 8, 9, 0, 30, holder=2) | sensor(2, "B", 8, 9, 0, 30, holder=1)
    assert rows_of(await optics_of(rows), MODULES) == {}


@pytest.mark.parametrize("state", [2, 3])
async def test_a_sensor_with_a_bad_status_is_absent(state):
    rows = switch("e1") | sensor(1, "DOM Temperature Sensor for e1", 8, 9, 0, 0, state=state)
    assert rows_of(await optics_of(rows), MODULES) == {}


async def test_modules_are_read_only_if_enabled_and_their_names_once_an_hour(clock, stopped_clock):
    rows = switch("e1") | sensor(1, "DOM Temperature Sensor for e1", 8, 9, 0, 30)
    async with Served(rows) as served:
        harvest = await served.reader.read()
        assert MODULES not in [part.schema for part in harvest.parts]
        assert Family.OPTICS not in harvest.families
    async with Served(rows, optics=True, lldp=False) as served:
        await served.reader.read()
        served.agent.set_many({(*SENSOR, 4, 1): number(31)} | thing(9, "More to walk") | thing(10, "More to walk"))
        counts = []
        for _ in range(3):
            clock.now += switch_snmp.SLOW_SECONDS
            before = served.agent.requests
            harvest = await served.reader.read()
            counts.append(served.agent.requests - before)
        assert rows_of(harvest, MODULES) == {("e1",): {TEMPERATURE: 31.0}}
        served.reader._inventory_time = clock.now + sensors.NAMES_MAX_AGE_SECONDS  # no inventory now
        clock.now += sensors.NAMES_MAX_AGE_SECONDS
        before = served.agent.requests
        await served.reader.read()
        assert served.agent.requests - before > counts[0]


@pytest.mark.parametrize(
    ("title", "numbers", "expected"),
    [
        ("RX Power", (6, 8, 4, 5308), (RECEIVED, 0.0005308)),  # watts: 0.5308 mW
        ("rx power", (14, 9, 1, -48), (RECEIVED, 0.000331131)),  # tenths of a dBm: -4.8
        ("Receive Power", (14, 8, 0, -2328), (RECEIVED, 0.000585061)),  # thousandths
        ("Tx Power", (14, 9, 0, -40), (SENT, 0.0)),  # no light
        ("Tx Power", (14, 9, 0, 0), (SENT, 0.001)),  # 0 is a value
        ("Bias", (5, 7, 0, 22_470), (BIAS, 0.02247)),  # microamperes
        ("Bias", (5, 8, 3, 0), (BIAS, 0.0)),
        ("Voltage", (3, 9, 2, 331), (VOLTAGE, 3.31)),
        ("Temperature", (8, 9, 1, -55), (TEMPERATURE, -5.5)),
        ("RX Power", (6, 8, 4, -1_000_000_000), None),  # below what the sensor's number can say
        ("RX Power", (14, 9, 0, 1_000_000_000), None),
        ("Power", (6, 9, 0, 52), None),  # neither received nor sent
        ("Fan", (10, 9, 0, 9000), None),
        ("Temperature", (8, 9, 1, None), None),
        ("Temperature", (8, 0, 1, 30), None),
        ("Temperature", (8, 9, 99, 30), None),
    ],
)
def test_the_metric_of_a_sensor(title, numbers, expected):
    found = metric_of(title, *numbers)
    if expected is None:
        assert found is None
    else:
        assert found == (expected[0], pytest.approx(expected[1], rel=1e-5))


@pytest.mark.parametrize(
    ("level", "watts"), [(0.0, 1e-3), (10.0, 1e-2), (-30.0, 1e-6), (-39.9, 1.0233e-7), (-40.0, 0), (float("-inf"), 0)]
)
def test_watts_of_dbm(level, watts):
    assert watts_of_dbm(level) == pytest.approx(watts, rel=1e-4)
