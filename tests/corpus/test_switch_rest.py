"""Recordings of Onyx, NVUE and RESTCONF: own ones and those of the corpus, with values read off the files.

For each file of the corpus that is not parsed the reason is given.
"""

import pytest

from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.nvue import parser as nvue_parser
from exporter.switch_api.onyx import facts as onyx_facts
from exporter.switch_api.onyx import parser as onyx_parser
from exporter.switch_api.onyx.parser import OnyxCongestion, OnyxCounters, OnyxPortState
from exporter.switch_api.restconf import parser as restconf_parser
from tests.helpers.recordings import read_recording

PARSED = {
    "onyx/blog_new_style_counters_shape.json",
    "onyx/ansible/onyx_facts_show_interfaces_ethernet.cfg",
    "onyx/ansible/onyx_facts_show_version.cfg",
    "onyx/ansible/onyx_interfaces_show.cfg",
    "onyx/ansible/onyx_interfaces_status.cfg",
    "onyx/ansible/onyx_lldp_show.cfg",
    "onyx/ansible/onyx_show_interface_congestion_control.cfg",
    "onyx/napalm-onyx/show_interface.txt",
    "onyx/napalm-onyx/show_lldp_remote___json_print.txt",
    "onyx/napalm-onyx/show_version.txt",
    "nvue/docs/interface_all_excerpt.json",
    "nvue/docs/interface_swp1_link_stats.json",
    "sonic/mgmt-common/01_get_all_response.json",
    "sonic/mgmt-common/02_get_interface_response.json",
    "sonic/mgmt-common/04_get_interface_state_response.json",
    "sonic/mgmt-common/01-get-all-intf-response.json",
    "sonic/mgmt-common/02-get-one-intf-response.json",
}

NOT_PARSED = {
    "onyx/ansible/onyx_buffer_pool.cfg": "use of the buffer pools of the whole switch: there is no metric for them",
    "onyx/ansible/onyx_command_show_version.txt": "the text of the command, which the API returns as JSON",
    "onyx/ansible/onyx_facts_show_module.cfg": "modules of a chassis",
    "onyx/ansible/onyx_interfaces_rates.cfg": "averages by the switch; rates are computed from counters",
    "onyx/ansible/onyx_lldp_interface_show.cfg": "whether LLDP is configured for a port",
    "onyx/ansible/onyx_pfc_interface_disabled.cfg": "configuration of PFC by port",
    "onyx/ansible/onyx_pfc_interface_enabled.cfg": "configuration of PFC by port",
    "onyx/ansible/onyx_port_channel_show.cfg": "port channels, which count the traffic of their members again",
    "onyx/ansible/onyx_show_dcb_ets_interface.cfg": "configuration of scheduling",
    "onyx/ansible/onyx_wjh_show.cfg": "lines of configuration",
    "onyx/ansible/show_qos_interface_ethernet.cfg": "configuration of QoS",
    "onyx/napalm-onyx/show_interface_status.txt": "the text of a command that is not run",
    "sonic/mgmt-common/03_get_interface_config_response.json": "configuration, not state",
    "sonic/mgmt-common/05_set_interface_mtu.json": "a request that writes",
    "sonic/mgmt-common/06_set_interface_ipv4.json": "a request that writes",
    "sonic/mgmt-common/07_set_interface_ipv6.json": "a request that writes",
}


@pytest.fixture
def recorded(request):
    """Return a function that reads the recording of a name."""

    def read(name):
        assert name.startswith("own/") or name.removeprefix("corpus/") in PARSED
        return read_recording(request, name)

    return read


def test_every_recording_is_tested_or_has_a_reason_not_to_be(corpus):
    folder = corpus / "switch"
    if not folder.is_dir():
        pytest.skip("needs the corpus of switches")
    found = {
        str(path.relative_to(folder))
        for api in ("onyx", "nvue", "sonic/mgmt-common")
        for path in (folder / api).rglob("*")
        if path.is_file()
    }
    assert found == PARSED | NOT_PARSED.keys()


# --- Onyx


@pytest.mark.parametrize(
    ("name", "ports"),
    [
        ("own/onyx/show_interfaces_ethernet_counters.json",
         {"Eth1/1": OnyxCounters(
             receive_packets=1023, receive_bytes=9000000000001, receive_errors=6, receive_discards=4,
             receive_pause_frames=7, receive_fcs_errors=5, transmit_packets=2034, transmit_bytes=8000000000002,
             transmit_errors=0, transmit_discards=12, transmit_pause_frames=13)}),
        ("corpus/onyx/blog_new_style_counters_shape.json",
         {"Eth1/19": OnyxCounters(receive_packets=6078365878, receive_bytes=46755253366062, transmit_bytes=0)}),
    ],
)  # fmt: skip
def test_counters_of_newer_onyx(recorded, name, ports):
    data = recorded(name)
    parsed = onyx_parser.parse_counters(data.get("data", data))
    assert parsed.ports == ports
    assert parsed.problems == ()


@pytest.mark.parametrize(
    ("name", "hoq_discards", "speed"),
    [
        ("own/onyx/show_interfaces_ethernet.json", 3, 400 * 10**9),
        ("corpus/onyx/ansible/onyx_interfaces_show.cfg", 0, 40 * 10**9),
    ],
)
def test_counters_of_older_onyx(recorded, name, hoq_discards, speed):
    """VLANs are skipped."""
    data = recorded(name)
    zeros = {
        f"{direction}_{kind}": 0
        for direction in ("receive", "transmit")
        for kind in ("packets", "bytes", "errors", "discards")
    }
    parsed = onyx_parser.parse_counters(data)
    assert parsed.ports == {"Eth1/1": OnyxCounters(**zeros, transmit_hoq_discards=hoq_discards)}
    assert parsed.ports["Eth1/1"].receive_pause_frames is None
    assert parsed.problems == ()
    assert onyx_parser.parse_description(data).ports == {"Eth1/1": OnyxPortState(up=False, speed=speed)}


@pytest.mark.parametrize(
    ("name", "ports"),
    [
        ("own/onyx/show_interfaces_ethernet_description.json",
         {"Eth1/1": OnyxPortState(up=True, speed=400 * 10**9, description="to gpu-001"),
          "Eth1/2": OnyxPortState(up=False, speed=400 * 10**9)}),
        ("corpus/onyx/ansible/onyx_facts_show_interfaces_ethernet.cfg",
         dict.fromkeys(("Eth1/1", "Eth1/2"), OnyxPortState(up=False, speed=100 * 10**9))),
        ("corpus/onyx/ansible/onyx_interfaces_status.cfg", {"Eth1/1": OnyxPortState(up=False, speed=100 * 10**9)}),
    ],
)  # fmt: skip
def test_states_of_onyx(recorded, name, ports):
    assert onyx_parser.parse_description(recorded(name)).ports == ports


@pytest.mark.parametrize(
    ("name", "congestion"),
    [
        ("own/onyx/show_interfaces_ethernet_congestion-control.json", OnyxCongestion(4200, {3: 8})),
        ("corpus/onyx/ansible/onyx_show_interface_congestion_control.cfg", OnyxCongestion(0, {2: 0, 3: 0})),
    ],
)
def test_ecn_marks_and_red_drops_of_onyx(recorded, name, congestion):
    assert onyx_parser.parse_congestion_control(recorded(name)).ports == {"Eth1/1": congestion}


@pytest.mark.parametrize("name", ["own/onyx/show_interface.txt", "corpus/onyx/napalm-onyx/show_interface.txt"])
def test_text_instead_of_rows(recorded, name):
    parsed = onyx_parser.parse_counters(recorded(name))
    assert parsed.ports == {}
    assert parsed.text.startswith("Eth1/1:")


@pytest.mark.parametrize(
    ("name", "neighbours"),
    [
        ("own/onyx/show_lldp_remote.json",
         [LldpNeighbour("Eth1/1", "02:00:00:00:0a:01", "eth2", "gpu-001"),
          LldpNeighbour("Eth1/2", "02:00:00:00:0a:02", "eth2", "gpu-002")]),
        ("corpus/onyx/napalm-onyx/show_lldp_remote___json_print.txt",
         [LldpNeighbour("Eth1/15/3", "00:aa:bb:cc:dd:ff", "swp0", "mgmt1.dc"),
          LldpNeighbour("Eth1/15/2", "01:aa:bb:cc:dd:ff", "swp0", "mgmt2.dc")]),
    ],
)  # fmt: skip
def test_neighbours_of_onyx(recorded, name, neighbours):
    assert onyx_facts.parse_neighbours(recorded(name)).ports == {one.port: (one,) for one in neighbours}


@pytest.mark.parametrize(
    ("name", "local"),
    [
        ("own/onyx/show_lldp_local.json", ("leaf-02", "Simulated SN4700", "02:00:00:00:00:aa")),
        ("corpus/onyx/ansible/onyx_lldp_show.cfg",
         ("ufm-switch16", "Mellanox MSN2700,MLNX-OS,SWv3.6.5000-04", "7c:fe:90:e5:ca:00")),
    ],
)  # fmt: skip
def test_local_system_of_onyx(recorded, name, local):
    assert onyx_facts.parse_local(recorded(name)) == onyx_facts.OnyxLocalSystem(*local)


@pytest.mark.parametrize(
    ("name", "model", "release", "uptime"),
    [
        ("own/onyx/show_version.json", "x86onie", "Onyx 3.10.4206", 2 * 86400 + 3 * 3600 + 4 * 60 + 5.5),
        ("own/onyx/show_version.txt", "x86onie", "Onyx 3.9.0300", 86400 + 7),
        ("corpus/onyx/ansible/onyx_facts_show_version.cfg", "x86onie", "MLNX-OS 3.6.5000",
         2 * 86400 + 13 * 3600 + 40 * 60 + 34.992),
        ("corpus/onyx/napalm-onyx/show_version.txt", "x86", "Onyx 3.7.1160", 86400 + 9 * 3600 + 50 * 60 + 31),
    ],
)  # fmt: skip
def test_versions_of_onyx(recorded, name, model, release, uptime):
    version = onyx_facts.parse_version(recorded(name))
    assert version == onyx_facts.OnyxVersion(model, release, pytest.approx(uptime))


# --- NVUE

COUNTERS_OF_SWP1 = {
    "own/nvue/interface.json": {
        "in-bytes": 9000000000001, "in-pkts": 1023, "in-errors": 6, "in-drops": 4,
        "out-bytes": 8000000000002, "out-pkts": 2034, "out-errors": 0, "out-drops": 12,
    },
    "corpus/nvue/docs/interface_swp1_link_stats.json": {
        "in-bytes": 293771538, "in-pkts": 2321737, "in-errors": 0, "in-drops": 0,
        "out-bytes": 366068936, "out-pkts": 3536629, "out-errors": 0, "out-drops": 0,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTERS_OF_SWP1)
def test_interfaces_of_nvue(recorded, name):
    """Neither `eth0`, which is no front panel port, nor a bond is read. The corpus has the counters of a port alone."""
    data = recorded(name)
    if "swp1" not in data:
        excerpt = recorded("corpus/nvue/docs/interface_all_excerpt.json")
        assert nvue_parser.parse_interfaces(excerpt).ports == {}
        data = {"swp1": {**excerpt["eth0"], "link": {**excerpt["eth0"]["link"], "stats": data}}}
    parsed = nvue_parser.parse_interfaces(data)
    assert parsed.ports.keys() == {"swp1"}
    assert parsed.ports["swp1"].up is True
    assert parsed.ports["swp1"].counters == COUNTERS_OF_SWP1[name]
    assert parsed.problems == ()


def test_neighbours_and_qos_of_nvue(recorded):
    """The corpus has none of them."""
    port = nvue_parser.parse_interfaces(recorded("own/nvue/interface.json")).ports["swp1"]
    assert (port.speed, port.ifindex, port.description) == (400 * 10**9, "3", "to gpu-001")
    assert port.neighbours == (
        LldpNeighbour("swp1", "02:00:00:00:0a:01", "eth2", "gpu-001", "eth2", "Linux", frozenset({"station"}),
                      ("192.0.2.11",)),
    )  # fmt: skip
    qos = nvue_parser.parse_qos(recorded("own/nvue/interface_swp1_counters_qos.json"))
    assert qos.priorities == {3: {"rx-pause-frames": 17, "tx-pause-frames": 18}}
    assert qos.queues[3]["ecn-marked-frames"] == 4200
    assert qos.groups == {3: {"rx-frames": 9000, "rx-buffer-discards": 2}}
    assert qos.problems == ()


# --- RESTCONF

LLDP = "corpus/sonic/mgmt-common/{}-response.json".format
INTERFACE = "corpus/sonic/mgmt-common/{}_response.json".format


@pytest.mark.parametrize(
    ("name", "ports", "first"),
    [
        ("own/restconf/lldp_interfaces.json", {"Ethernet0"},
         ("Ethernet0", "02:00:00:00:0b:01", "spine-01", "Ethernet0")),
        (LLDP("01-get-all-intf"), {"Ethernet0", "eth0"},
         ("Ethernet0", "e4:f0:04:fe:64:e1", "swtor-b2lab2-1409", "ethernet1/1/9")),
    ],
)  # fmt: skip
def test_neighbours_of_restconf(recorded, name, ports, first):
    neighbours = restconf_parser.parse_neighbours(recorded(name))
    assert {one.port for one in neighbours} >= ports
    one = neighbours[0]
    assert (one.port, one.chassis, one.name, one.peer_port) == first


@pytest.mark.parametrize(
    ("name", "capabilities"),
    [
        ("own/restconf/lldp_interfaces.json", {"bridge", "router"}),
        (LLDP("02-get-one-intf"), {"bridge", "repeater", "router"}),
    ],
)
def test_capabilities_of_restconf(recorded, name, capabilities):
    (one, *_) = restconf_parser.parse_neighbours(recorded(name))
    assert one.capabilities == capabilities


@pytest.mark.parametrize(
    ("name", "state_name", "up", "received"),
    [
        ("own/restconf/interface.json", "own/restconf/interface_state.json", True, 9000000000001),
        (INTERFACE("02_get_interface"), INTERFACE("04_get_interface_state"), False, 0),
    ],
)
def test_one_interface_of_restconf(recorded, name, state_name, up, received):
    """As a list with one interface, and as the state of an interface inside such a list."""
    (port,) = restconf_parser.parse_interfaces(recorded(name)).ports.values()
    state = recorded(state_name)["openconfig-interfaces:state"]
    listed = {"interface": [{"name": "Ethernet0", "state": state}]}
    other = restconf_parser.parse_interfaces(listed).ports["Ethernet0"]
    for one in (port, other):
        assert one.counters["receive_bytes_total"] == received
        assert (one.up, one.admin_up) == (up, True)
    assert other.index == "1"


@pytest.mark.parametrize("name", ["own/restconf/interfaces.json", INTERFACE("01_get_all")])
def test_interfaces_of_restconf(recorded, name):
    parsed = restconf_parser.parse_interfaces(recorded(name))
    assert "Ethernet0" in parsed.ports
    assert parsed.problems == ()


def test_speed_and_pause_frames_of_restconf(recorded):
    ports = restconf_parser.parse_interfaces(recorded("own/restconf/interfaces.json")).ports
    assert {name: (port.up, port.if_type) for name, port in ports.items()} == {
        "Ethernet0": (True, "6"),
        "Ethernet4": (False, "6"),
    }
    assert ports["Ethernet0"].speed == 400 * 10**9
    assert ports["Ethernet0"].counters["transmit_pause_frames_total"] == 13
