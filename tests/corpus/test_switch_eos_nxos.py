"""Recordings of EOS, NX-OS and Junos: values read off them by eye, and for each file without rows the reason."""

import json

import pytest

from exporter.switch_api.eapi import parser as eapi_parser
from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.nxapi import parser as nxapi_parser

READ = {
    *(
        f"eos/napalm/test_get_interfaces/{name}/show_interfaces.json"
        for name in ("normal", "issue68_iface_no_physical_addr")
    ),
    "eos/napalm/test_get_interfaces_counters/normal/show_interfaces.json",
    *(
        f"eos/napalm/test_get_lldp_neighbors_detail/{name}/show_lldp_neighbors__detail.json"
        for name in ("normal", "issue903", "issue1153")
    ),
    "eos/napalm/test_get_optics/normal/show_interfaces_transceiver.json",
    *(
        f"nxos/napalm/test_get_interfaces/{name}/show_interface.json"
        for name in ("normal", "admin_up_oper_down", "vlan_interface")
    ),
}
"""Beside those below `eos/anta`, of which one command has several."""

ASKED = (
    "InterfacesECNCounters",
    "InterfacesEgressQueueDrops",
    "InterfacesOpticsReceivePower",
    "InterfacesOpticsTemperature",
    "InterfacesPFCCounters",
    "InterfacesVoqAndEgressQueueDrops",
)

NOT_ASKED_FOR = {
    "eos/anta/VerifyInterfaceDiscards": "show interfaces has the same",
    "eos/anta/VerifyInterfaceErrors": "show interfaces has the same",
    "eos/anta/VerifyInterfacesSpeed": "excerpts of show interfaces that leave out what kind of interface it is",
    "eos/anta/VerifyInterfacesTridentCounters": "drops by cause, of one family of chips: there is no metric of them",
    "eos/anta/VerifyStormControlDrops": "storms of broadcasts: there is no metric of them",
    "nxos/napalm/test_get_lldp_neighbors/normal/show_lldp_neighbors.json": "text, which is not requested",
    "nxos/napalm/test_get_lldp_neighbors/normal/show_lldp_neighbors_detail.json": "likewise",
    "junos/": "XML of NETCONF: Junos is read by SNMP",
}
"""Beginnings of paths, and why nothing is read of them."""

PARSERS = {
    "InterfacesECNCounters": eapi_parser.parse_ecn,
    "InterfacesEgressQueueDrops": eapi_parser.parse_drops,
    "InterfacesOpticsReceivePower": eapi_parser.parse_modules,
    "InterfacesOpticsTemperature": eapi_parser.parse_modules,
    "InterfacesPFCCounters": eapi_parser.parse_pfc,
    "InterfacesVoqAndEgressQueueDrops": eapi_parser.parse_drops,
}


@pytest.fixture
def recorded(corpus):
    folder = corpus / "switch"
    if not folder.is_dir():
        pytest.skip("needs the corpus of switches")

    def read(name):
        data = json.loads((folder / name).read_text())
        return data[0] if isinstance(data, list) else data  # of several commands the first

    read.folder = folder
    return read


def anta(name):
    return f"eos/anta/Verify{name}.json"


def test_every_recording_is_tested_or_has_a_reason_not_to_be(recorded):
    for vendor in ("eos", "nxos", "junos"):
        for path in (recorded.folder / vendor).rglob("*"):
            name = str(path.relative_to(recorded.folder))
            asked = any(name.startswith(f"eos/anta/Verify{test}__") for test in ASKED)
            reasons = [start for start in NOT_ASKED_FOR if name.startswith(start)]
            assert path.is_dir() or (asked or name in READ) != bool(reasons), name


@pytest.mark.parametrize("test", ASKED)
def test_all_recordings_of_a_command_are_read_without_a_problem(recorded, test):
    found = sorted((recorded.folder / "eos" / "anta").glob(f"Verify{test}__*.json"))
    assert found
    for path in found:
        read = PARSERS[test](recorded(str(path.relative_to(recorded.folder))))
        assert read.problems == ()


def test_ports_of_eos(recorded):
    read = eapi_parser.parse_interfaces(recorded("eos/napalm/test_get_interfaces/normal/show_interfaces.json"))
    management = read.ports["Management1"]
    assert (management.up, management.admin_up, management.speed) == (True, True, 10**9)
    assert management.refreshed == 1466589559.985047
    assert management.counters["receive_bytes_total"] == 61019875
    assert management.counters["receive_pause_frames_total"] == 0
    virtual = read.ports["Ethernet2"]
    assert (virtual.up, virtual.speed, virtual.counters["receive_bytes_total"]) == (True, None, 180591), "0 is no speed"
    down = eapi_parser.parse_interfaces(recorded("eos/napalm/test_get_interfaces_counters/normal/show_interfaces.json"))
    assert (down.ports["Ethernet1"].up, down.ports["Ethernet1"].admin_up) == (False, True)
    assert down.ports["Port-Channel1"].up is False
    assert read.problems == down.problems == ()


def test_pfc_and_ecn_marks_of_eos(recorded):
    pfc = eapi_parser.parse_pfc(recorded(anta("InterfacesPFCCounters__failure")))
    assert pfc.ports == {
        "Ethernet3/1/1": {None: (1, 0)},
        "Ethernet3/2/1": {None: (0, 2)},
        "Ethernet3/3/1": {None: (2, 0)},
        "Ethernet3/4/1": {None: (0, 1)},
    }
    marks = eapi_parser.parse_ecn(recorded(anta("InterfacesECNCounters__failure-specific-interface")))
    assert marks.ports["Ethernet10/20/1"] == {"0": None, "1": None, "2": 0}


def test_drops_of_eos(recorded):
    fixed = eapi_parser.parse_drops(recorded(anta("InterfacesEgressQueueDrops__success-all")))
    assert fixed.ports == {"Ethernet1": {"0": 0, "1": 0}, "Ethernet2": {"0": 0, "1": 4}}, "of multicast, those 4"
    virtual = eapi_parser.parse_drops(recorded(anta("InterfacesVoqAndEgressQueueDrops__failure")))
    assert virtual.ports == {"Ethernet48": {"0": 3, "1": 9}, "Ethernet49": {"0": 11, "1": 14}}


def test_modules_of_eos(recorded):
    all_lanes = eapi_parser.parse_modules(recorded(anta("InterfacesOpticsReceivePower__success-valid-rx-power")))
    assert sorted(all_lanes.ports) == ["Ethernet2/1", "Ethernet7/1"], "the other cages have no sensors"
    assert all_lanes.ports["Ethernet7/1"].receive_power["1"] == -30.0
    assert all_lanes.ports["Ethernet7/1"].receive_power["3"] == -23.2242819530859
    flat = eapi_parser.parse_modules(recorded("eos/napalm/test_get_optics/normal/show_interfaces_transceiver.json"))
    lane = flat.ports["Ethernet3/1/2"]
    assert (lane.transmit_power, lane.bias) == ({"1": -0.70785496262606}, {"1": pytest.approx(0.006496)})
    assert (lane.temperature, lane.voltage) == (35.26171875, 3.2731000000000003)


def test_neighbours_of_eos(recorded):
    path = "eos/napalm/test_get_lldp_neighbors_detail/{}/show_lldp_neighbors__detail.json".format
    assert eapi_parser.parse_neighbours(recorded(path("issue1153"))) != []
    (odd,) = eapi_parser.parse_neighbours(recorded(path("issue903")))
    assert odd == LldpNeighbour(
        "Ethernet22",
        "00c.297b.d2a8",  # a digit short: no MAC address, so it stays text
        "00:0c:29:7b:d2:a8",
        "linux",
        "eth0",
        "CentOS Linux 7 (Core) Linux 4.9.46 #1 SMP PREEMPT Wed Aug 30 15:24:09 UTC 2017 x86_64",
        frozenset({"station"}),
        ("10.199.1.22",),
    )
    first = next(one for one in eapi_parser.parse_neighbours(recorded(path("issue1153"))) if one.port == "Ethernet1/1")
    assert (first.name, first.peer_port, first.addresses) == (
        "some-server",
        "1c:e7:10:03:54:13",
        ("10.0.0.1", "fe80::1"),
    )
    assert first.capabilities == {"bridge", "router"}


def test_ports_of_nxos(recorded):
    path = "nxos/napalm/test_get_interfaces/{}/show_interface.json".format
    read = nxapi_parser.parse_interfaces(recorded(path("normal")))
    up, down = read.ports["Ethernet2/1"], read.ports["Ethernet2/7"]
    assert (up.up, up.admin_up, up.speed, up.counters["receive_bytes_total"]) == (True, True, 10**9, 0)
    assert (down.up, down.admin_up) == (False, False)
    assert "receive_bytes_total" not in read.ports["mgmt0"].counters, "it counts under other names"
    assert "Vlan1" not in read.ports
    assert read.problems == ()
    never = nxapi_parser.parse_interfaces(recorded(path("admin_up_oper_down")))
    assert {name: (port.up, port.admin_up) for name, port in never.ports.items()} == {
        "Ethernet1/1": (False, True),
        "Ethernet1/2": (False, False),
    }
    assert never.ports["Ethernet1/1"].counters == {}
    assert nxapi_parser.parse_interfaces(recorded(path("vlan_interface"))).ports == {}
