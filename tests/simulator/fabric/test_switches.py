"""Leaves and spines of the fabric as their pollers see them."""

import pytest

from exporter.simulator.fabric.hosts import UPTIME, FabricHost
from exporter.simulator.fabric.model import FabricModel
from exporter.simulator.fabric.switches import FabricSwitch
from exporter.simulator.onyx import OnyxSwitch
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.switches import fill_agent, fill_onyx, update_agent, update_onyx
from exporter.snmp.ber import encode_oid, parse_oid
from exporter.snmp.message import GET, V2C, decode_message, encode_message, encode_pdu, encode_varbind

IF, IFX, PFC_RECEIVED = "1.3.6.1.2.1.2.2.1", "1.3.6.1.2.1.31.1.1.1", "1.3.6.1.4.1.9.9.813.1.2.1.3"


def made(*faults, seconds=1e-6):
    model = FabricModel(faults)
    model.advance(seconds)
    hosts = {name: FabricHost(model, name) for name in model.topology.hosts}
    return model, {name: FabricSwitch(model, name, hosts) for name in model.booted}


def value(agent, oid):
    pdu = encode_pdu(GET, 1, 0, 0, [encode_varbind(encode_oid(parse_oid(oid)))])
    (reply,) = agent.answer(encode_message(V2C, b"public", pdu))
    ((_, _, content),) = decode_message(reply).pdu.varbinds
    return content


def test_a_leaf_has_its_hosts_and_spines_as_neighbours():
    model, switches = made()
    found = {
        port: (one.name, one.port_description or one.port) for port, one in switches["leaf-01"].neighbours().items()
    }
    expected = {
        f"Ethernet1/{number}": (f"gpu-00{1 + (number - 1) % 2}", f"eth{2 + (number - 1) // 2}")
        for number in range(1, 9)
    }
    assert found == expected | {f"Ethernet1/{8 + spine}": (f"spine-0{spine}", "Ethernet1/1") for spine in range(1, 5)}
    assert [port.name for port in switches["leaf-01"].ports] == [f"Ethernet1/{number}" for number in range(1, 13)]
    assert {one.name for one in switches["spine-02"].neighbours().values()} == set(model.topology.leaves)


def test_a_rail_on_the_wrong_leaf_is_a_neighbour_there():
    _, switches = made("rail-swapped:gpu-002/3")
    rails = {
        leaf: {one.port_description for one in switches[leaf].neighbours().values() if one.name == "gpu-002"}
        for leaf in ("leaf-01", "leaf-02")
    }
    assert rails == {"leaf-01": {"eth2", "eth3", "eth4", "eth9"}, "leaf-02": {"eth6", "eth7", "eth8", "eth5"}}


def test_a_link_that_is_down_has_no_neighbour():
    _, switches = made("link-down:leaf-01/spine-02", "missing-port:gpu-001/7")
    assert "Ethernet1/10" not in switches["leaf-01"].neighbours()
    assert "Ethernet1/1" not in switches["spine-02"].neighbours()
    assert ("gpu-001", "eth9") not in {
        (one.name, one.port_description) for one in switches["leaf-02"].neighbours().values()
    }


def test_all_switches_have_different_chassis():
    _, switches = made()
    assert len({one.chassis for one in switches.values()}) == 8


def test_a_switch_that_restarts_is_silent_and_then_has_a_short_uptime():
    model, switches = made("switch-rebooted:spine-01@1s", "switch-silent:leaf-03")
    assert [name for name, one in switches.items() if one.silent] == ["leaf-03"]
    assert switches["spine-01"].uptime == pytest.approx(UPTIME, abs=1)
    model.advance(2.0)
    assert [name for name, one in switches.items() if one.silent] == ["leaf-03", "spine-01"]
    model.advance(31.0)
    assert [name for name, one in switches.items() if one.silent] == ["leaf-03"]
    assert switches["spine-01"].uptime == pytest.approx(2.0, abs=0.01)


def test_a_link_that_was_down_between_two_updates_has_the_uptime_of_its_last_change():
    model, switches = made("flapping-link:leaf-01/spine-02@10s-16s", "switch-rebooted:spine-04@20s")
    agents = {name: SnmpAgent(community="public") for name in ("leaf-01", "spine-04")}
    for name, agent in agents.items():
        fill_agent(agent, switches[name])
    assert value(agents["leaf-01"], f"{IF}.9.10") == 0
    model.advance(60.0)
    for name, agent in agents.items():
        update_agent(agent, switches[name])
    assert value(agents["leaf-01"], f"{IF}.8.10") == 1
    assert value(agents["leaf-01"], f"{IF}.9.10") == round((UPTIME + 15.0) * 100)
    assert value(agents["leaf-01"], f"{IF}.9.9") == 0
    assert value(agents["leaf-01"], f"{IF}.9.12") == round((UPTIME + 50.0) * 100), "the other end restarted"
    assert value(agents["spine-04"], f"{IF}.9.1") == 0, "it came up with the switch"


def test_an_agent_shows_what_the_model_counts():
    model, switches = made("no-pfc", "symbol-errors:gpu-001/1", "pause-storm:gpu-001/0", seconds=0.5)
    agent, leaf = SnmpAgent(), switches["leaf-01"]
    fill_agent(agent, leaf)
    model.advance(0.5)
    update_agent(agent, leaf)
    by_name = {port.name: (index, port) for index, port in enumerate(leaf.ports, start=1)}
    (host, host_port), (uplink, uplink_port) = by_name["Ethernet1/3"], by_name["Ethernet1/9"]
    assert value(agent, f"{IFX}.1.{uplink}") == b"Ethernet1/9"
    assert value(agent, f"{IFX}.10.{uplink}") == uplink_port.wire_bytes("transmit")
    assert value(agent, f"{IF}.14.{host}") == host_port.counters["receive_errors"] > 0
    assert value(agent, f"{IF}.19.{host}") == host_port.counters["transmit_discards"] > 0
    storm = by_name["Ethernet1/1"][1].counters["pause_frames"]
    assert value(agent, f"{PFC_RECEIVED}.{by_name['Ethernet1/1'][0]}.3") == storm > 0


def test_an_onyx_switch_shows_what_the_model_counts():
    model, switches = made("pause-storm:gpu-001/5", seconds=0.5)
    onyx, leaf = OnyxSwitch(password="secret"), switches["leaf-02"]
    fill_onyx(onyx, leaf)
    model.advance(0.5)
    update_onyx(onyx, leaf)
    port = model.cabling.access(model.topology.adapter("gpu-001", 5)).upper
    shown, counters = onyx.ports[port.port], model.ports[port].counters
    assert shown.receive.pause_packets == counters["pause_frames"] > 0
    assert shown.pfc == {3: (counters["pause_frames"], counters["sent_pause_frames"])}
    assert shown.ecn_marked_packets == counters["ecn_marked"] > 0
    assert shown.neighbours[0].name == "gpu-001"
