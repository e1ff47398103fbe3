"""Recordings of Onyx and NVUE: values that were read off them by eye, and for each file without rows the reason."""

import json

import pytest

from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.nvue import parser as nvue_parser
from exporter.switch_api.onyx import facts as onyx_facts
from exporter.switch_api.onyx import parser as onyx_parser
from exporter.switch_api.onyx.parser import OnyxCongestion, OnyxCounters, OnyxPortState

READ = {
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
}

NOT_ASKED_FOR = {
    "onyx/ansible/onyx_buffer_pool.cfg": "use of pools of the whole switch: there is no metric of them",
    "onyx/ansible/onyx_command_show_version.txt": "the text of the command, which the API gives in JSON",
    "onyx/ansible/onyx_facts_show_module.cfg": "modules of a chassis",
    "onyx/ansible/onyx_interfaces_rates.cfg": "averages that the switch makes; rates are made of counters",
    "onyx/ansible/onyx_lldp_interface_show.cfg": "whether ports speak LLDP, by configuration",
    "onyx/ansible/onyx_pfc_interface_disabled.cfg": "configuration of PFC, by port",
    "onyx/ansible/onyx_pfc_interface_enabled.cfg": "configuration of PFC, by port",
    "onyx/ansible/onyx_port_channel_show.cfg": "port channels, which repeat what their members count",
    "onyx/ansible/onyx_show_dcb_ets_interface.cfg": "configuration of scheduling",
    "onyx/ansible/onyx_wjh_show.cfg": "lines of configuration",
    "onyx/ansible/show_qos_interface_ethernet.cfg": "configuration of QoS",
    "onyx/napalm-onyx/show_interface_status.txt": "the text of a command that is not requested",
}


@pytest.fixture
def recorded(corpus):
    folder = corpus / "switch"
    if not folder.is_dir():
        pytest.skip("needs the corpus of switches")

    def read(name):
        assert name in READ
        text = (folder / name).read_text()
        return {"Lines": text.splitlines()} if name.endswith(".txt") and text[0] != "{" else json.loads(text)

    read.folder = folder
    return read


def test_every_recording_is_tested_or_has_a_reason_not_to_be(recorded):
    found = {
        str(path.relative_to(recorded.folder))
        for api in ("onyx", "nvue")
        for path in (recorded.folder / api).rglob("*")
        if path.is_file()
    }
    assert found == READ | NOT_ASKED_FOR.keys()


def test_counters_of_newer_onyx(recorded):
    read = onyx_parser.parse_counters(recorded("onyx/blog_new_style_counters_shape.json")["data"])
    assert read.ports == {
        "Eth1/19": OnyxCounters(receive_packets=6078365878, receive_bytes=46755253366062, transmit_bytes=0)
    }
    assert read.problems == ()


def test_counters_of_older_onyx(recorded):
    data = recorded("onyx/ansible/onyx_interfaces_show.cfg")
    both = {
        f"{way}_{what}": 0 for way in ("receive", "transmit") for what in ("packets", "bytes", "errors", "discards")
    }
    read = onyx_parser.parse_counters(data)
    assert read.ports == {"Eth1/1": OnyxCounters(**both, transmit_hoq_discards=0)}, "and no VLANs"
    assert onyx_parser.parse_description(data).ports == {"Eth1/1": OnyxPortState(up=False, speed=40 * 10**9)}


def test_states_of_onyx(recorded):
    for name, ports in (
        ("onyx/ansible/onyx_facts_show_interfaces_ethernet.cfg", ("Eth1/1", "Eth1/2")),
        ("onyx/ansible/onyx_interfaces_status.cfg", ("Eth1/1",)),
    ):
        read = onyx_parser.parse_description(recorded(name))
        assert read.ports == dict.fromkeys(ports, OnyxPortState(up=False, speed=100 * 10**9))


def test_ecn_marks_and_red_drops_of_onyx(recorded):
    read = onyx_parser.parse_congestion_control(recorded("onyx/ansible/onyx_show_interface_congestion_control.cfg"))
    assert read.ports == {"Eth1/1": OnyxCongestion(0, {2: 0, 3: 0})}


def test_text_instead_of_rows(recorded):
    read = onyx_parser.parse_counters(recorded("onyx/napalm-onyx/show_interface.txt"))
    assert read.ports == {}
    assert read.text.startswith("Eth1/1:")


def test_neighbours_of_onyx(recorded):
    read = onyx_facts.parse_neighbours(recorded("onyx/napalm-onyx/show_lldp_remote___json_print.txt"))
    assert read.ports == {
        "Eth1/15/3": (LldpNeighbour("Eth1/15/3", "00:aa:bb:cc:dd:ff", "swp0", "mgmt1.dc"),),
        "Eth1/15/2": (LldpNeighbour("Eth1/15/2", "01:aa:bb:cc:dd:ff", "swp0", "mgmt2.dc"),),
    }
    local = onyx_facts.parse_local(recorded("onyx/ansible/onyx_lldp_show.cfg"))
    assert local == onyx_facts.OnyxLocalSystem(
        "ufm-switch16", "Mellanox MSN2700,MLNX-OS,SWv3.6.5000-04", "7c:fe:90:e5:ca:00"
    )


def test_versions_of_onyx(recorded):
    older = onyx_facts.parse_version(recorded("onyx/ansible/onyx_facts_show_version.cfg"))
    newer = onyx_facts.parse_version(recorded("onyx/napalm-onyx/show_version.txt"))
    day = 86400
    assert older == onyx_facts.OnyxVersion(
        "x86onie", "MLNX-OS 3.6.5000", pytest.approx(2 * day + 13 * 3600 + 40 * 60 + 34.992)
    )
    assert newer == onyx_facts.OnyxVersion("x86", "Onyx 3.7.1160", 1 * day + 9 * 3600 + 50 * 60 + 31)


def test_interfaces_of_nvue(recorded):
    excerpt = recorded("nvue/docs/interface_all_excerpt.json")
    assert nvue_parser.parse_interfaces(excerpt).ports == {}, "eth0 is no port of the front panel"
    stats = recorded("nvue/docs/interface_swp1_link_stats.json")
    read = nvue_parser.parse_interfaces(
        {"swp1": {**excerpt["eth0"], "link": {**excerpt["eth0"]["link"], "stats": stats}}}
    )
    assert read.ports["swp1"].up is True
    assert read.ports["swp1"].counters == {
        "in-bytes": 293771538, "in-pkts": 2321737, "in-errors": 0, "in-drops": 0,
        "out-bytes": 366068936, "out-pkts": 3536629, "out-errors": 0, "out-drops": 0,
    }  # fmt: skip
