"""Ports and lanes of the sensors of modules, in the names that makers give them.

Titles of IOS XR are those of an ASR 9901 with 6.6.3, those of IOS XE of a Catalyst 9500; indexes of SONiC are made by
physical_entity_sub_oid_generator.py of sonic-snmpagent.
"""

import pytest

from exporter.snmp.ber import INTEGER, Typed
from exporter.sources.switch.metrics import LANES, MODULES
from exporter.sources.switch.readers.snmp.profile import builtin
from exporter.sources.switch.readers.snmp.sensor_locations import lane_in_title
from exporter.sources.switch.readers.snmp.sensors import BIAS, RECEIVED, SENT, TEMPERATURE, VOLTAGE
from tests.sources.switch.test_profiles import harvest_of, rows_of
from tests.sources.switch.test_snmp_slow import IFX, SYSTEM, sensor, switch, text, thing

ENTITY_SENSOR, CISCO_SENSOR = (1, 3, 6, 1, 2, 1, 99, 1, 1, 1), (1, 3, 6, 1, 4, 1, 9, 9, 91, 1, 1, 1, 1)
SONIC = "SONiC Software Version: SONiC-OS-4.1.0-Enterprise_Base - HwSku: DellEMC-S5248f-P-25G-DPB"
IOS_XR = "Cisco IOS XR Software (ASR9K), Version 6.6.3  Copyright (c) 2013-2019 by Cisco Systems, Inc."
IOS_XE = "Cisco IOS Software [Cupertino], Catalyst L3 Switch Software (CAT9K_IOSXE), Version 17.9.4"
MILLI, MICRO, UNITS = 8, 7, 9
VOLTS, AMPERES, WATTS, CELSIUS, DBM = 4, 5, 6, 8, 14


def described(rows, description):
    return rows | {(*SYSTEM, 1, 0): text(description)}


def cisco(rows):
    """Return rows with the sensors in the table of Cisco."""
    size = len(ENTITY_SENSOR)
    return {(*CISCO_SENSOR, *oid[size:]) if oid[:size] == ENTITY_SENSOR else oid: cell for oid, cell in rows.items()}


def sonic_index(ifindex, offset):
    """Return the index of a sensor of a port, as get_transceiver_sensor_sub_id does."""
    return 1_000_000_000 + ifindex * 100 + offset


async def lanes_and_modules(name, rows):
    harvest = await harvest_of(name, rows)
    assert harvest.device.profile == name
    return rows_of(harvest, LANES), rows_of(harvest, MODULES)


async def test_the_index_of_a_sensor_of_sonic_has_the_port():
    """With standard interface names the sensors have the native names: `Ethernet52/1` is lane 1 of ifIndex 53."""
    names = {1: "Eth1/1", 2: "Eth1/2", 53: "Eth1/53"}
    rows = described(switch("Eth1/1", "Eth1/2") | switch("Eth1/53", first=53), SONIC)
    rows |= {(*IFX, 1, index): text(name) for index, name in names.items()}
    for ifindex, native, received in ((2, "Ethernet1", 4000), (53, "Ethernet52", 5000)):
        port = sonic_index(ifindex, 0)
        rows |= thing(port, native, holder=1)
        rows |= sensor(port + 10, f"DOM Temperature Sensor for {native}", CELSIUS, UNITS, 0, 30 + ifindex, holder=port)
        rows |= sensor(port + 50, f"DOM Voltage Sensor for {native}", VOLTS, UNITS, 2, 331, holder=port)
        for lane in range(1, 5):
            rows |= sensor(
                port + 30 + lane, f"DOM RX Power Sensor for {native}/{lane}", WATTS, MILLI, 4, received + lane
            )
            rows |= sensor(port + 40 + lane, f"DOM TX Bias Sensor for {native}/{lane}", AMPERES, MILLI, 3, 6500)
    lanes, modules = await lanes_and_modules("sonic", rows)
    assert modules == {
        ("Eth1/2",): {TEMPERATURE: 32.0, VOLTAGE: 3.31},
        ("Eth1/53",): {TEMPERATURE: 83.0, VOLTAGE: 3.31},
    }
    assert {key: round(row[RECEIVED] * 1e7) for key, row in lanes.items()} == {
        **{("Eth1/2", str(lane)): 4000 + lane for lane in range(1, 5)},
        **{("Eth1/53", str(lane)): 5000 + lane for lane in range(1, 5)},
    }


async def test_an_index_of_sonic_without_its_interface_belongs_to_no_other_port():
    """The sensor says Ethernet1/1, which is another port's name here."""
    rows = described(switch("Eth1/1"), SONIC)
    rows |= sensor(sonic_index(1, 31), "DOM RX Power Sensor for Ethernet0/1", WATTS, MILLI, 4, 3000)
    rows |= sensor(sonic_index(2, 31), "DOM RX Power Sensor for Ethernet1/1", WATTS, MILLI, 4, 4000)
    assert await lanes_and_modules("sonic", rows) == ({("Eth1/1", "1"): {RECEIVED: pytest.approx(0.0003)}}, {})


async def test_sensors_of_old_releases_of_sonic_are_found_by_name():
    """Until 202006 an index was ifIndex x 1000 + lane x 10 + the number of the sensor."""
    rows = described(switch("Ethernet0"), SONIC)
    rows |= sensor(1021, "DOM RX Power Sensor for Ethernet0/2", WATTS, MILLI, 4, 4000)
    lanes, _ = await lanes_and_modules("sonic", rows)
    assert lanes == {("Ethernet0", "2"): {RECEIVED: pytest.approx(0.0004)}}


@pytest.mark.parametrize(
    ("port", "title"),
    [("1:49", "Port 1:49"), ("1:49", "1:49"), ("49", "Port 49"), ("Port 49", "QSFP28 in Port 49")],
)
async def test_four_channels_are_four_lanes(port, title):
    rows = switch(port) | thing(500, title)
    for lane in range(1, 5):
        holder = 500 + 10 * lane
        rows |= thing(holder, f"Channel {lane}", holder=500)
        rows |= sensor(holder + 1, "Rx Power", WATTS, MICRO, 0, 500 + lane, holder=holder)
        rows |= sensor(holder + 2, "Tx Power", WATTS, MICRO, 0, 600 + lane, holder=holder)
        rows |= sensor(holder + 3, "Tx Bias", AMPERES, MICRO, 0, 7000 + lane, holder=holder)
    lanes, _ = await lanes_and_modules("generic", rows)
    assert lanes == {
        (port, str(lane)): pytest.approx(
            {RECEIVED: (500 + lane) * 1e-6, SENT: (600 + lane) * 1e-6, BIAS: (7000 + lane) * 1e-6}
        )
        for lane in range(1, 5)
    }


async def test_powers_in_decibels_have_their_unit_beside_them():
    """EXOS User Guide, Entity Sensor MIB: the type is then other(1), and entPhySensorUnitsDisplay has the unit."""
    rows = switch("1:49")
    for lane, unit in enumerate(("dBm", "dB", "dbm", "rpm"), start=1):
        rows |= sensor(50 + lane, f"Port 1:49 Channel {lane} Rx Power", 1, UNITS, 2, -100 * lane)
        rows |= {(*ENTITY_SENSOR, 6, 50 + lane): text(unit)}
    lanes, _ = await lanes_and_modules("generic", rows)
    assert lanes == {
        ("1:49", str(lane)): {RECEIVED: pytest.approx(level * 1e-3, rel=1e-4)}
        for lane, level in ((1, 0.794328), (2, 0.630957), (3, 0.501187))
    }


@pytest.mark.parametrize("cage", ["0/0-PORT-22", "Optics0/0/0/22", "TenGigE0/0/0/22", "Te0/0/0/22"])
async def test_sensors_of_ios_xr(cage):
    rows = described(switch("TenGigE0/0/0/22", "TenGigE0/0/0/2", "TenGigE0/1/0/22"), IOS_XR)
    rows |= switch("Optics0/0/0/22", first=9) | {(1, 3, 6, 1, 2, 1, 2, 2, 1, 3, 9): Typed(INTEGER, 196)}
    rows = described(rows, IOS_XR)
    rows |= sensor(3072240, f"{cage}-3.3 V", VOLTS, MILLI, 0, 3287)
    rows |= sensor(3072250, f"{cage}-Tx Lane 0 Current", AMPERES, MICRO, 0, 35_120)
    rows |= sensor(3072270, f"{cage}-Tx Lane 0 Power", WATTS, MICRO, 0, 604)
    rows |= sensor(3072282, f"{cage}-Rx Lane 0 Power", WATTS, MICRO, 0, 212)
    rows |= sensor(3072390, f"{cage}-Module Temp", CELSIUS, UNITS, 0, 31)
    rows |= sensor(2375950, "0/PT0-PM0-Input Power", WATTS, UNITS, 0, 120)
    rows |= sensor(8492, "0/0-DB AIR_Inlet0", CELSIUS, UNITS, 0, 25)
    lanes, modules = await lanes_and_modules("ios", cisco(rows))
    assert modules == {("TenGigE0/0/0/22",): pytest.approx({TEMPERATURE: 31.0, VOLTAGE: 3.287})}
    assert lanes == {("TenGigE0/0/0/22", "1"): pytest.approx({RECEIVED: 212e-6, SENT: 604e-6, BIAS: 0.03512})}


async def test_sensors_of_ios_xe():
    rows = described(switch("Te1/1/1", "Hu1/0/49"), IOS_XE)
    rows |= sensor(1101, "Te1/1/1 Transceiver Receive Power Sensor", DBM, UNITS, 1, -100)
    rows |= sensor(1102, "Te1/1/1 Transceiver Temperature Sensor", CELSIUS, UNITS, 1, 285)
    rows |= sensor(1201, "HundredGigE1/0/49 Lane 4 Transceiver Receive Power Sensor", DBM, UNITS, 1, -200)
    rows |= sensor(1001, "Switch 1 - Inlet Temp Sensor", CELSIUS, UNITS, 0, 24)
    lanes, modules = await lanes_and_modules("ios", cisco(rows))
    assert modules == {("Te1/1/1",): {TEMPERATURE: 28.5}}
    assert lanes == {
        ("Te1/1/1", "1"): {RECEIVED: pytest.approx(1e-4)},
        ("Hu1/0/49", "4"): {RECEIVED: pytest.approx(1e-5)},
    }


@pytest.mark.parametrize("title", ["1/1/2 Temperature", "Temperature of port 1/1/2", "Transceiver 1/1/2 Temp"])
async def test_a_port_whose_name_has_no_letters(title):
    rows = switch("1/1/1", "1/1/2") | sensor(7, title, CELSIUS, UNITS, 0, 30)
    assert await lanes_and_modules("generic", rows) == ({}, {("1/1/2",): {TEMPERATURE: 30.0}})


@pytest.mark.parametrize("title", ["HundredGigabitEthernet 0/49 Rx Power", "Rx Power (HundredGigabitEthernet0/49)"])
async def test_a_port_whose_name_has_a_blank(title):
    rows = switch("HundredGigabitEthernet 0/49", "Ethernet 0/4") | sensor(7, title, DBM, UNITS, 0, -10)
    lanes, _ = await lanes_and_modules("generic", rows)
    assert lanes == {("HundredGigabitEthernet 0/49", "1"): {RECEIVED: pytest.approx(1e-4)}}


@pytest.mark.parametrize(
    "title", ["Temperature 1", "Fan 1/2", "PSU 1 Input Power", "PSU 1/2/3", "1-3.3 V", "Slot 2 Temp"]
)
async def test_the_number_of_another_part_is_no_port(title):
    rows = switch("1", "2", "1/2") | sensor(7, title, CELSIUS, UNITS, 0, 30)
    assert await lanes_and_modules("generic", rows) == ({}, {})


@pytest.mark.parametrize(
    ("title", "lane"),
    [
        ("Lane 0 for Xcvr for Ethernet3", 0),
        ("Ethernet1/1 Lane 4 Transceiver Bias Current Sensor", 4),
        ("0/0-PORT-22-Rx Lane 3 Power", 3),
        ("Channel 2", 2),
        ("Rx Power Ch 3", 3),
        ("RX4 Power", 4),
        ("tx2bias", 2),
        ("port-channel 1 Rx Power", -1),
        ("Port Channel 3", -1),
        ("Tx Power 1310nm", -1),
        ("Transceiver Receive Power Sensor", -1),
    ],
)
def test_the_lane_in_a_title(title, lane):
    assert lane_in_title(title) == lane


@pytest.mark.parametrize(
    ("object_id", "description", "name"),
    [
        ((1, 3, 6, 1, 4, 1, 9, 1, 2658), IOS_XR, "ios"),
        ((1, 3, 6, 1, 4, 1, 9, 1, 2658), "", "ios"),
        ((), IOS_XE, "ios"),
        ((1, 3, 6, 1, 4, 1, 9, 12, 3, 1, 3, 1812), "", "nxos"),
    ],
)
def test_routers_and_switches_of_cisco_have_a_profile(object_id, description, name):
    profile = builtin().match(object_id, description)
    assert (profile.name, profile.optics) == (name, "cisco")
