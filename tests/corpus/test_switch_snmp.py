"""Recordings of real switches, asked by SNMP: what stands in them comes out, found there by identifier alone.

The expectations were taken from the files by their identifiers, not by this program.
"""

import json

import pytest

from exporter.core.source import SourceError
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.snmp.recording import load
from exporter.sources.switch.metrics import (
    LANES,
    MODULES,
    PORTS,
    PRIORITIES,
)
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.readers.snmp.reader import SnmpReader
from tests.helpers.paths import ROOT

EXPECTED = json.loads((ROOT / "tests" / "corpus" / "switch_snmp_expectations.json").read_text())


async def harvest_of(path):
    """Read a recording once, as a switch."""
    async with SnmpAgent(load(path).rows) as agent:
        snmp = Snmp(community="public", timeout=20.0)
        target = Target(name="t", address="{}:{}".format(*await agent.start()), snmp=snmp, optics=True)
        reader = SnmpReader(target, snmp, 60.0)
        try:
            return await reader.read()
        finally:
            await reader.close()


def part_of(harvest, schema):
    return next((part for part in harvest.parts if part.schema is schema), None)


def told(part, ending):
    """Give what rows of a part say, by key, where they say something."""
    if part is None or ending not in part.columns:
        return {}
    values = zip(part.keys, part.columns[ending].values, strict=True)
    return {key: value for key, value in values if value is not None}


def test_every_recording_has_its_expectations(corpus):
    folder = corpus / "switch" / "snmprec"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.snmprec")} == EXPECTED.keys()


@pytest.mark.parametrize("name", [name for name, row in EXPECTED.items() if row["ports"]])
async def test_what_a_recording_holds_comes_out(corpus, name):
    harvest, row = await harvest_of(corpus / "switch" / "snmprec" / name), EXPECTED[name]
    assert harvest.failures == []
    assert harvest.device.profile == row["profile"]
    ports = part_of(harvest, PORTS)
    assert len(ports.keys) == row["ports"]
    bytes_received, facts = told(ports, "receive_bytes_total"), told(ports, "info")
    assert sum(bytes_received.values()) == row["receive_bytes"]
    (last,) = (key for key, fact in facts.items() if fact[1] == row["last_index"])
    assert last[0].partition("#")[0] == row["last"]
    assert bytes_received.get(last) == row["last_receive_bytes"]
    assert sum(told(ports, "receive_errors_total").values()) == row["receive_errors"]
    assert sum(told(ports, "link_up").values()) == row["up"]
    assert len(told(ports, "receive_pause_frames_total")) == row["pause_ports"]
    assert len(told(ports, "transmit_pfc_all_priorities_frames_total")) == row["pfc_totals"]
    assert len(told(part_of(harvest, PRIORITIES), "receive_pfc_frames_total")) == row.get("priorities", 0)
    assert len(harvest.neighbours or ()) == row["lldp_rows"]
    assert [one.port for one in harvest.neighbours or ()][:1] == (
        [row["first_neighbour_on"]] if row["lldp_rows"] else []
    )
    assert len(told(part_of(harvest, LANES), "module_lane_receive_power_watts")) == row["lanes_with_light"]
    assert len(told(part_of(harvest, MODULES), "module_temperature_celsius")) == row["module_temperatures"]


@pytest.mark.parametrize("name", [name for name, row in EXPECTED.items() if not row["ports"]])
async def test_a_recording_without_interfaces_is_no_healthy_switch(corpus, name):
    with pytest.raises(SourceError, match="no interface to show") as caught:
        await harvest_of(corpus / "switch" / "snmprec" / name)
    assert caught.value.reason == "empty"
