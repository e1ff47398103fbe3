"""Recordings of whole switches, polled by SNMP: the reading equals the content of the file.

The recordings are snapshots of simulated switches, and where the corpus is present those of real switches. The
expectations were taken from the files by their identifiers, not by this program.
"""

import json
from collections import Counter

import pytest

from exporter.core.source import SourceError
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.snmp.recording import load
from exporter.sources.switch.metrics import (
    KIND,
    LANES,
    MODULES,
    PORTS,
    PRIORITIES,
)
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.port_kinds import PortKind
from exporter.sources.switch.readers.snmp.reader import SnmpReader
from exporter.sources.switch.settings_metrics import SETTINGS
from tests.helpers.paths import FIXTURES, ROOT

SNAPSHOTS = FIXTURES / "switch-snapshots"
EXPECTED = {
    "snapshots": json.loads((SNAPSHOTS / "expectations.json").read_text()),
    "corpus": json.loads((ROOT / "tests" / "corpus" / "switch_snmp_expectations.json").read_text()),
}
"""By origin and file name, what the recording contains."""


def recordings(*, with_ports):
    return [
        pytest.param(origin, name, id=f"{origin}-{name}")
        for origin, rows in EXPECTED.items()
        for name, row in rows.items()
        if bool(row["ports"]) == with_ports
    ]


@pytest.fixture
def folder(request):
    """Return a function that returns the folder of an origin, or skips the test."""

    def find(origin):
        return SNAPSHOTS if origin == "snapshots" else request.getfixturevalue("corpus") / "switch" / "snmprec"

    return find


async def read_recording(path):
    """Poll a recording once, as a switch."""
    async with SnmpAgent(load(path).rows) as agent:
        snmp = Snmp(community="public", timeout=20.0)
        target = Target(name="t", address="{}:{}".format(*await agent.start()), snmp=snmp, optics=True)
        reader = SnmpReader(target, snmp, 60.0)
        try:
            return await reader.read()
        finally:
            await reader.close()


def part_of(reading, schema):
    return next((part for part in reading.parts if part.schema is schema), None)


def values_of(part, ending):
    """Return the values of a column by key, without missing ones."""
    if part is None or ending not in part.columns:
        return {}
    values = zip(part.keys, part.columns[ending].values, strict=True)
    return {key: value for key, value in values if value is not None}


@pytest.mark.parametrize("origin", EXPECTED)
def test_every_recording_has_expectations(folder, origin):
    place = folder(origin)
    found = {str(path.relative_to(place)) for path in place.rglob("*.snmprec")}
    assert found == EXPECTED[origin].keys()
    assert found


def test_the_snapshots_are_synthetic():
    paths = list(SNAPSHOTS.glob("*.snmprec"))
    assert paths
    assert all(path.read_text().startswith("# Synthetic") for path in paths)


@pytest.mark.parametrize(("origin", "name"), recordings(with_ports=True))
async def test_the_reading_of_a_recording(folder, origin, name):
    reading, row = await read_recording(folder(origin) / name), EXPECTED[origin][name]
    assert reading.failures == []
    assert reading.device.profile == row["profile"]
    ports = part_of(reading, PORTS)
    assert len(ports.keys) == row["ports"]
    bytes_received, infos = values_of(ports, "receive_bytes_total"), values_of(ports, "info")
    assert sum(bytes_received.values()) == row["receive_bytes"]
    (last,) = (key for key, info in infos.items() if info[1] == row["last_index"])
    assert last[0].partition("#")[0] == row["last"]
    assert bytes_received.get(last) == row["last_receive_bytes"]
    assert sum(values_of(ports, "receive_errors_total").values()) == row["receive_errors"]
    assert sum(values_of(ports, "link_up").values()) == row["up"]
    assert len(values_of(ports, "receive_pause_frames_total")) == row["pause_ports"]
    assert len(values_of(ports, "transmit_pfc_all_priorities_frames_total")) == row["pfc_totals"]
    assert len(values_of(part_of(reading, PRIORITIES), "receive_pfc_frames_total")) == row.get("priorities", 0)
    assert len(reading.neighbours or ()) == row["lldp_rows"]
    assert [one.port for one in reading.neighbours or ()][:1] == (
        [row["first_neighbour_on"]] if row["lldp_rows"] else []
    )
    assert len(values_of(part_of(reading, LANES), "module_lane_receive_power_watts")) == row["lanes_with_light"]
    assert len(values_of(part_of(reading, MODULES), "module_temperature_celsius")) == row["module_temperatures"]


MTUS = {
    "librenms/arista_eos.snmprec": 9214,
    "librenms/cumulus_bgp.snmprec": 9216,
    "librenms/dell-os10.snmprec": 9216,
    "librenms/edgecos_dcs203.snmprec": 9100,
    "librenms/nxos_n3k-3064pq.snmprec": 1500,
}
"""By recording, the MTU of most of its ports."""


@pytest.mark.parametrize("name", MTUS)
async def test_the_mtu_of_most_ports_of_a_recording(corpus, name):
    reading = await read_recording(corpus / "switch" / "snmprec" / name)
    mtus = values_of(part_of(reading, SETTINGS), "mtu_bytes")
    assert Counter(mtus.values()).most_common(1)[0][0] == MTUS[name]
    assert mtus.keys() <= values_of(part_of(reading, PORTS), "info").keys()


KINDS = {
    "librenms/arista_eos.snmprec": "52 1 0 1 1",
    "librenms/arista_eos_7280r.snmprec": "54 2 0 7 1",
    "librenms/arubaos-cx_100gb.snmprec": "52 3 0 0 1",
    "librenms/cumulus_bgp.snmprec": "64 14 1 18 1",  # 13 bonds and the peer link; VXLANs, VLANs, lo, mirror, the VRF
    "librenms/cumulus_cumulus.snmprec": "7 0 0 1 1",
    "librenms/dell-os10.snmprec": "30 3 0 2 1",
    "librenms/edgecos_dcs203.snmprec": "56 6 0 1 1",
    "librenms/junos_qfx5100.snmprec": "9 0 10 28 3",  # em0, its twin em1 and vme are for management
    "librenms/nxos_n3k-3064pq.snmprec": "52 1 0 0 1",
    "librenms/ocnos_as7712-32x.snmprec": "128 0 0 2 1",
    "snmpsim-data/arista-dcs-7150s-52-cl.snmprec": "52 1 0 5 1",
    "snmpsim-data/cisco-n5000.snmprec": "32 12 0 16 1",
}
"""By recording, the rows that are physical, aggregate, sub-interfaces, virtual and for management, as
this program counts them: a change of its names and rules shows here, and is right or wrong by the names of the rows."""


@pytest.mark.parametrize("name", KINDS)
async def test_the_kinds_of_the_rows_of_a_recording(folder, name):
    reading = await read_recording(folder("corpus") / name)
    kinds = [info[KIND] for info in values_of(part_of(reading, PORTS), "info").values()]
    assert " ".join(str(kinds.count(kind)) for kind in PortKind) == KINDS[name]


@pytest.mark.parametrize(("origin", "name"), recordings(with_ports=False))
async def test_a_recording_without_interfaces_is_an_error(folder, origin, name):
    with pytest.raises(SourceError, match="returns no interfaces") as caught:
        await read_recording(folder(origin) / name)
    assert caught.value.reason == "empty"
