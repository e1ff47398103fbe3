"""Recordings of EOS, NX-OS and Junos: own ones and those of the corpus, with values read off the files.

For each file of the corpus that is not parsed the reason is given.
"""

from unittest.mock import ANY

import pytest

from exporter.switch_api.eapi import parser as eapi_parser
from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.nxapi import parser as nxapi_parser
from tests.helpers.recordings import read_recording

EOS_INTERFACES = "eos/napalm/test_get_interfaces/{}/show_interfaces.json"
EOS_COUNTERS = "eos/napalm/test_get_interfaces_counters/normal/show_interfaces.json"
EOS_NEIGHBOURS = "eos/napalm/test_get_lldp_neighbors_detail/{}/show_lldp_neighbors__detail.json"
EOS_TRANSCEIVER = "eos/napalm/test_get_optics/normal/show_interfaces_transceiver.json"
NXOS_INTERFACES = "nxos/napalm/test_get_interfaces/{}/show_interface.json"

PARSED = {
    *(EOS_INTERFACES.format(name) for name in ("normal", "issue68_iface_no_physical_addr")),
    EOS_COUNTERS,
    *(EOS_NEIGHBOURS.format(name) for name in ("normal", "issue903", "issue1153")),
    EOS_TRANSCEIVER,
    *(NXOS_INTERFACES.format(name) for name in ("normal", "admin_up_oper_down", "vlan_interface")),
}
"""And those in `eos/anta`, which has several for each command."""

PARSERS = {
    "InterfacesECNCounters": eapi_parser.parse_ecn,
    "InterfacesEgressQueueDrops": eapi_parser.parse_drops,
    "InterfacesOpticsReceivePower": eapi_parser.parse_modules,
    "InterfacesOpticsTemperature": eapi_parser.parse_modules,
    "InterfacesPFCCounters": eapi_parser.parse_pfc,
    "InterfacesVoqAndEgressQueueDrops": eapi_parser.parse_drops,
}
"""By the name of a recording in `eos/anta`."""

NOT_PARSED = {
    "eos/anta/VerifyInterfaceDiscards": "show interfaces has the same counters",
    "eos/anta/VerifyInterfaceErrors": "show interfaces has the same counters",
    "eos/anta/VerifyInterfacesSpeed": "excerpts of show interfaces without the hardware type of the interface",
    "eos/anta/VerifyInterfacesTridentCounters": "drops by cause, of one family of chips: there is no metric for them",
    "eos/anta/VerifyStormControlDrops": "broadcast storms: there is no metric for them",
    "nxos/napalm/test_get_lldp_neighbors/normal/show_lldp_neighbors.json": "text; the reader requests JSON",
    "nxos/napalm/test_get_lldp_neighbors/normal/show_lldp_neighbors_detail.json": "text; the reader requests JSON",
    "junos/": "XML of NETCONF: Junos is read by SNMP",
}
"""Prefixes of paths, and why such files are not parsed."""


@pytest.fixture
def recorded(request):
    """Return a function that reads the recording of a name; of the results of several commands the first."""

    def read(name):
        data = read_recording(request, name)
        return data[0] if isinstance(data, list) else data

    return read


@pytest.fixture
def folder(corpus):
    if not (corpus / "switch").is_dir():
        pytest.skip("needs the corpus of switches")
    return corpus / "switch"


def anta(name):
    return f"corpus/eos/anta/Verify{name}.json"


def test_every_recording_is_tested_or_has_a_reason_not_to_be(folder):
    for vendor in ("eos", "nxos", "junos"):
        files = [path for path in (folder / vendor).rglob("*") if path.is_file()]
        assert files
        for path in files:
            name = str(path.relative_to(folder))
            is_parsed = name in PARSED or any(name.startswith(f"eos/anta/Verify{test}__") for test in PARSERS)
            assert is_parsed != any(name.startswith(prefix) for prefix in NOT_PARSED), name


@pytest.mark.parametrize("test", PARSERS)
def test_all_recordings_of_a_command_are_parsed_without_a_problem(folder, recorded, test):
    found = sorted((folder / "eos" / "anta").glob(f"Verify{test}__*.json"))
    assert found
    for path in found:
        assert PARSERS[test](recorded(f"corpus/{path.relative_to(folder)}")).problems == ()


@pytest.mark.parametrize(
    ("name", "port", "state", "refreshed", "counters"),
    [
        ("own/eos/show_interfaces.json", "Ethernet1/1", (True, True, 400 * 10**9), 1750000000.25,
         {"receive_bytes_total": 9000000000001, "transmit_bytes_total": 8000000000002, "receive_errors_total": 11,
          "receive_pause_frames_total": 7, "transmit_pause_frames_total": 13, "fcs_errors_total": 5,
          "symbol_errors_total": 6, "receive_discards_total": 4, "transmit_discards_total": 12}),
        ("own/eos/show_interfaces.json", "Ethernet2/1", (False, False, None), 1750000000.75,
         {"receive_bytes_total": 0}),
        ("own/eos/show_interfaces.json", "Port-Channel1", (False, True, 800 * 10**9), 1750000000.25, {}),
        (f"corpus/{EOS_INTERFACES}".format("normal"), "Management1", (True, True, 10**9), 1466589559.985047,
         {"receive_bytes_total": 61019875, "receive_pause_frames_total": 0}),
        (f"corpus/{EOS_INTERFACES}".format("normal"), "Ethernet2", (True, True, None), ANY,
         {"receive_bytes_total": 180591}),  # a speed of 0 is unknown
        (f"corpus/{EOS_COUNTERS}", "Ethernet1", (False, True, 10**10), 1478085320.927135,
         {"receive_bytes_total": 0, "fcs_errors_total": 0}),
        (f"corpus/{EOS_COUNTERS}", "Port-Channel1", (False, ANY, ANY), ANY, {}),
    ],
)  # fmt: skip
def test_ports_of_eos(recorded, name, port, state, refreshed, counters):
    parsed = eapi_parser.parse_interfaces(recorded(name))
    assert parsed.problems == ()
    found = parsed.ports[port]
    assert (found.up, found.admin_up, found.speed) == state
    assert found.refreshed == refreshed
    assert {ending: found.counters[ending] for ending in counters} == counters


@pytest.mark.parametrize("name", ["normal", "issue68_iface_no_physical_addr"])
def test_ports_of_eos_without_some_fields(recorded, name):
    assert eapi_parser.parse_interfaces(recorded(f"corpus/{EOS_INTERFACES}".format(name))).ports


@pytest.mark.parametrize(
    ("name", "ports"),
    [
        ("own/eos/show_priority-flow-control_counters.json",
         {"Ethernet1/1": {None: (17, 18)}, "Ethernet2/1": {None: (0, 0)}}),
        (anta("InterfacesPFCCounters__failure"),
         {"Ethernet3/1/1": {None: (1, 0)}, "Ethernet3/2/1": {None: (0, 2)}, "Ethernet3/3/1": {None: (2, 0)},
          "Ethernet3/4/1": {None: (0, 1)}}),
        (anta("InterfacesPFCCounters__success"), {"Ethernet3/1/1": {None: (0, 0)}}),
    ],
)  # fmt: skip
def test_pfc_of_eos(recorded, name, ports):
    parsed = eapi_parser.parse_pfc(recorded(name))
    assert parsed.problems == ()
    assert {port: parsed.ports[port] for port in ports} == ports


@pytest.mark.parametrize(
    ("name", "port", "queues"),
    [
        ("own/eos/show_qos_interfaces_ecn_counters_queue.json", "Ethernet1/1", {"0": None, "3": 4200, "7": 0}),
        (anta("InterfacesECNCounters__failure-specific-interface"), "Ethernet10/20/1", {"0": None, "1": None, "2": 0}),
        (anta("InterfacesECNCounters__failure"), "Ethernet10/28/1", {"0": None, "1": 0, "2": 0}),
    ],
)
def test_ecn_marks_of_eos(recorded, name, port, queues):
    parsed = eapi_parser.parse_ecn(recorded(name))
    assert parsed.problems == ()
    assert parsed.ports[port] == queues


def test_ecn_marks_of_eos_that_are_not_0(recorded):
    parsed = eapi_parser.parse_ecn(recorded(anta("InterfacesECNCounters__failure")))
    assert parsed.ports["Ethernet10/3/1"]["2"] == 2


@pytest.mark.parametrize(
    ("name", "ports"),
    [
        ("own/eos/show_interfaces_counters_queue_detail.json", {"Ethernet1/1": {"0": 0, "3": 8}}),
        ("own/eos/show_interfaces_counters_queue_drops.json", {"Ethernet1/1": {"3": 22, "7": 2}}),
        (anta("InterfacesEgressQueueDrops__success-all"),
         {"Ethernet1": {"0": 0, "1": 0}, "Ethernet2": {"0": 0, "1": 4}}),  # those 4 are of multicast
        (anta("InterfacesVoqAndEgressQueueDrops__failure"),
         {"Ethernet48": {"0": 3, "1": 9}, "Ethernet49": {"0": 11, "1": 14}}),
    ],
)  # fmt: skip
def test_drops_of_eos(recorded, name, ports):
    assert eapi_parser.parse_drops(recorded(name)).ports == ports


def test_drops_of_ranges_of_traffic_classes_are_skipped(recorded):
    name = anta("InterfacesEgressQueueDrops__success-traffic-claas-and-dp-range")
    assert eapi_parser.parse_drops(recorded(name)).ports["Ethernet1"] == {}


@pytest.mark.parametrize(
    ("name", "ports", "port", "values"),
    [
        ("own/eos/show_interfaces_transceiver_dom_thresholds.json", {"Ethernet1/1"}, "Ethernet1/1",
         {"receive_power": {"1": -2.0, "2": -30.0}, "transmit_power": {"1": 1.5, "2": 1.25},
          "bias": {"1": 0.08, "2": 0.0805}, "temperature": 41.5, "voltage": 3.25}),
        ("own/eos/show_interfaces_transceiver.json", {"Ethernet1/1"}, "Ethernet1/1",
         {"receive_power": {"1": -2.0}, "transmit_power": {"1": 1.5}, "bias": {"1": 0.08}, "temperature": 41.5,
          "voltage": 3.25}),
        (anta("InterfacesOpticsReceivePower__success-valid-rx-power"), {"Ethernet2/1", "Ethernet7/1"}, "Ethernet7/1",
         {}),
        (f"corpus/{EOS_TRANSCEIVER}", ANY, "Ethernet3/1/2",
         {"transmit_power": {"1": -0.70785496262606}, "bias": {"1": pytest.approx(0.006496)},
          "temperature": 35.26171875, "voltage": 3.2731000000000003}),
        (f"corpus/{EOS_TRANSCEIVER}", ANY, "Ethernet3/1/1",
         {"receive_power": {"1": -1.8025870272698974}, "bias": {"1": pytest.approx(0.006306)}}),
        (anta("InterfacesOpticsTemperature__success"), ANY, "Ethernet1/1", {"temperature": 33.85546875}),
    ],
)  # fmt: skip
def test_modules_of_eos(recorded, name, ports, port, values):
    """Cages without sensors have no entry."""
    parsed = eapi_parser.parse_modules(recorded(name))
    assert set(parsed.ports) == ports
    assert {key: getattr(parsed.ports[port], key) for key in values} == values


def test_lanes_of_eos(recorded):
    powered = eapi_parser.parse_modules(recorded(anta("InterfacesOpticsReceivePower__success-valid-rx-power")))
    assert powered.ports["Ethernet7/1"].receive_power["1"] == -30.0
    assert powered.ports["Ethernet7/1"].receive_power["3"] == -23.2242819530859
    others = eapi_parser.parse_modules(recorded(anta("InterfacesOpticsReceivePower__success")))
    assert "Ethernet1/1" not in others.ports
    assert others.ports["Ethernet2/1"].receive_power["4"] == -1.4630178822382547


@pytest.mark.parametrize(
    ("name", "neighbour"),
    [
        ("own/eos/show_lldp_neighbors_detail.json",
         LldpNeighbour("Ethernet1/1", "02:00:00:00:0a:01", "eth2", "gpu-001", "gpu-001 eth2", "Linux",
                       frozenset({"station"}), ("192.0.2.11",))),
        ("own/eos/show_lldp_neighbors_detail.json",
         LldpNeighbour("Ethernet1/1", "02:00:00:00:0a:02", "eth2", "gpu-002", "gpu-002 eth2", "Linux",
                       frozenset({"bridge", "router"}))),
        (f"corpus/{EOS_NEIGHBOURS}".format("issue903"),
         LldpNeighbour(
             "Ethernet22",
             "00c.297b.d2a8",  # one digit is missing: it is not a MAC address, so it is not changed
             "00:0c:29:7b:d2:a8", "linux", "eth0",
             "CentOS Linux 7 (Core) Linux 4.9.46 #1 SMP PREEMPT Wed Aug 30 15:24:09 UTC 2017 x86_64",
             frozenset({"station"}), ("10.199.1.22",))),
    ],
)  # fmt: skip
def test_neighbours_of_eos(recorded, name, neighbour):
    assert neighbour in eapi_parser.parse_neighbours(recorded(name))


@pytest.mark.parametrize(
    ("folder_name", "expected"),
    [
        ("normal", {"port": "Ethernet8", "chassis": "2c:60:0c:ad:30:de", "name": "78m3",
                    "peer_port": "00:0f:53:2e:ce:d1"}),
        ("issue1153", {"port": "Ethernet1/1", "name": "some-server", "peer_port": "1c:e7:10:03:54:13",
                       "addresses": ("10.0.0.1", "fe80::1"), "capabilities": {"bridge", "router"}}),
    ],
)  # fmt: skip
def test_neighbours_of_eos_in_the_corpus(recorded, folder_name, expected):
    neighbours = eapi_parser.parse_neighbours(recorded(f"corpus/{EOS_NEIGHBOURS}".format(folder_name)))
    first = next(one for one in neighbours if one.port == expected["port"])
    assert {key: getattr(first, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "port", "state", "counters"),
    [
        ("own/nxos/show_interface.json", "Ethernet1/1", (True, True, 400 * 10**9),
         {"receive_bytes_total": 9000000000001, "transmit_bytes_total": 8000000000002, "fcs_errors_total": 5,
          "receive_broadcast_packets_total": 3, "receive_pause_frames_total": 7}),
        ("own/nxos/show_interface.json", "Ethernet1/2", (False, False, 400 * 10**9), {"receive_packets_total": 1023}),
        ("own/nxos/show_interface.json", "mgmt0", (True, True, 10**9), {}),
        (f"corpus/{NXOS_INTERFACES}".format("normal"), "Ethernet2/1", (True, True, 10**9), {"receive_bytes_total": 0}),
        (f"corpus/{NXOS_INTERFACES}".format("normal"), "Ethernet2/7", (False, False, ANY), {}),
        (f"corpus/{NXOS_INTERFACES}".format("admin_up_oper_down"), "Ethernet1/1", (False, True, 10**9), {}),
        (f"corpus/{NXOS_INTERFACES}".format("admin_up_oper_down"), "Ethernet1/2", (False, False, 10**9), {}),
    ],
)  # fmt: skip
def test_ports_of_nxos(recorded, name, port, state, counters):
    parsed = nxapi_parser.parse_interfaces(recorded(name))
    found = parsed.ports[port]
    assert (found.up, found.admin_up, found.speed) == state
    assert {ending: found.counters[ending] for ending in counters} == counters
    assert parsed.problems == ()


@pytest.mark.parametrize(
    ("name", "port", "absent"),
    [
        ("own/nxos/show_interface.json", "Ethernet1/2", "receive_bytes_total"),  # `N/A`
        ("own/nxos/show_interface.json", "mgmt0", "receive_bytes_total"),  # its keys have other names
        (f"corpus/{NXOS_INTERFACES}".format("normal"), "mgmt0", "receive_bytes_total"),
        (f"corpus/{NXOS_INTERFACES}".format("admin_up_oper_down"), "Ethernet1/1", "receive_bytes_total"),
    ],
)
def test_counters_of_nxos_that_are_absent(recorded, name, port, absent):
    assert absent not in nxapi_parser.parse_interfaces(recorded(name)).ports[port].counters


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("own/nxos/show_interface.json", 4),
        (f"corpus/{NXOS_INTERFACES}".format("normal"), 146),
        (f"corpus/{NXOS_INTERFACES}".format("admin_up_oper_down"), 2),
        (f"corpus/{NXOS_INTERFACES}".format("vlan_interface"), 3),
    ],
)
def test_only_physical_ports_and_port_channels_of_nxos(recorded, name, count):
    data = recorded(name)
    rows = data["TABLE_interface"]["ROW_interface"]
    assert len(rows) == count
    parsed = nxapi_parser.parse_interfaces(data)
    prefixes = ("ethernet", "port-channel", "mgmt")
    assert parsed.ports.keys() == {row["interface"] for row in rows if row["interface"].lower().startswith(prefixes)}
    assert parsed.problems == ()


def test_other_commands_of_nxos(recorded):
    """The corpus has none of them as JSON."""
    pfc = nxapi_parser.parse_pfc(recorded("own/nxos/show_interface_priority-flow-control.json"))
    assert pfc.ports == {"Ethernet1/1": (17, 18), "Ethernet1/2": (0, 0)}
    (neighbour,) = nxapi_parser.parse_neighbours(recorded("own/nxos/show_lldp_neighbors_detail.json"))
    assert neighbour == LldpNeighbour(
        "Eth1/1", "02:00:00:00:0b:01", "Ethernet1/9", "spine-01", "to leaf-01", "NX-OS",
        frozenset({"bridge", "router"}), ("192.0.2.9", "2001:db8::9"),
    )  # fmt: skip
    version = nxapi_parser.parse_version(recorded("own/nxos/show_version.json"))
    uptime = 2 * 86400 + 3 * 3600 + 4 * 60 + 5
    assert version == nxapi_parser.NxosVersion("leaf-01", "Nexus9000 C9364D-SIM Chassis", "10.5(2)", uptime)
