"""Empty cages: zeros for all measurements are no module, and a dark module is one."""

import pytest

from exporter.snmp.ber import GAUGE32, INTEGER, Typed
from exporter.sources.switch.merge import PartialTableBuilder
from exporter.sources.switch.metrics import LANES, MODULES
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.readers.api_reader import add_module_rows
from exporter.sources.switch.readers.empty_cages import has_module, is_measured
from exporter.sources.switch.readers.nvue.rows import NvueRows
from exporter.switch_api.nvue.modules import NvueLane, NvueModule
from exporter.switch_api.nvue.parser import NvueInterface
from exporter.switch_api.transceiver import Transceiver
from tests.simulators.snmp_switch import SimulatedSwitch
from tests.sources.switch.test_profiles import harvest_of, rows_of

JUNIPER_MODULE, JUNIPER_LANE = ((1, 3, 6, 1, 4, 1, 2636, 3, 60, 1, table, 1, 1) for table in (1, 2))
"""JUNIPER-DOM-MIB: jnxDomCurrentEntry by interface, and jnxDomCurrentLaneEntry by interface and lane."""

DARK_DBM = -40.0


@pytest.mark.parametrize(
    ("voltage", "measurements", "present"),
    [
        (3.3, [38.0, 0.0, 0.0], True),
        (3.384, [24.0, 0.0, 0.0], True),  # dark
        (0.0, [0.0, 1e-3, 0.0], False),
        (0.0, [24.0, 1e-3], False),
        (None, [0.0, 1e-3, 1e-3, 0.0], False),
        (None, [38.0, 1e-3], True),
        (None, [0.0, 5e-4], True),
        (None, [None, None], True),  # nothing is known
        (None, [1e-3, None], True),  # one sensor, at 0 dBm
    ],
)
def test_a_module_has_a_supply_voltage_or_a_measurement(voltage, measurements, present):
    assert has_module(voltage, measurements) is present


async def test_empty_cages_of_juniper_have_no_module_and_no_light():
    """Their rows are zeros: 0 dBm would be a milliwatt of light."""
    switch = SimulatedSwitch("leaf-1", ports=3, kind="junos", seed=1)
    rows = switch.agent.rows
    places = [rows.oid(place) for place in range(len(rows))]
    first, empty, dark = sorted({oid[-1] for oid in places if oid[:-1] == (*JUNIPER_MODULE, 8)})[:3]
    zeros = {oid: Typed(INTEGER, 0) for oid in places if oid[:13] == JUNIPER_MODULE and oid[-1] == empty}
    zeros |= {oid: Typed(INTEGER, 0) for oid in places if oid[:13] == JUNIPER_LANE and oid[-2] == empty}
    zeros[*JUNIPER_MODULE, 30, empty] = Typed(GAUGE32, 0)
    no_light = {
        oid: Typed(INTEGER, 0 if oid[-3] == 7 else round(DARK_DBM * 100))
        for oid in places
        if oid[:13] == JUNIPER_LANE and oid[-2] == dark
    }
    switch.agent.set_many(zeros | no_light)
    harvest = await harvest_of("junos", switch.agent, profile="junos")
    modules, lanes = rows_of(harvest, MODULES), rows_of(harvest, LANES)
    assert len(modules) == 2
    assert len(lanes) == 8
    assert {round(row["module_lane_receive_power_watts"], 9) for row in lanes.values()} == {
        0.0,  # -40 dBm is no light
        *(round(10 ** ((-50 - 5 * lane) / 1000) / 1000, 9) for lane in range(4)),
    }
    assert {row["module_voltage_volts"] for row in modules.values()} == {3.31}
    assert first not in (empty, dark)


@pytest.mark.parametrize("voltage", [0.0, None])
def test_an_empty_cage_by_an_api_has_no_rows(voltage):
    modules, lanes = PartialTableBuilder(MODULES), PartialTableBuilder(LANES)
    zeros = {str(lane): 0.0 for lane in range(1, 5)}
    add_module_rows(modules, lanes, "Ethernet0", Transceiver(0.0, voltage, zeros, zeros, zeros))
    dark = dict.fromkeys(zeros, DARK_DBM)
    add_module_rows(modules, lanes, "Ethernet4", Transceiver(24.0, None if voltage is None else 3.3, dark, dark, zeros))
    assert modules.part(0.0).keys == [("Ethernet4",)]
    assert {key[0] for key in lanes.part(0.0).keys} == {"Ethernet4"}


@pytest.mark.parametrize(
    ("bias", "powers", "measured"),
    [
        (0.0, (1e-3, 1e-3), False),
        (0.0, (1e-3, None), False),
        (0.0, (0.0, 0.0), True),  # the laser is off: -40 dBm, or 0 W
        (0.0, (1e-3, 0.0), True),  # light is received while the laser is off
        (0.0065, (1e-3, 1e-3), True),
        (None, (1e-3, 1e-3), True),
        (0.0, (None, None), True),
    ],
)
def test_zero_dbm_without_a_current_is_no_light(bias, powers, measured):
    assert is_measured(bias, *powers) is measured


async def test_unused_lanes_of_juniper_have_no_light():
    """A module with a single lane in a cage for four: the others are zeros, and the module has a supply voltage."""
    switch = SimulatedSwitch("leaf-1", ports=1, kind="junos", seed=1)
    rows = switch.agent.rows
    lanes = [oid for oid in map(rows.oid, range(len(rows))) if oid[:13] == JUNIPER_LANE]
    switch.agent.set_many({oid: Typed(INTEGER, 0) for oid in lanes if oid[-1] > 0})
    found = rows_of(await harvest_of("junos", switch.agent, profile="junos"), LANES)
    assert [lane for _, lane in found] == ["1"]


def test_unused_lanes_by_an_api_have_no_light():
    modules, lanes = PartialTableBuilder(MODULES), PartialTableBuilder(LANES)
    powers = {"1": -3.0, "2": 0.0}
    add_module_rows(modules, lanes, "Ethernet0", Transceiver(38.0, 3.3, powers, powers, {"1": 0.0065, "2": 0.0}))
    assert lanes.part(0.0).keys == [("Ethernet0", "1")]


def test_unused_lanes_by_nvue_have_no_light():
    rows = NvueRows(Target(name="t", address="192.0.2.1", snmp=Snmp(community="public")))
    rows.set_ports({"swp1": NvueInterface(), "swp2": NvueInterface()}, 0.0)
    lit, zeros = NvueLane(receive_dbm=-3.0, transmit_dbm=-3.0, bias=0.0065), NvueLane(None, 0.0, None, 0.0, 0.0)
    rows.modules = {
        "swp1": NvueModule(38.0, 3.3, {1: lit, 2: zeros}),
        "swp2": NvueModule(0.0, 0.0, {1: zeros, 2: zeros}),
    }
    keys = {part.schema: part.keys for part in rows.parts()}
    assert keys[MODULES] == [("swp1",)]
    assert keys[LANES] == [("swp1", "1")]
